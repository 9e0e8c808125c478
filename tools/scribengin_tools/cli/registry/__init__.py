"""Commands about the registry."""
