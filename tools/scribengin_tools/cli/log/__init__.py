"""Commands about logs."""
