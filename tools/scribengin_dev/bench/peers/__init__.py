"""The systems that ours is held against."""
