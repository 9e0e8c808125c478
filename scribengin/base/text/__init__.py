"""What people write and read: YAML, refusals in words, what is masked."""
