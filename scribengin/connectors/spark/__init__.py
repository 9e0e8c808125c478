"""Whatever a Spark format reads or writes, as a source and as a sink (`kind: spark`): at least once."""

from scribengin.connectors.spark.sink import SparkSink, SparkSinkConfig
from scribengin.connectors.spark.source import SparkSource, SparkSourceConfig

__all__ = ["SparkSink", "SparkSinkConfig", "SparkSource", "SparkSourceConfig"]
