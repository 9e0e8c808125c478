"""Spark Structured Streaming alone, in a process of its own: what it is asked to do."""

from scribengin_dev.bench.clients.spark.jobs import JOBS

__all__ = ["JOBS"]
