"""Commands about dataflows."""
