"""Logs hold back for dataflows what these have not committed: a dataflow is a registered reader
(log/retention/holds.py) of each log that it reads, and stands there where the commit log of its stream says. So holding
costs a round nothing.

The name under which it is registered says which logs it reads. So whoever creates one more of them, a sink that gets a
further stream, can register it there before anything is written: there is no moment at which what a dataflow is to
read is nobody's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase

from scribengin.connectors.opening import StreamNodes
from scribengin.errors import LogBusy, LogNotFound
from scribengin.log import LogNamespace

_NAME = re.compile(r"dataflow ([^ .]+)\.(\S+) reads (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class RetentionHold:
    """For whom a log is held back: a source of a dataflow, and which logs that source reads (a name or a pattern)."""

    dataflow: str
    source: str
    logs: str

    @property
    def reader(self) -> str:
        """The name of the registered reader."""
        return f"dataflow {self.dataflow}.{self.source} reads {self.logs}"

    @classmethod
    def of(cls, reader: str) -> RetentionHold | None:
        """Whom the registered reader stands for; None if it is no dataflow's."""
        found = _NAME.fullmatch(reader)
        return None if found is None else cls(*found.groups())


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
            readers = (RetentionHold.of(reader) for reader in namespace.registered_readers(first))
            self.hold_for(namespace, log, readers)

    def hold_for(self, namespace: LogNamespace, log: str, readers: Iterable[RetentionHold | None]) -> None:
        """Hold the log back for those that read it. Raises LogNotFound."""
        for held_by in readers:
            if held_by is not None and fnmatchcase(log, held_by.logs):
                namespace.register_reader(log, held_by.reader, commit_log=self.commit_log(held_by, log))

    def commit_log(self, held_by: RetentionHold, log: str) -> str:
        """The registry path of what says how far the source has come in that log."""
        return self.nodes.commit_log(self.nodes.source_stream(held_by.dataflow, held_by.source, log))


def release_holds(namespace: LogNamespace, dataflow: str) -> Iterator[str]:
    """Hold nothing back for the dataflow any more; yields the logs that did."""
    for log in namespace.names():
        with suppress(LogNotFound):  # deleted since it was listed
            for reader in namespace.registered_readers(log):
                held_by = RetentionHold.of(reader)
                if held_by is not None and held_by.dataflow == dataflow:
                    with suppress(LogBusy):
                        namespace.unregister_reader(log, reader)
                    yield log
