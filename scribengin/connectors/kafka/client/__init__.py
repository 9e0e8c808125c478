"""Kafka's client, and what its failures mean."""
