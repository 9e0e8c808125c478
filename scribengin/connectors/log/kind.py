"""Logs as a kind of connector."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import pyarrow as pa

from scribengin.connectors.log.holds import Holds
from scribengin.connectors.log.reaching import open_namespace
from scribengin.connectors.log.sink import LogSink, LogSinkConfig
from scribengin.connectors.log.source import LogSource, LogSourceConfig
from scribengin.connectors.opening import Environment, Kind
from scribengin.log import RetentionHold
from scribengin_registry.contract import Registry


def _open_source(name: str, config: LogSourceConfig, environment: Environment) -> LogSource:
    hold_log = None
    if config.retention_hold and not environment.looking:
        held_by = [RetentionHold(dataflow=environment.dataflow, source=name, pattern=config.logs)]
        hold_log = partial(Holds(environment.nodes).hold_for, readers=held_by)
    opened = (environment.registry, environment.clock, environment.has_tasks, hold_log)
    return LogSource(name, config, *opened, awaited=environment.submitted)


def _open_sink(name: str, config: LogSinkConfig, environment: Environment) -> LogSink:
    holds = Holds(environment.nodes)
    return LogSink(name, config, environment.registry, environment.clock, holds, awaited=environment.submitted)


def _append(registry: Registry, config: LogSourceConfig, log: str, batches: Iterable[pa.RecordBatch]) -> None:
    with open_namespace(config.namespace, registry=registry) as namespace, namespace.open_writer(log) as writer:
        for batch in batches:
            writer.write_bulk(batch).result()


LOG = Kind(LogSourceConfig, LogSinkConfig, _open_source, _open_sink, _append)
