"""What a kind of connector is to the rest of the engine, and what it may need from the process that opens it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.connectors.contract import Sink, SinkConfig, Source, SourceConfig
from scribengin_registry.contract import Registry


class StreamNodes(Protocol):
    """Where streams have their nodes in the registry. Pure functions of names."""

    def source_stream(self, dataflow: str, source: str, stream: str) -> str:
        """The node of a source's stream: its lock, its commit log, and what the connector keeps there."""
        ...

    def sink_stream(self, resource: str, stream: str) -> str:
        """The node of a sink's stream: its lock, its commit log, and what the connector keeps there."""
        ...

    def commit_log(self, stream_path: str) -> str:
        """The commit log of a stream, by its node."""
        ...


@dataclass(frozen=True, slots=True)
class Environment:
    """What a connector may need from the process that opens it. The registry session stays the caller's."""

    registry: Registry
    dataflow: str
    nodes: StreamNodes
    clock: Clock = SYSTEM_CLOCK
    has_tasks: Callable[[], bool] = lambda: False
    """Whether the dataflow was split into tasks already: streams that are found now have come later."""
    looking: bool = False
    """Opened to look at what is there, and not on the dataflow's behalf: nothing is held back for it."""
    submitted: bool = False
    """Opened to run the dataflow, which was found to be in order when it was submitted: what is away by now comes
    back."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of connector: its configurations, and what is done with them. Openers import their clients when called.

    The functions take a configuration of this kind; which one it is, only the table of kinds knows.
    """

    source: type[SourceConfig]
    sink: type[SinkConfig]
    open_source: Callable[[str, Any, Environment], Source]
    """Raises ConfigInvalid, NamespaceNotBound; SourceMissing comes later."""
    open_sink: Callable[[str, Any, Environment], Sink]
    """Creates nothing. Raises ConfigInvalid, NamespaceNotBound, InvalidLogName."""
    append: Callable[[Registry, Any, str, Iterable[pa.RecordBatch]], None] | None = None
    """Append records of one column `payload` to a stream of a source, as any client of the system would. Raises
    SourceMissing, and what writing raises. None: records come there otherwise."""
    packages: tuple[str, ...] = ()
    """What it may import beside what every process has: asked for in containers where this machine has it as well."""
    spark_alone: bool = False
    """Whether what is there can be read in a session of Spark only."""
