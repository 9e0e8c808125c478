"""Entries read past damage, and past the end that readers see."""
