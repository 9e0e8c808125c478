"""Which dataflows have still to read what stood in some logs at a moment, and what they have made of it: those after
them, too.

A stream's records are in order in each log. When another task goes on with a stream its output goes on in another log,
and who reads both would be free to read the later records first. So nobody goes on before this says that all of the
earlier ones were read. Only registered readers are known (log/holds.py): dataflows whose sources hold back what they
read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from scribengin.base.text.counting import many
from scribengin.connectors.log.reaching import open_namespace
from scribengin.connectors.log.source import NOUN as LOG
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry.descriptors import TaskDescriptor
from scribengin.dataflow.registry.view import DataflowView, dataflow_names
from scribengin.errors import DataflowNotFound, LogNotFound
from scribengin.log import DLSN
from scribengin_registry.contract import Registry


@dataclass(frozen=True, slots=True)
class UnreadOutput:
    """So many records of a log, of those that were there, lie before a dataflow."""

    dataflow: str
    log: str
    records: int

    def __str__(self) -> str:
        return f"{self.dataflow} has {many(self.records, 'record')} of log '{self.log}' to read"


@dataclass(frozen=True, slots=True)
class _Mark:
    """A log up to where it went."""

    namespace: str
    log: str
    end: DLSN


class Followers:
    """Who reads what some tasks have written, step by step: what they wrote is marked first; once everybody has read
    that, what those have made of it is marked; and so on, until nobody reads it."""

    def __init__(self, registry: Registry, config: DataflowConfig, tasks: Iterable[TaskDescriptor]) -> None:
        """`tasks` of the dataflow write no more, and all that they wrote is visible."""
        self._registry = registry
        self._dataflow = config.name
        written = {(stream.sink, stream.name) for task in tasks for stream in task.sinks}
        self._marks = list(self._ends(config, written))
        self._steps = 0

    def unread(self) -> tuple[UnreadOutput, ...]:
        """What is still to be read, as far as that is known already; nothing when all of it was read."""
        while self._marks:
            flows = [name for name in dataflow_names(self._registry) if name != self._dataflow]
            readers: set[str] = set()
            behind = [unread for mark in self._marks for unread in self._behind(mark, flows, readers)]
            if behind:
                return tuple(behind)
            self._steps += 1
            circles = self._steps > len(flows)  # dataflows that feed each other: each has had its turn
            self._marks = [] if circles else [mark for reader in sorted(readers) for mark in self._output(reader)]
        return ()

    def _behind(self, mark: _Mark, flows: Sequence[str], readers: set[str]) -> Iterator[UnreadOutput]:
        """The dataflows that have not read the log up to the mark; those that read it at all are added to `readers`."""
        with open_namespace(mark.namespace, registry=self._registry) as namespace, suppress(LogNotFound):
            for hold, position in namespace.retention_holds(mark.log).items():
                if hold.dataflow not in flows:
                    continue
                readers.add(hold.dataflow)
                records = namespace.count(mark.log, position, mark.end) if position < mark.end else 0
                if records:
                    yield UnreadOutput(hold.dataflow, mark.log, records)

    def _output(self, dataflow: str) -> Iterator[_Mark]:
        with suppress(DataflowNotFound):
            yield from self._ends(DataflowView(self._registry, dataflow).config_in_force().value, None)

    def _ends(self, config: DataflowConfig, written: set[tuple[str, str]] | None) -> Iterator[_Mark]:
        """The ends of its sinks' logs: of those that were written, or of all."""
        for name, sink in config.sinks.items():
            thing = sink.endpoint()
            if thing.noun != LOG:
                continue
            with open_namespace(thing.system, registry=self._registry) as namespace:
                below = f"{thing.name}/"
                for log in namespace.names():
                    stream = log.removeprefix(below)
                    if log == stream or not (stream.isdecimal() if written is None else (name, stream) in written):
                        continue
                    with suppress(LogNotFound):
                        yield _Mark(thing.system, log, namespace.end_dlsn(log))
