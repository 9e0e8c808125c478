"""Reading a log: the catalog of its segments, cursors, ranges, readers."""
