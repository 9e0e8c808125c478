"""What the commands about logs do."""
