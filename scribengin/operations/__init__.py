"""What people do to dataflows."""
