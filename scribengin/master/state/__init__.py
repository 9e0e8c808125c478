"""What a master decides, and nothing that it does: pure functions over one look."""
