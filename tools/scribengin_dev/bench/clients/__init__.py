"""Clients that a benchmark drives in processes of their own."""
