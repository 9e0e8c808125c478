"""Files as a sink."""
