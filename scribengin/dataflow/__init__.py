"""Dataflows: their configuration, their tasks, their view of the registry, and the commit of a round."""
