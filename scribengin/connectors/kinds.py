"""From the `kind` of a configuration to the connector that it is for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from pydantic import Field

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.commit_log import LOCKS
from scribengin.base.model import node_name
from scribengin.connectors.contract import Sink, Source
from scribengin.connectors.files import FileSink, FileSinkConfig, FileSource, FileSourceConfig
from scribengin.connectors.files.source.finished import FinishedFiles
from scribengin.connectors.kafka.client.connection import require_client
from scribengin.connectors.kafka.sink.config import KafkaSinkConfig
from scribengin.connectors.kafka.source.config import KafkaSourceConfig
from scribengin.connectors.log.source import LogSink, LogSinkConfig, LogSource, LogSourceConfig
from scribengin.connectors.names import SOURCES_NODE
from scribengin.connectors.spark import SparkSink, SparkSinkConfig, SparkSource, SparkSourceConfig
from scribengin_registry.contract import Registry

AnySourceConfig = Annotated[
    LogSourceConfig | FileSourceConfig | KafkaSourceConfig | SparkSourceConfig, Field(discriminator="kind")
]
AnySinkConfig = Annotated[
    LogSinkConfig | FileSinkConfig | KafkaSinkConfig | SparkSinkConfig, Field(discriminator="kind")
]


@dataclass(frozen=True, slots=True)
class Environment:
    """What a connector may need from the process that opens it. The registry session stays the caller's."""

    registry: Registry
    dataflow: str
    clock: Clock = SYSTEM_CLOCK
    sinks_node: str = f"{LOCKS}/sinks"
    """The registry path below which every sink resource has its node."""
    sources_node: str = SOURCES_NODE
    """The registry path below which every source of a dataflow has its node, and there every stream."""
    has_tasks: Callable[[], bool] = lambda: False
    """Whether the dataflow was split into tasks already: streams that are found now have come later."""
    looking: bool = False
    """Opened to look at what is there, and not on the dataflow's behalf: nothing is held back for it."""


def open_source(name: str, config: AnySourceConfig, environment: Environment) -> Source:
    """The source of that name. Raises ConfigInvalid, NamespaceNotBound; SourceMissing comes later."""
    if isinstance(config, LogSourceConfig):
        dataflow = None if environment.looking else environment.dataflow
        return LogSource(name, config, environment.registry, environment.clock, dataflow, environment.has_tasks)
    if isinstance(config, KafkaSourceConfig):
        require_client()
        from scribengin.connectors.kafka.source.source import KafkaSource  # its client is not installed everywhere

        return KafkaSource(name, config, environment.dataflow, environment.clock, environment.has_tasks)
    if isinstance(config, SparkSourceConfig):
        return SparkSource(name, config, environment.clock)
    return FileSource(name, config, environment.clock, partial(_finished_files, name, environment))


def _finished_files(source: str, environment: Environment, stream: str) -> FinishedFiles:
    of_source = f"{environment.sources_node}/{node_name(f'{environment.dataflow}.{source}')}"
    return FinishedFiles(environment.registry, f"{of_source}/{node_name(stream)}/finished")


def open_sink(name: str, config: AnySinkConfig, environment: Environment) -> Sink:
    """The sink of that name. Creates nothing. Raises ConfigInvalid, NamespaceNotBound, InvalidLogName."""
    if isinstance(config, LogSinkConfig):
        return LogSink(name, config, environment.registry, environment.clock)
    if isinstance(config, KafkaSinkConfig):
        return _open_kafka_sink(name, config, environment)
    if isinstance(config, SparkSinkConfig):
        return SparkSink(name, config)
    return FileSink(name, config, environment.registry, environment.sinks_node, environment.clock)


def _open_kafka_sink(name: str, config: KafkaSinkConfig, environment: Environment) -> Sink:
    require_client()
    from scribengin.connectors.kafka.sink.sink import KafkaSink  # imports a client that not everybody has

    registry, clock = environment.registry, environment.clock
    return KafkaSink(
        name, config, registry, dataflow=environment.dataflow, sinks_node=environment.sinks_node, clock=clock
    )
