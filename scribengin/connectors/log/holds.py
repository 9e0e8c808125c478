"""Logs hold back for dataflows what these have not committed: a dataflow is a registered reader
(log/retention/holds.py) of each log that it reads, and stands there where the commit log of its stream says. So holding
costs a round nothing.

What is registered says which logs it reads, too. So whoever creates one more of them, a sink that gets a
further stream, can register it there before anything is written: there is no moment at which what a dataflow is to
read is nobody's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase

from scribengin.connectors.opening import StreamNodes
from scribengin.errors import LogBusy, LogNotFound
from scribengin.log import LogNamespace, RetentionHold


@dataclass(frozen=True, slots=True)
class Holds:
    """Registers dataflows as readers of logs. `nodes`: where the registry has what says how far a source has come."""

    nodes: StreamNodes

    def create_stream(self, namespace: LogNamespace, sink: str, log: str) -> None:
        """Create one more log of the sink below `sink`: configured as its first one, held back for the same readers if
        they read it, too. Raises LogExists and the like."""
        first = f"{sink}/0"
        if log == first or not namespace.exists(first):
            namespace.create(log)
            return
        namespace.create(log, namespace.info(first).log.config)
        self.hold_as_first(namespace, sink, log)

    def hold_as_first(self, namespace: LogNamespace, sink: str, log: str) -> None:
        """Hold the log back for those readers of the sink's first log that read it, too. Idempotent."""
        first = f"{sink}/0"
        if log != first and namespace.exists(first):
            self.hold_for(namespace, log, namespace.retention_holds(first))

    def hold_for(self, namespace: LogNamespace, log: str, readers: Iterable[RetentionHold]) -> None:
        """Hold the log back for those that read it. Raises LogNotFound."""
        for hold in readers:
            if fnmatchcase(log, hold.pattern):
                namespace.register_hold(log, hold, commit_log=self.commit_log(hold, log))

    def commit_log(self, hold: RetentionHold, log: str) -> str:
        """The registry path of what says how far the source has come in that log."""
        return self.nodes.commit_log(self.nodes.source_stream(hold.dataflow, hold.source, log))


def release_holds(namespace: LogNamespace, dataflow: str) -> Iterator[str]:
    """Hold nothing back for the dataflow any more; yields the logs that did."""
    for log in namespace.names():
        with suppress(LogNotFound):  # deleted since it was listed
            for hold in namespace.retention_holds(log):
                if hold.dataflow == dataflow:
                    with suppress(LogBusy):
                        namespace.unregister_reader(log, hold.reader)
                    yield log
