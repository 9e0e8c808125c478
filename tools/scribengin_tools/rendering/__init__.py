"""How things are drawn on a terminal."""
