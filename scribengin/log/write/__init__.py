"""Writing a log: the writer, its groups and segments, and the recovery of what one left."""
