"""What logs hold back for a dataflow, seen from outside: what is made sure before it runs, and given up after it."""

from __future__ import annotations

from collections.abc import Iterator

from scribengin.base.model import Part
from scribengin.connectors.log.holds import Holds, RetentionHold, release_holds
from scribengin.connectors.log.source import LogSourceConfig
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry import paths
from scribengin.errors import NamespaceNotBound
from scribengin.log import LogNamespace
from scribengin_registry.contract import Registry


def register_holds(registry: Registry, config: DataflowConfig) -> None:
    """Have every log that is there and that the dataflow reads keep what it has not read. Idempotent.

    For whoever starts its writers first; otherwise its workers do the same when they take the streams over. Raises
    NamespaceNotBound.
    """
    for name, source in config.sources.items():
        if not isinstance(source, LogSourceConfig) or not source.retention_hold:
            continue
        with LogNamespace.open(source.namespace, registry=registry) as namespace:
            for log in namespace.names():
                Holds(paths.STREAM_NODES).hold_for(namespace, log, [RetentionHold(config.name, name, source.logs)])


class HeldLog(Part):
    """A log that keeps records for a dataflow which it has not committed."""

    namespace: str
    log: str
    records: int


def retention_holds(registry: Registry, config: DataflowConfig) -> tuple[HeldLog, ...]:
    """What logs hold back for the dataflow now: those in which something lies that it has not committed."""
    found = []
    for namespace in _namespaces(registry, config):
        for lag in namespace.reader_lags():
            held_by = RetentionHold.of(lag.reader)
            if held_by is not None and held_by.dataflow == config.name and lag.records:
                found.append(HeldLog(namespace=namespace.path, log=lag.log, records=lag.records))
    return tuple(found)


def release_all_holds(registry: Registry, config: DataflowConfig) -> None:
    """Hold nothing back for the dataflow any more, in no namespace that it reads. Idempotent."""
    for namespace in _namespaces(registry, config):
        for _log in release_holds(namespace, config.name):
            pass


def _namespaces(registry: Registry, config: DataflowConfig) -> Iterator[LogNamespace]:
    """Those that the dataflow reads, each open while it is used."""
    for uri in sorted({source.namespace for source in config.sources.values() if isinstance(source, LogSourceConfig)}):
        try:
            namespace = LogNamespace.open(uri, registry=registry)
        except NamespaceNotBound:
            continue
        with namespace:
            yield namespace
