"""Mistakes of protocol, put in one at a time: what the simulator is there to find.

Each replaces a step of the engine, or of the connector that the simulation runs, by one that somebody could have
written. `MISTAKES` names them all, each with the seed that caught it last: that is tried first, so that a mistake costs
one schedule. What the seed draws changes with the engine; then the others are tried, and the test says which it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from scribengin.base.commit_log import CommitDescriptor, CommitLog
from scribengin.base.failpoints import failpoint
from scribengin.connectors.contract import Attempt
from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.view import DataflowView, Versioned
from scribengin.dataflow.round.commit_logs import TaskCommitLogs
from scribengin.dataflow.round.owner import TaskOwner
from scribengin.dataflow.round.runner import RoundRunner
from scribengin.master import leadership
from scribengin.master.leadership import Leadership
from scribengin.testing.simulation.streams.connectors import Outputs, _Writer
from scribengin.worker.process import WorkerProcess
from scribengin_registry.contract import ANY_VERSION, Operation, SessionState, Set
from scribengin_registry.errors import OutcomeUnknown

Mistake = Callable[[pytest.MonkeyPatch], None]


def look_without_fencing(patch: pytest.MonkeyPatch) -> None:
    """A new owner reads the commit logs and leaves them as they are: the one before it can still commit."""

    def fence(self: Any) -> None:
        found = {paths.commit_log(stream): self._registry.find(paths.commit_log(stream)) for stream in self._streams}
        if any(node is None for node in found.values()):
            real(self)
            return
        self._logs = {path: CommitLog.from_bytes(node.data, path=path) for path, node in found.items()}
        self._versions = {path: node.version for path, node in found.items()}

    real = TaskCommitLogs._fence
    patch.setattr(TaskCommitLogs, "_fence", fence)


def look_before_fencing(patch: pytest.MonkeyPatch) -> None:
    """Sinks are recovered with what the commit logs said before they were fenced."""

    def take_over(self: Any, **gone: Any) -> None:
        found = [(s, self.ownership._registry.find(p)) for s, p in zip(self.task.sinks, self.sink_logs, strict=True)]
        for stream, node in found:
            if node is not None:
                log = CommitLog.from_bytes(node.data, path=stream.name)
                attempt = Attempt(self.ownership.owner, log.epoch, "", None)
                self._sinks[stream.sink].open_writer(stream, attempt).recover(log.committed)
        patch_recover["off"] = True
        try:
            real(self, **gone)
        finally:
            patch_recover["off"] = False

    def recover(self: Any, committed: CommitDescriptor | None) -> None:
        if not patch_recover["off"]:
            real_recover(self, committed)

    patch_recover = {"off": False}
    real = TaskOwner.take_over
    real_recover = _Writer.recover
    patch.setattr(TaskOwner, "take_over", take_over)
    patch.setattr(_Writer, "recover", recover)


def commit_without_versions(patch: pytest.MonkeyPatch) -> None:
    """The commit does not compare: whoever comes last wins."""

    def commit(self: Any, moved: Mapping[str, CommitLog]) -> None:
        with failpoint("round.commit"):
            versions = self._registry.commit(_whatever_stands(self, moved))
        self._moved(moved, versions)

    patch.setattr(TaskCommitLogs, "commit", commit)


def trust_a_clock(patch: pytest.MonkeyPatch) -> None:
    """An owner commits without comparing as long as, by its clock, its session stands."""

    def commit(self: Any, moved: Mapping[str, CommitLog]) -> None:
        if self._registry.state is not SessionState.CONNECTED:
            real(self, moved)
            return
        with failpoint("round.commit"):
            versions = self._registry.commit(_whatever_stands(self, moved))
        self._moved(moved, versions)

    real = TaskCommitLogs.commit
    patch.setattr(TaskCommitLogs, "commit", commit)


def _whatever_stands(logs: Any, moved: Mapping[str, CommitLog]) -> list[Set]:
    return [replace(one, version=ANY_VERSION) for one in logs._operations(moved)]


def take_an_unknown_outcome_for_done(patch: pytest.MonkeyPatch) -> None:
    """The reply to a commit is lost, and it is taken for committed."""

    def commit(self: Any, moved: Mapping[str, CommitLog]) -> None:
        operations = self._bounded_operations(moved)
        try:
            with failpoint("round.commit"):
                versions = self._registry.commit(self._by_member(operations))
        except OutcomeUnknown:
            versions = [self._versions[path] + 1 for path in moved]
        self._moved(moved, versions)

    patch.setattr(TaskCommitLogs, "commit", commit)


def take_an_unknown_outcome_for_failed(patch: pytest.MonkeyPatch) -> None:
    """The reply to a commit is lost, and what was staged is rolled back."""

    def commit(self: Any, moved: Mapping[str, CommitLog]) -> None:
        try:
            real(self, moved)
        except OutcomeUnknown:
            raise RolledBack from None

    def round_commit(self: Any, planned: Any, descriptors: Any) -> int | None:
        try:
            return real_round(self, planned, descriptors)
        except RolledBack:
            for writer in self._owned.stream_writers.values():
                writer.rollback()
            self._owning = True
            return None

    class RolledBack(Exception):
        pass

    real = TaskCommitLogs.commit
    real_round = RoundRunner._commit
    patch.setattr(TaskCommitLogs, "commit", commit)
    patch.setattr(RoundRunner, "_commit", round_commit)


def commit_again_after_an_unknown_outcome(patch: pytest.MonkeyPatch) -> None:
    """The reply to a commit is lost, and it is sent once more without comparing."""

    def commit(self: Any, moved: Mapping[str, CommitLog]) -> None:
        try:
            real(self, moved)
        except OutcomeUnknown:
            self._moved(moved, self._registry.commit(_whatever_stands(self, moved)))

    real = TaskCommitLogs.commit
    patch.setattr(TaskCommitLogs, "commit", commit)


def positions_first(patch: pytest.MonkeyPatch) -> None:
    """Two transactions instead of one: the sources' commit logs move before the sinks'."""
    _split(patch, first="/sources/")


def outputs_first(patch: pytest.MonkeyPatch) -> None:
    """Two transactions instead of one: the sinks' commit logs move before the sources'."""
    _split(patch, first="/sinks/")


def _split(patch: pytest.MonkeyPatch, first: str) -> None:
    def commit(self: Any, moved: Mapping[str, CommitLog]) -> None:
        for part in (True, False):
            some = {path: log for path, log in moved.items() if (first in path) is part}
            if some:
                real(self, some)

    real = TaskCommitLogs.commit
    patch.setattr(TaskCommitLogs, "commit", commit)


def take_from_later_generations(patch: pytest.MonkeyPatch) -> None:
    """An owner of an earlier assignment, whose worker was removed, takes the task back from a later one."""
    patch.setattr(TaskCommitLogs, "_refuse_if_removed", lambda _self: None)
    patch.setattr(TaskCommitLogs, "_standing", lambda _self: [])
    patch.setattr(TaskCommitLogs, "_refuse", lambda _self, _path, _log: None)


def same_epoch_again(patch: pytest.MonkeyPatch) -> None:
    """Taking over leaves the epoch as it is."""

    def taken(self: Any, log: CommitLog | None, epoch: int) -> CommitLog:
        return real(self, log, epoch if log is None else log.epoch)

    real = TaskCommitLogs._taken
    patch.setattr(TaskCommitLogs, "_taken", taken)


def complete_twice(patch: pytest.MonkeyPatch) -> None:
    """A sink completes what it has completed already."""

    def complete(self: Any, name: str, token: str) -> None:
        stream = self.streams[name]
        if token in stream.completed:
            self._seen(name, kept[token])
            return
        kept[token] = stream.staged[token][1] if token in stream.staged else ()
        real(self, name, token)

    kept: dict[str, tuple[bytes, ...]] = {}
    real = Outputs.complete
    patch.setattr(Outputs, "complete", complete)


def never_complete_for_others(patch: pytest.MonkeyPatch) -> None:
    """A new owner does not complete what the one before it has committed."""

    def recover(self: Any, _committed: CommitDescriptor | None) -> None:
        real(self, None)

    real = _Writer.recover
    patch.setattr(_Writer, "recover", recover)


def leave_what_others_staged(patch: pytest.MonkeyPatch) -> None:
    """A new owner does not roll back what the one before it has staged."""
    patch.setattr(Outputs, "staged_before", lambda _self, _name, _epoch: [])


def stage_past_the_fence(patch: pytest.MonkeyPatch) -> None:
    """A sink lets owners stage that were fenced."""

    def stage(self: Any, name: str, _epoch: int, payloads: tuple[bytes, ...]) -> str:
        return real(self, name, self.streams[name].epoch, payloads)

    real = Outputs.stage
    patch.setattr(Outputs, "stage", stage)


def visible_when_staged(patch: pytest.MonkeyPatch) -> None:
    """Readers see what is staged before it is committed."""

    def prepare(self: Any) -> CommitDescriptor | None:
        descriptor = real(self)
        if descriptor is not None:
            self._outputs.complete(self._name, str(descriptor.data["token"]))
        return descriptor

    real = _Writer.prepare_commit
    patch.setattr(_Writer, "prepare_commit", prepare)


def prepared_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    """A sink says that its part is durable, and makes it so when it completes."""

    def prepare(self: Any) -> CommitDescriptor | None:
        if not self._written:
            return None
        promised[0] += 1
        token = f"promised-{promised[0]}"
        self.later = {**getattr(self, "later", {}), token: (tuple(self._written), self._epoch)}
        self._written = []
        return CommitDescriptor(kind="memory", records=0, data={"token": token})

    def complete(self: Any, committed: CommitDescriptor) -> None:
        token = str(committed.data["token"])
        kept = getattr(self, "later", {}).get(token)
        if kept is not None:
            self._outputs.streams[self._name].staged[token] = (kept[1], kept[0])
        real(self, committed)

    promised = [0]
    real = _Writer.complete_commit
    patch.setattr(_Writer, "prepare_commit", prepare)
    patch.setattr(_Writer, "complete_commit", complete)


def place_without_the_head(patch: pytest.MonkeyPatch) -> None:
    """A master changes the placement without comparing the head's version: two may lead."""

    def commit(self: Any, head: Versioned[Any], operations: Sequence[Operation]) -> Versioned[Any]:
        found = self.registry.find(self.paths.placement)
        return real(self, Versioned(head.value, found.version), operations)

    real = DataflowView.commit_placement
    patch.setattr(DataflowView, "commit_placement", commit)


