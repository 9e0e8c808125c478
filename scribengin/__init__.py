"""Scribengin: a dataflow engine. PySpark transforms, ZooKeeper keeps the state, the log store is source and sink."""
