"""Benchmarks of whole dataflows."""
