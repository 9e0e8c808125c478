"""The servers' jars: which, from where, and whether they are the right ones."""
