"""Entries read past damage, and past the end that readers see, and the recovery of what a writer left."""