def assign_under_the_same_generation(patch: pytest.MonkeyPatch) -> None:
    """A master gives a task to another worker, and says that it is the same assignment."""

    def operations(view: Any, instructions: Any) -> list[Operation]:
        return real(view, [replace(i, generation=1) if hasattr(i, "generation") else i for i in instructions])

    real = leadership.operations_for
    patch.setattr(leadership, "operations_for", operations)


def watch_once(patch: pytest.MonkeyPatch) -> None:
    """A worker reads again what it is assigned, and sets no watch again."""

    def look(self: Any) -> None:
        if self._looks:
            patch_watch = self._on_watch
            self._on_watch = None
            try:
                real(self)
            finally:
                self._on_watch = patch_watch
        else:
            self._looks = 1
            real(self)

    patch.setattr(WorkerProcess, "_looks", 0, raising=False)
    real = WorkerProcess._look
    patch.setattr(WorkerProcess, "_look", look)


def go_on_after_a_lost_reply(patch: pytest.MonkeyPatch) -> None:
    """A master that does not know what was written goes on as if it were."""

    def do(self: Any, instructions: Any) -> bool:
        try:
            self._carry_out(instructions)
        except OutcomeUnknown:
            found = self._view.placement_head()
            self._head = found
        return True

    patch.setattr(Leadership, "_do", do)


