"""What every client of a registry is made of: session, watches, limits, deadlines."""
