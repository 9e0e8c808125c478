"""The Java runtime, PySpark's jars, and processes on them."""
