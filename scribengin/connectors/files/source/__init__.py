"""Files as a source."""
