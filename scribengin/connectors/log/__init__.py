"""The log store as source and sink."""
