"""The bytes of the log store: records, entries, positions."""
