"""A process of ours: how long it lives, what others may do to it, what is its own."""
