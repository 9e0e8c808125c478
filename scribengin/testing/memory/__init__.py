"""Systems in memory, each held by the suite that the real one passes. Never what a user runs."""
