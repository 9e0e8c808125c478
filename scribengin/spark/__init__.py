"""Spark: the session, and the transformation of a round."""
