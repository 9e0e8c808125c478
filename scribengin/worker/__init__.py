"""A worker: executors that run the rounds of their tasks."""
