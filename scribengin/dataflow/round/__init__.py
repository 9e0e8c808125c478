"""A round: taking a task over, running it, committing it."""
