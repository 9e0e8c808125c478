"""A log's nodes in the registry: its segments, its locks, its life."""
