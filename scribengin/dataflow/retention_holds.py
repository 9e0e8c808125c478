"""What logs hold back for a dataflow, seen from outside: what is made sure before it runs, and given up after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from scribengin.base.model import Part
from scribengin.connectors.log.holds import Holds, release_holds
from scribengin.connectors.log.reaching import open_namespace
from scribengin.connectors.log.source import NOUN as LOG
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry import paths
from scribengin.errors import LogNotFound, NamespaceNotBound
from scribengin.log import LogNamespace, RetentionHold
from scribengin_registry.contract import Registry


def register_holds(registry: Registry, config: DataflowConfig) -> None:
    """Have every log that is there and that the dataflow reads keep what it has not read. Idempotent.

    For whoever starts its writers first; otherwise its workers do the same when they take the streams over. Raises
    NamespaceNotBound.
    """
    for name, source in config.sources.items():
        read = source.endpoint()
        if read.noun != LOG or not source.awaited:
            continue
        with open_namespace(read.system, registry=registry) as namespace:
            for log in namespace.names():
                hold = RetentionHold(dataflow=config.name, source=name, pattern=read.name)
                Holds(paths.STREAM_NODES).hold_for(namespace, log, [hold])


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
            if lag.records and lag.reader in _readers_of(namespace, config.name, lag.log):
                found.append(HeldLog(namespace=namespace.path, log=lag.log, records=lag.records))
    return tuple(found)


def _readers_of(namespace: LogNamespace, dataflow: str, log: str) -> set[str]:
    with suppress(LogNotFound):  # deleted since it was listed
        return {hold.reader for hold in namespace.retention_holds(log) if hold.dataflow == dataflow}
    return set()


def release_all_holds(registry: Registry, config: DataflowConfig) -> None:
    """Hold nothing back for the dataflow any more, in no namespace that it reads. Idempotent."""
    for namespace in _namespaces(registry, config):
        for _log in release_holds(namespace, config.name):
            pass


def _namespaces(registry: Registry, config: DataflowConfig) -> Iterator[LogNamespace]:
    """Those that the dataflow reads, each open while it is used."""
    read = [source.endpoint() for source in config.sources.values()]
    for uri in sorted({thing.system for thing in read if thing.noun == LOG}):
        try:
            namespace = open_namespace(uri, registry=registry, awaited=True)  # holds are the registry's alone
        except NamespaceNotBound:
            continue
        with namespace:
            yield namespace
