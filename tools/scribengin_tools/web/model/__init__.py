"""What the page shows, worked out."""
