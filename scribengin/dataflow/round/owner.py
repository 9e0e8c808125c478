"""The streams of a task in the hands of an owner: taken over, held, given back. Rounds are round.py's.

Taking over is one order, whoever does it and whatever came before: lock, fence the commit logs, bring a prepared round
to its end (fence its transaction coordinator, ask it, write down what it said), recover every sink with what its commit
log then names. Every step may be the last before a crash, and the next owner begins at the first again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from scribengin.base.commit_log import CommitLog, resolve_prepared
from scribengin.connectors.contract import Attempt, Sink, SinkStreamDescriptor, SinkStreamWriter, TransactionCoordinator
from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.descriptors import TaskDescriptor
from scribengin.dataflow.round.commit_logs import TaskCommitLogs
from scribengin.dataflow.round.task_sink import TaskSink
from scribengin.errors import ConfigInvalid, DecisionMissing, ScribenginError
from scribengin_registry.compare_and_set import win_race
from scribengin_registry.contract import Registry
from scribengin_registry.errors import OutcomeUnknown, VersionConflict

_TRIES_MAX = 5


class TaskOwner:
    """The commit logs, sink writers and coordinated transaction of one task, on behalf of one owner. Used by one
    thread."""

    def __init__(
        self,
        registry: Registry,
        dataflow: str,
        task: TaskDescriptor,
        *,
        owner: str,
        generation: int,
        sinks: Mapping[str, Sink],
        member: str | None = None,
    ) -> None:
        """`sinks` are open and stay the caller's; `member`: see TaskCommitLogs. Raises ConfigInvalid when more
        than one system would decide."""
        self.task = task
        self._sinks = sinks
        self._coordinated = coordinated_stream(sinks, task.sinks)
        flow_paths = paths.DataflowPaths(dataflow)
        sources = [flow_paths.source_stream(s.source, s.name) for s in task.sources]
        streams = [paths.sink_stream(s.resource, s.name) for s in task.sinks]
        self.source_logs = tuple(paths.commit_log(path) for path in sources)
        """The paths of the commit logs, in the order of the task's streams."""
        self.sink_logs = tuple(paths.commit_log(path) for path in streams)
        self.ownership = TaskCommitLogs(registry, dataflow, task.name, owner, generation, [*sources, *streams], member)
        self.writers: dict[str, TaskSink] = {}
        """By sink."""
        self.coordinator: TransactionCoordinator | None = None

    @property
    def logs(self) -> Mapping[str, CommitLog]:
        """What the commit logs say."""
        return self.ownership.logs

    def take_over(self, *, gone: tuple[type[ScribenginError], ...] = ()) -> None:
        """Afterwards nothing is staged or prepared, and all that was committed is visible; but for streams of sinks
        whose opening or recovering raises one of `gone`: what was deleted has nothing to complete.

        Raises StaleOwner, DecisionMissing, SystemUnreachable, and what opening and recovering the sinks raises.
        """
        # take() says who owns it now, and what the commit logs say
        win_race(self._take_and_decide, races=(OutcomeUnknown, VersionConflict), tries_max=_TRIES_MAX)
        for stream, log_path in zip(self.task.sinks, self.sink_logs, strict=True):
            attempt = Attempt(self.ownership.owner, self.ownership.epoch, log_path, self.coordinator)
            with suppress(*gone):
                writer = self._sinks[stream.sink].open_writer(stream, attempt)
                self.writers.setdefault(stream.sink, TaskSink()).add(stream, log_path, writer)
                writer.recover(self.logs[log_path].committed)

    @property
    def stream_writers(self) -> dict[str, SinkStreamWriter]:
        """The writers of all sinks, by the path of the commit log."""
        return {log_path: writer for sink in self.writers.values() for log_path, writer in sink.writers.items()}

    def _take_and_decide(self) -> None:
        self.disown()
        self.ownership.take()
        self._decide()

    def disown(self) -> None:
        """Close the writers and the transaction; what is staged or prepared stays for `take_over`. Idempotent."""
        writers, self.writers = self.stream_writers, {}
        coordinator, self.coordinator = self.coordinator, None
        try:
            for writer in writers.values():
                writer.close()
        finally:
            if coordinator is not None:
                coordinator.close()

    def release(self) -> None:
        """Give the task back between rounds: close the writers, then the locks."""
        self.disown()
        self.ownership.release()

    def _decide(self) -> None:
        if self._coordinated is None:
            prepared = sorted(path for path, log in self.logs.items() if log.prepared is not None)
            if prepared:
                raise DecisionMissing(
                    f"{prepared[0]} has a prepared round, and no sink of task {self.task.name} decides any more; give "
                    "its sink the configuration again that it had"
                )
            return
        self.coordinator = self._sinks[self._coordinated.sink].open_coordinator(self._coordinated, self.task.name)
        said = self.coordinator.recover()
        try:
            resolution = resolve_prepared(self.logs, self.coordinator.name, said)
        except DecisionMissing:
            self.ownership.refuse_if_stale()  # a later owner's decision is no contradiction
            raise
        if resolution.changed:
            self.ownership.resolve(resolution)
        if resolution.missing:
            self.coordinator.establish(resolution.last)


def coordinated_stream(
    sinks: Mapping[str, Sink], streams: Sequence[SinkStreamDescriptor]
) -> SinkStreamDescriptor | None:
    """Of the streams of a task, the first whose system decides about rounds. Raises ConfigInvalid for two systems."""
    coordinated = [(system, one) for one in streams if (system := sinks[one.sink].coordinator_id(one)) is not None]
    if not coordinated:
        return None
    first, stream = coordinated[0]
    other = next((one for one in coordinated if one[0] != first), None)
    if other is not None:
        raise ConfigInvalid(
            f"sinks '{stream.sink}' ({first}) and '{other[1].sink}' ({other[0]}) cannot commit together: each has "
            "transactions of its own. Write to one cluster only, or set `guarantee: at_least_once` for one of them"
        )
    return stream
