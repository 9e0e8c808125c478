"""What is done to a whole registry: what belongs to nobody, copies of it."""
