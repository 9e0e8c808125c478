"""The house rules, held by reading the tree."""
