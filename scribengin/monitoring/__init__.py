"""What can be seen of dataflows: the overview, stalls, metrics and their server."""
