"""Containers: where masters and workers run."""
