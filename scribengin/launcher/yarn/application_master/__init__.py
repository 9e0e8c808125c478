"""What runs inside of the application: the launcher, its containers."""
