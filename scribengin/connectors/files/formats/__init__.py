"""Formats of files: how records are found in them and how they are written."""
