"""YARN: the master as an application master, workers in containers. What needs a JVM imports `jvm` when it is used."""
