"""Owning a task: its locks, its commit logs, and the one transaction that is a round's commit.

Rules, each of which the crash tests hold:
1. Fence, then look. `take` rewrites every commit log of the task, version-checked, before anybody acts on what they
   say.
2. A lock is a courtesy, not a fence: it tells operators and other workers who is there. The versions of the commit logs
   are the fence. A lock of a lower generation is broken at once: the master gave the task away because its owner is
   gone.
3. After an unknown outcome nothing is concluded: `sync`, and take over again from oneself.
4. Fencing keeps a prepared round as it is: only the system that decides about it can say what becomes of it.
5. Every change says of whose dataflow it is: it holds that the owner's `member` node stands. Versions begin anew where
   nodes are deleted and made again, with the dataflow; names of its workers never do (numbers.py).
6. Every change holds the eras of the task's sources, too. For a stream that is gone has no nodes any more, and when it
   is back they are made anew: at version 0, and with what was read of it (gone_streams.py). Where another era has
   begun because others' nodes went, the same is sent again under that one: an owner that took over again would run its
   round again, and sinks without transactions have written it already.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from scribengin.base.commit_log import CommitLog, Decision, QueryBatch, Resolution
from scribengin.base.failpoints import failpoint
from scribengin.base.model import Position
from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.gone_streams import gone_ones
from scribengin.errors import CommitTooLarge, DecisionMissing, StaleOwner
from scribengin_registry.compare_and_set import LookAgain, win_race
from scribengin_registry.contract import ANY_VERSION, Check, Create, Delete, Node, Operation, Registry, Set
from scribengin_registry.errors import NodeExists, NodeMissing, VersionConflict

TRANSACTION_BYTES_MAX = 256 * 1024


class TaskCommitLogs:
    """The streams of one task, on behalf of one owner under one generation. Used by one thread."""

    def __init__(
        self,
        registry: Registry,
        dataflow: str,
        task: str,
        owner: str,
        generation: int,
        streams: Sequence[str],
        member: str | None = None,
    ) -> None:
        """`streams` are the registry paths of the task's streams (paths.py); `owner` is unique to this attempt. Once
        the node `member` is gone (its worker's; None: there is no such node) nothing is written any more."""
        self._registry = registry
        self._dataflow = dataflow
        self._task = task
        self.owner = owner
        self.generation = generation
        self._member = member
        self._streams = tuple(streams)
        self._logs: dict[str, CommitLog] = {}
        self._round = 0
        self._versions: dict[str, int] = {}
        self._eras: tuple[Check, ...] = ()

    @property
    def logs(self) -> Mapping[str, CommitLog]:
        """What the commit log of each stream says, as of the last `take` or `commit`."""
        return self._logs

    @property
    def epoch(self) -> int:
        """The epoch of this ownership: higher than any before it on any of the streams."""
        return max(log.epoch for log in self._logs.values())

    @property
    def round(self) -> int:
        """The last round that any of the streams took part in. Asked at every step of an executor."""
        return self._round

    def take(self) -> None:
        """Lock every stream and fence every commit log.

        Raises StaleOwner when a later generation owns one of them, and after some tries what was in the way: a lost
        reply (OutcomeUnknown), or somebody who moves as fast. Then nothing is settled, and `take` may be called again.
        """
        win_race(self._take, races=(VersionConflict, NodeExists, NodeMissing), registry=self._registry)

    def _take(self) -> None:
        self._refuse_if_removed()
        for stream in self._streams:
            self._lock(stream)
        self._fence()

    def begin(self, positions: Mapping[str, Position]) -> None:
        """Write down where streams are read from that have no position yet, before anything is read there.

        Otherwise "latest" would be a later place for every owner that comes before the first commit. Raises
        VersionConflict (this owner was fenced), OutcomeUnknown.
        """
        moved = {path: self._logs[path].model_copy(update={"position": at}) for path, at in positions.items()}
        operations = self._operations(moved)
        with self._as_member(), failpoint("ownership.begin"):
            versions = self._send(operations)
        self._moved(moved, versions)

    def name_batch(self, batch: QueryBatch, streams: Sequence[str]) -> None:
        """Write down in the commit logs of these source streams which checkpoint is the task's, before any batch; or
        the batch of its query that was no round.

        Raises VersionConflict (this owner was fenced), OutcomeUnknown.
        """
        named = {path: self._logs[path].model_copy(update={"batch": batch}) for path in streams}
        operations = self._operations(named)
        with self._as_member(), failpoint("ownership.name_batch"):
            versions = self._send(operations)
        self._moved(named, versions)

    def commit(self, moved: Mapping[str, CommitLog]) -> None:
        """The round's commit: move these commit logs, all or none.

        Raises CommitTooLarge before anything was sent, VersionConflict (this owner was fenced), OutcomeUnknown.
        """
        operations = self._bounded_operations(moved)
        with self._as_member(), failpoint("round.commit"):
            versions = self._send(operations)
        self._moved(moved, versions)

    def prepare(self, moved: Mapping[str, CommitLog], decision: Decision) -> dict[str, CommitLog]:
        """Say in these commit logs what they would become, all or none, and return what they do become once the round
        is decided. Raises as `commit`."""
        prepared = {path: self._logs[path].preparing(log, decision) for path, log in moved.items()}
        operations = self._bounded_operations(prepared)
        with self._as_member(), failpoint("round.prepare"):
            versions = self._send(operations)
        self._moved(prepared, versions)
        return {path: log.forward() for path, log in prepared.items()}

    def resolve(self, resolution: Resolution) -> None:
        """Bring a prepared round to its end, as was decided. Raises VersionConflict (fenced), OutcomeUnknown."""
        operations = self._operations(resolution.changed)
        with self._as_member(), failpoint("ownership.resolve"):
            versions = self._send(operations)
        self._moved(resolution.changed, versions)

    def refuse_if_stale(self) -> None:
        """Raise StaleOwner if the task has a later owner than this one, or is nobody's any more: before a contradiction
        is blamed on anything else."""
        for path, mine in self._logs.items():
            node = self._registry.find(path)
            if node is None:
                raise StaleOwner(f"{path} is gone: {self.owner} owned it under epoch {mine.epoch}")
            log = CommitLog.from_bytes(node.data, path=path)
            if log.epoch != mine.epoch:
                raise StaleOwner(f"{path}: {log.owner} owns it under epoch {log.epoch}; {self.owner} has {mine.epoch}")

    def release(self) -> None:
        """Give the locks back. What the commit logs say stays: it is the next owner's beginning."""
        for stream in self._streams:
            path = paths.lock(stream)
            node = self._registry.find(path)
            if node is not None and _holder(node) == (self.owner, self.generation):
                with failpoint("ownership.release"):
                    self._registry.delete(path, node.version)

    def moved(self, path: str, **changes: object) -> CommitLog:
        """The commit log at `path` as this owner's next round would leave it."""
        return self._logs[path].model_copy(update={"round": self.round + 1, **changes})

    def _send(self, operations: Sequence[Operation]) -> list[int]:
        """Commit this under the eras that there are now, if nothing of this owner's has changed since it looked."""

        def attempt() -> list[int]:
            try:
                return self._registry.commit(self._by_member(operations))
            except VersionConflict as conflict:
                if conflict.path not in {era.path for era in self._eras} or not self._stands_in_new_eras():
                    raise
                raise LookAgain from None

        return win_race(attempt, races=(), exhausted=self._never_at_rest)

    def _stands_in_new_eras(self) -> bool:
        """Whether the commit logs of sources are as this owner has left them; then the eras of now are held.

        They name their owner and its epoch. So one that was made anew is another, though its version may be the same,
        and one that was taken or rewound has another version. Those of sinks are in no era: who writes checks them.
        """
        self._registry.sync()
        eras = self._eras_now()  # before anything is looked at
        for path, mine in self._logs.items():
            if paths.source_and_stream(path) is not None:
                node = self._registry.find(path)
                if node is None or (node.version, node.data) != (self._versions[path], mine.to_bytes()):
                    return False
        self._eras = eras
        return True

    def _never_at_rest(self) -> VersionConflict:
        path = self._eras[0].path
        return VersionConflict(f"{path} keeps changing: nodes of other streams keep being deleted there", path=path)

    def _by_member(self, operations: Sequence[Operation]) -> list[Operation]:
        """The same, and that the owner's worker was not removed, nor nodes of streams since they were looked at."""
        return [*operations, *self._standing(), *self._eras]

    def _standing(self) -> list[Check]:
        return [] if self._member is None else [Check(self._member, ANY_VERSION)]

    @contextmanager
    def _as_member(self) -> Iterator[None]:
        """Around a transaction: raises StaleOwner when it was refused because the owner's worker was removed, and
        VersionConflict when a commit log is gone."""
        try:
            yield
        except NodeMissing as error:
            self._refuse_if_removed()
            if error.path in self._logs:
                raise VersionConflict(f"{error.path} was deleted", path=error.path) from None
            raise

    def _refuse_if_removed(self) -> None:
        if self._member is not None and self._registry.find(self._member) is None:
            raise self._removed(self._member)

    def _removed(self, member: str) -> StaleOwner:
        return StaleOwner(f"{member} is gone: {self.owner} was removed, and task {self._task} is others' now")

    def _bounded_operations(self, moved: Mapping[str, CommitLog]) -> list[Set]:
        operations = self._operations(moved)
        size = sum(len(operation.data) + len(operation.path) for operation in operations)
        if size > TRANSACTION_BYTES_MAX:
            raise CommitTooLarge(
                f"the commit of task {self._task} of {self._dataflow} would be {size} bytes, and the registry takes "
                f"{TRANSACTION_BYTES_MAX}: give the dataflow more tasks, so that each has fewer streams"
            )
        return operations

    def _operations(self, moved: Mapping[str, CommitLog]) -> list[Set]:
        return [Set(path, log.to_bytes(), self._versions[path]) for path, log in moved.items()]

    def _moved(self, moved: Mapping[str, CommitLog], versions: Sequence[int]) -> None:
        self._logs.update(moved)
        self._round = max(log.round for log in self._logs.values())
        self._versions.update(zip(moved, versions[: len(moved)], strict=True))

    def _lock(self, stream: str) -> None:
        path = paths.lock(stream)
        data = json.dumps({"owner": self.owner, "generation": self.generation, "task": self._task}).encode()
        node = self._registry.find(path)
        operations: list[Operation] = [Create(path, data, ephemeral=True)]
        if node is not None:
            holder, generation = _holder(node)
            if (holder, generation) == (
                self.owner,
                self.generation,
            ) and node.owner_session == self._registry.session_id:
                return
            if generation > self.generation:
                raise StaleOwner(
                    f"{path} belongs to {holder} under generation {generation}; {self.owner} has {self.generation}"
                )
            operations.insert(0, Delete(path, node.version))
        elif self._registry.find(stream) is None:
            self._make(stream)
        with self._as_member(), failpoint("ownership.lock"):
            self._registry.commit([*operations, *self._standing()])

    def _make(self, stream: str) -> None:
        """The stream's node and what is missing above it. Where the dataflow was deleted nobody would remove them."""
        missing: list[str] = []
        path = stream
        while path and self._registry.find(path) is None:
            missing.insert(0, path)
            path = path.rpartition("/")[0]
        with self._as_member(), failpoint("ownership.create"):
            self._registry.commit([*map(Create, missing), *self._standing()])

    def _fence(self) -> None:
        """Rewrite every commit log with a higher epoch and this owner's name, in one version-checked transaction."""
        eras = self._eras_now()  # before anything is looked at
        nodes = {stream: self._registry.find(paths.commit_log(stream)) for stream in self._streams}
        gone = self._gone([stream for stream, node in nodes.items() if node is None])
        found = {
            paths.commit_log(stream): gone.get(stream)
            if node is None
            else CommitLog.from_bytes(node.data, path=paths.commit_log(stream))
            for stream, node in nodes.items()
        }
        for path, log in found.items():
            if log is not None:
                self._refuse(path, log)
        last = max((log.epoch for log in found.values() if log is not None), default=0)
        epoch = max(
            self.generation, 1 + last
        )  # generations grow for ever; what stands in a commit log may have been deleted
        fenced = {path: self._taken(log, epoch) for path, log in found.items()}
        operations: list[Operation] = []
        for (path, log), node in zip(fenced.items(), nodes.values(), strict=True):
            operations.append(Create(path, log.to_bytes()) if node is None else Set(path, log.to_bytes(), node.version))
        with self._as_member(), failpoint("ownership.fence"):
            versions = self._registry.commit([*operations, *self._standing(), *eras])
        self._eras = eras
        self._logs = fenced
        self._round = max(log.round for log in fenced.values())
        self._versions = dict(zip(fenced, versions[: len(fenced)], strict=True))

    def _eras_now(self) -> tuple[Check, ...]:
        sources = {stream.rpartition("/")[0] for stream in self._streams if paths.source_and_stream(stream)}
        return tuple(Check(source, self._registry.get(source).version) for source in sorted(sources))

    def _gone(self, streams: Sequence[str]) -> dict[str, CommitLog]:
        """What was read of those of the streams that had gone."""
        names: dict[str, dict[str, str]] = {}
        for path in streams:
            if (named := paths.source_and_stream(path)) is not None:
                names.setdefault(named[0], {})[named[1]] = path
        return {
            of_source[stream]: log
            for source, of_source in names.items()
            for stream, log in gone_ones(self._registry, self._dataflow, source, of_source).items()
        }

    def _refuse(self, path: str, log: CommitLog) -> None:
        if log.generation > self.generation:
            raise StaleOwner(
                f"{path} was taken by {log.owner} under generation {log.generation}; {self.owner} has {self.generation}"
            )
        if log.prepared is not None and (log.dataflow, log.task) != (self._dataflow, self._task):
            raise DecisionMissing(
                f"{path} has a prepared round of task {log.task} of {log.dataflow}, which only that task can bring to "
                f"its end; start {log.dataflow} again, and then stop it in order or delete it"
            )

    def _taken(self, log: CommitLog | None, epoch: int) -> CommitLog:
        mine = {
            "dataflow": self._dataflow,
            "task": self._task,
            "owner": self.owner,
            "generation": self.generation,
            "epoch": epoch,
        }
        # A sink may have had another dataflow before: what that one committed last is still completed by the next
        # owner.
        return CommitLog.model_validate({"round": 0, **(log.model_dump() if log else {}), **mine})


def _holder(node: Node) -> tuple[str, int]:
    try:
        value = json.loads(node.data)
        return str(value["owner"]), int(value["generation"])
    except (ValueError, KeyError, TypeError):
        return "an unreadable lock", 0
