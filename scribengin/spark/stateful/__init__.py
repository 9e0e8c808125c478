"""Transformations with state: one streaming query of Spark a task, fed with the ranges that the engine has planned."""
