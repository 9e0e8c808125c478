"""What a task with state decides between its batches: which sources are silent, how its state is divided."""
