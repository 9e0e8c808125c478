"""From the `kind` of a configuration to the connector that it is for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from scribengin.clock import SYSTEM_CLOCK, Clock
from scribengin.connectors.contract import Sink, Source
from scribengin.connectors.files import FileSink, FileSinkConfig, FileSource, FileSourceConfig
from scribengin.connectors.log import LogSink, LogSinkConfig, LogSource, LogSourceConfig
from scribengin_registry.contract import Registry

AnySourceConfig = Annotated[LogSourceConfig | FileSourceConfig, Field(discriminator="kind")]
AnySinkConfig = Annotated[LogSinkConfig | FileSinkConfig, Field(discriminator="kind")]


@dataclass(frozen=True, slots=True)
class Environment:
    """What a connector may need from the process that opens it. The registry session stays the caller's."""

    registry: Registry
    dataflow: str
    clock: Clock = SYSTEM_CLOCK
    sinks_node: str = "/scribengin/locks/sinks"
    """The registry path below which every sink resource has its node."""


def open_source(name: str, config: LogSourceConfig | FileSourceConfig, environment: Environment) -> Source:
    """The source of that name. Raises ConfigInvalid, NamespaceNotBound; SourceMissing comes later."""
    if isinstance(config, LogSourceConfig):
        return LogSource(name, config, environment.registry, environment.clock)
    return FileSource(name, config, environment.clock)


def open_sink(name: str, config: LogSinkConfig | FileSinkConfig, environment: Environment) -> Sink:
    """The sink of that name. Creates nothing. Raises ConfigInvalid, NamespaceNotBound, InvalidLogName."""
    if isinstance(config, LogSinkConfig):
        return LogSink(name, config, environment.registry, environment.clock)
    return FileSink(name, config, environment.registry, environment.sinks_node, environment.clock)
