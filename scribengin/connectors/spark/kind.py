"""Tables of Spark as a kind of connector."""

from __future__ import annotations

from scribengin.connectors.opening import Environment, Kind
from scribengin.connectors.spark.sink import SparkSink, SparkSinkConfig
from scribengin.connectors.spark.source import SparkSource, SparkSourceConfig


def _open_source(name: str, config: SparkSourceConfig, environment: Environment) -> SparkSource:
    return SparkSource(name, config, environment.clock)


def _open_sink(name: str, config: SparkSinkConfig, environment: Environment) -> SparkSink:
    return SparkSink(name, config)


SPARK = Kind(SparkSourceConfig, SparkSinkConfig, _open_source, _open_sink, spark_alone=True)