def positions_from_memory(patch: pytest.MonkeyPatch) -> None:
    """An owner that takes over again reads on from where it was, and not from what was committed."""

    def position(self: Any, source: Any) -> Any:
        return self.__dict__.setdefault("_at", {}).get(source.log_path) or real(self, source)

    def plan(self: Any) -> Any:
        planned = real_plan(self)
        self.__dict__.setdefault("_at", {}).update({path: one.end for path, one in planned.items()})
        return planned

    real = RoundRunner._position
    real_plan = RoundRunner._plan
    patch.setattr(RoundRunner, "_position", position)
    patch.setattr(RoundRunner, "_plan", plan)


MISTAKES: dict[Mistake, int] = {
    look_without_fencing: 51,
    look_before_fencing: 73,
    commit_without_versions: 226,
    trust_a_clock: 226,
    take_an_unknown_outcome_for_done: 7,
    take_an_unknown_outcome_for_failed: 12,
    commit_again_after_an_unknown_outcome: 51,
    positions_first: 7,
    outputs_first: 7,
    take_from_later_generations: 188,
    same_epoch_again: 4,
    complete_twice: 0,
    never_complete_for_others: 4,
    leave_what_others_staged: 7,
    stage_past_the_fence: 51,
    visible_when_staged: 7,
    prepared_before_it_is_durable: 12,
    place_without_the_head: 325,
    assign_under_the_same_generation: 0,
    watch_once: 0,
    go_on_after_a_lost_reply: 13,
    positions_from_memory: 7,
}
