"""Segments and logs looked at end to end."""
