"""What Spark does for the engine: the session, the transformation of a round, tables."""
