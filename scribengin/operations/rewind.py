"""Having a dataflow that is paused or has ended read its sources from another place: new positions, old sinks.

All streams move in one registry transaction that checks every commit log's version, so a crash leaves all of them moved
or none, and an owner that comes in between makes it fail. What the sinks hold stays: records that are read again are
written again. State that was kept from record to record is of what was read, and begins anew: in the same transaction
the commit logs name no checkpoint any more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.commit_log import CommitLog
from scribengin.base.failpoints import failpoint
from scribengin.base.model import Position
from scribengin.base.text.counting import many
from scribengin.connectors import Environment
from scribengin.connectors.contract import SourceStreamDescriptor, StartAt
from scribengin.dataflow.opened import OpenDataflow, OpenedDataflow
from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.descriptors import FINAL_STATES, DataflowStatus, HistoryEvent
from scribengin.dataflow.registry.gone_streams import gone_streams
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.registry.view import DataflowView, Versioned
from scribengin.dataflow.retention_holds import release_all_holds
from scribengin.dataflow.round.checkpoints import StateLeft, checkpoint_root, remove_within_reach
from scribengin.dataflow.tasks import StreamKey, stream_key
from scribengin.errors import (
    CommitTooLarge,
    ConfigInvalid,
    DataflowBusy,
    DataflowNotFound,
    PositionTruncated,
    RewindOvertaken,
    ScribenginError,
)
from scribengin.filesystems.paths import tree_file_system
from scribengin.operations.lifecycle import author, await_masters_gone
from scribengin_registry.client import REQUEST_BYTES_MAX, operation_bytes
from scribengin_registry.compare_and_set import TRIES_MAX, LookAgain, win_race
from scribengin_registry.contract import Check, Create, Delete, Operation, Set
from scribengin_registry.errors import NodeExists, NodeMissing, VersionConflict

TRANSACTION_BYTES_MAX = REQUEST_BYTES_MAX
"""What ZooKeeper takes in one transaction."""
_STREAMS_TOLD_MAX = 20
_TRIES_MAX = 5


@dataclass(frozen=True, slots=True)
class Rewound:
    """One stream: where it was to be read on (None: it was never read), and where it is to be now."""

    task: str
    source: str
    stream: str
    before: Position | None
    after: Position


@dataclass(frozen=True, slots=True)
class AppliedRewind:
    """What has moved, and what state that is forgotten could not be removed (None: all of it has gone)."""

    streams: Sequence[Rewound]
    state_left: StateLeft | None


@dataclass(frozen=True, slots=True)
class _Move:
    """A stream's move, and the commit log as it was found; version None: it has no node."""

    told: Rewound
    stream: SourceStreamDescriptor
    path: str
    log: CommitLog
    version: int | None


class Rewind:
    """The move of all streams of a dataflow, or of one source. Nothing is changed before `apply`."""

    def __init__(
        self,
        view: DataflowView,
        at: StartAt,
        source: str | None,
        clock: Clock = SYSTEM_CLOCK,
        open_dataflow: OpenDataflow = OpenedDataflow,
    ) -> None:
        """Look where everything stands. Raises ConfigInvalid (no such source or place, some sources of a state, or a
        state whose file system cannot be opened here), DataflowBusy (somebody owns a stream, or a round of it is
        undecided), and what opening the sources raises."""
        self._view = view
        self._config = config = view.config_in_force().value
        self._state = config.state
        if self._state is not None and source is not None:
            raise ConfigInvalid(
                f"dataflow '{view.dataflow}' has state, of all its sources: leave --source out, and all of them are "
                "rewound"
            )
        if self._state is not None:
            tree_file_system(checkpoint_root(self._state))  # else it would be refused when all has moved
        if source is not None and source not in config.sources:
            raise ConfigInvalid(
                f"dataflow '{view.dataflow}' has no source '{source}' (it has {', '.join(config.sources)})"
            )
        wanted = {name: value for name, value in config.sources.items() if source in (None, name)}
        environment = Environment(
            registry=view.registry, dataflow=view.dataflow, nodes=STREAM_NODES, clock=clock, has_tasks=lambda: True
        )
        only_sources = config.model_copy(update={"sources": wanted, "sinks": {}})
        self._eras = {name: view.era_of(name) for name in wanted}  # before anything is looked at
        self._at = at
        self._open = partial(open_dataflow, only_sources, environment)
        with self._open() as resources:
            leaving = [name for name, one in resources.sources.items() if one.streams_leave]
            self._gone = {name: gone_streams(view.registry, view.dataflow, name) for name in leaving}
            self._moves = [
                self._move(task, stream, partial(resources.sources[stream.source].position_at, stream, at))
                for task, stream in self._streams(resources)
            ]
        if not self._moves:
            raise ConfigInvalid(f"dataflow '{view.dataflow}' has read nothing yet: there is nothing to rewind")

    @property
    def resets_state(self) -> bool:
        """Whether all that was kept from record to record is forgotten with it, and counted anew from there."""
        return self._state is not None

    @property
    def streams(self) -> list[Rewound]:
        """What is going to move."""
        return [move.told for move in self._moves]

    def apply(self) -> StateLeft | None:
        """Move all streams, or none. Returns what state that is forgotten could not be removed.

        Raises RewindOvertaken when retention has taken what was to be read again, CommitTooLarge, and what looking at
        the sources raises; then all stands where it stood. DataflowBusy when a task has been taken over meanwhile, or
        streams were changed by others: it says whether all was moved by then. DataflowBusy or DataflowNotFound when it
        is deleted meanwhile. And OutcomeUnknown.
        """
        self._status_unless_deleted()
        operations: list[Operation] = [self._operation(move) for move in self._moves]
        self._refuse_if_too_large(operations)
        for room in {move.path.rpartition("/")[0]: None for move in self._moves if move.version is None}:
            win_race(partial(self._make_room, room))
        with self._nothing_held_if_gone():
            versions = self._commit(operations)
            self._keep_or_move_back(versions)
        if self._state is not None:  # the next owner begins a checkpoint of its own
            named = [(move.told.task, move.log.batch.checkpoint) for move in self._moves if move.log.batch is not None]
            # All has moved. What stays is found by `registry check`, as after a crash here.
            return remove_within_reach(self._view.dataflow, self._state, named)
        return None

    @contextmanager
    def _nothing_held_if_gone(self) -> Iterator[None]:
        """Who looks at a log has it keep what the dataflow is to read. A deletion that ended before that look has
        released what was kept, and nobody else does."""
        try:
            yield
        finally:
            with suppress(ScribenginError):  # what became of the rewind is to be said; `registry check` finds the rest
                try:
                    self._view.status()
                except DataflowNotFound:
                    release_all_holds(self._view.registry, self._config)

    def _commit(self, operations: Sequence[Operation]) -> list[int]:
        """The versions of the commit logs. Raises DataflowBusy, RewindOvertaken."""
        guarded: dict[tuple[str, str], Sequence[Operation]] = {}

        def attempt() -> list[int]:
            self._guard(guarded)
            # Of a log that two sources read, the look that came first counts: what changed since is seen by neither.
            guards = {one.path: one for guards in reversed(guarded.values()) for one in guards}
            everything = [*operations, *guards.values(), *self._told()]
            self._refuse_if_too_large(everything)
            try:
                with failpoint("rewind.commit"):
                    versions = self._view.registry.commit(everything)
                self._eras.update(zip(self._sources(), versions[-len(self._sources()) :], strict=True))
                return versions[: len(operations)]
            except (VersionConflict, NodeExists, NodeMissing) as error:
                if error.path not in guards:
                    raise self._busy(error.path) from None
                for key in [key for key, guards in guarded.items() if error.path in {one.path for one in guards}]:
                    del guarded[key]  # the log has got another segment, or has given one up
                raise LookAgain from None

        return win_race(attempt, races=(), tries_max=TRIES_MAX + len(self._moves), exhausted=self._changing)

    def _told(self) -> list[Operation]:
        """The master of a dataflow that somebody lets run just now may know where its streams stood."""
        return [self._view.next_era(source, self._eras[source]) for source in self._sources()]

    def _sources(self) -> list[str]:
        return sorted({move.stream.source for move in self._moves})

    def _busy(self, path: str) -> DataflowBusy:
        """`path`: the node that somebody else has changed, or made."""
        if self._is_source(path):
            return DataflowBusy(
                f"streams of '{self._view.dataflow}' were changed meanwhile by another rewind or by its master: "
                "nothing was rewound; try again"
            )
        return DataflowBusy(
            f"a task of '{self._view.dataflow}' was taken over meanwhile: nothing was rewound; pause it, then try again"
        )

    def _is_source(self, path: str) -> bool:
        return path in [paths.source_streams(self._view.dataflow, source) for source in self._sources()]

    def _changing(self) -> RewindOvertaken:
        return RewindOvertaken(
            f"'{self._view.dataflow}' was not rewound: what it reads kept changing meanwhile, by new segments or old "
            "ones given up; try again"
        )

    def _guard(self, guarded: dict[tuple[str, str], Sequence[Operation]]) -> None:
        """Look at the streams that are not `guarded`, and add what guards each.

        A log is held back for the dataflow only from where that stands, and whoever takes what lies before has looked
        at that a while ago. So nobody may take anything between this look and the transaction, nor after it by what was
        seen before it. Raises RewindOvertaken."""
        if self._at.kind == "latest":
            return
        with self._open() as resources:
            for move in self._moves:
                key = (move.stream.source, move.stream.name)
                if key in guarded:
                    continue
                source = resources.sources[move.stream.source]
                guarded[key] = source.goes_back(move.stream)  # before it is looked
                try:
                    with closing(source.open_reader(move.stream)) as reader:
                        reader.refuse_gone(move.told.after)
                except PositionTruncated as error:
                    raise self._overtaken(error) from None

    def _overtaken(self, error: PositionTruncated) -> RewindOvertaken:
        where = "where it was to go on" if self._at.kind == "latest" else "what it was to read again"
        later = "" if self._at.kind == "latest" else ", or rewind it to a later place"
        return RewindOvertaken(
            f"'{self._view.dataflow}' was not rewound: {where} has gone meanwhile ({error}); try again{later}"
        )

    def _keep_or_move_back(self, versions: Sequence[int]) -> None:
        """Where a system keeps no account of readers, anybody may have taken what was to be read again while the
        positions moved, or made it anew. Raises RewindOvertaken, or why nobody can look; then all was moved back."""
        try:
            with self._open() as resources:
                for move in self._moves:
                    with closing(resources.sources[move.stream.source].open_reader(move.stream)) as reader:
                        reader.refuse_gone(move.told.after)
        except PositionTruncated as error:
            self._move_back(versions, f"to what has gone meanwhile ({error})")
            raise self._overtaken(error) from None
        except ScribenginError as error:
            self._move_back(versions, f"to what cannot be looked at just now ({error})")
            raise

    def _move_back(self, versions: Sequence[int], where: str) -> None:
        """Raises DataflowBusy if somebody has come meanwhile."""
        back: list[Operation] = [
            Delete(move.path, version) if move.version is None else Set(move.path, move.log.to_bytes(), version)
            for move, version in zip(self._moves, versions, strict=True)
        ]
        back += self._told()
        try:
            with failpoint("rewind.back"):
                self._view.registry.commit(back)
        except (VersionConflict, NodeExists, NodeMissing) as error:
            by = "changed by another rewind or by its master" if self._is_source(error.path) else "taken over"
            raise DataflowBusy(
                f"'{self._view.dataflow}' was rewound {where}, and {by} before it could be moved back: pause it, and "
                "rewind it to a later place"
            ) from None

    def _streams(self, resources: OpenedDataflow) -> Iterator[tuple[str, SourceStreamDescriptor]]:
        """All that were read of the sources, and that are to be; those that have left their tasks, too."""
        read: set[StreamKey] = set()
        for name, task in self._view.tasks().items():
            for stream in task.sources:
                if stream.source in resources.sources:
                    read.add(stream_key(stream))
                    yield name, stream
        for source in (name for name, one in resources.sources.items() if one.streams_leave):
            gone = [name for name in self._view.streams_read(source) if (source, name) not in read]
            for name, log in self._view.commit_logs_of(source, gone).items():
                if log.position is not None:
                    yield log.task, SourceStreamDescriptor(source=source, name=name)

    def _move(self, task: str, stream: SourceStreamDescriptor, after: Callable[[Position | None], Position]) -> _Move:
        root = self._view.paths.source_stream(stream.source, stream.name)
        if self._view.registry.find(paths.lock(root)) is not None:
            raise DataflowBusy(
                f"{stream.source}/{stream.name} of '{self._view.dataflow}' is being read: pause the dataflow first"
            )
        path = paths.commit_log(root)
        node = self._view.registry.find(path)
        if node is None:
            new = CommitLog(dataflow=self._view.dataflow, task=task, owner="rewind", generation=0, epoch=0, round=0)
            log = self._gone.get(stream.source, {}).get(stream.name, new)
        else:
            log = CommitLog.from_bytes(node.data, path=path)
        if log.prepared is not None:
            raise DataflowBusy(
                f"a round of {task} is prepared and not decided yet: let '{self._view.dataflow}' run, then pause it"
            )
        told = Rewound(task, stream.source, stream.name, log.position, after(log.position))
        return _Move(told, stream, path, log, None if node is None else node.version)

    def _operation(self, move: _Move) -> Create | Set:
        data = move.log.model_copy(update={"position": move.told.after, "batch": None}).to_bytes()
        return Create(move.path, data) if move.version is None else Set(move.path, data, move.version)

    def _refuse_if_too_large(self, operations: Sequence[Operation]) -> None:
        size = sum(map(operation_bytes, operations))
        if size <= TRANSACTION_BYTES_MAX:
            return
        sources = {move.stream.source for move in self._moves}
        step = "rewind one source after the other (--source)"
        if len(sources) == 1 or self._state is not None:
            step = "submit another dataflow that begins there"
        raise CommitTooLarge(
            f"the positions of a rewind of {many(len(self._moves), 'stream')} are {size:,} bytes with what is checked "
            f"beside them, and they move in one transaction of {TRANSACTION_BYTES_MAX:,} at most: {step}"
        )

    def _make_room(self, path: str) -> None:
        """Make a node, and those above it. A deletion begins by changing the status, and looks for nodes afterwards:
        so it finds these, or they are not made. Raises DataflowNotFound, DataflowBusy, and what a race is."""
        status = self._status_unless_deleted()
        above = [path[:at] for at, letter in enumerate(path) if letter == "/" and at]
        missing = [node for node in (*above, path) if self._view.registry.find(node) is None]
        if missing:
            with failpoint("rewind.create"):
                self._view.registry.commit([Check(self._view.paths.status, status.version), *map(Create, missing)])

    def _status_unless_deleted(self) -> Versioned[DataflowStatus]:
        """Raises DataflowNotFound, and DataflowBusy while it is being deleted."""
        status = self._view.status_found()
        if status.value.state == "deleting":
            raise DataflowBusy(f"dataflow '{self._view.dataflow}' is being deleted: nothing was rewound")
        return status


def refuse_while_it_runs(view: DataflowView) -> None:
    """Raise DataflowBusy unless the dataflow is paused or has ended, and DataflowNotFound."""
    state, name = view.status().state, view.dataflow
    if state == "paused" and view.config_to_edit().value.desired_state == "paused":
        return
    if state not in FINAL_STATES:
        raise DataflowBusy(f"dataflow '{name}' is {state}: `scribengin pause {name}` first")
    await_masters_gone(view)


def rewind(view: DataflowView, at: StartAt, source: str | None) -> AppliedRewind:
    """Move the streams to where that place is now: what was shown before somebody said yes may be gone. Returns from
    where they came, and where they landed.

    A purge that takes the beginning in between is no reason to refuse: there is another beginning then. Nor is a topic
    that is made anew. Raises what Rewind and its `apply` raise; RewindOvertaken if that keeps coming.
    """
    last: RewindOvertaken | None = None
    for _attempt in range(_TRIES_MAX):
        planned = Rewind(view, at, source)
        try:
            left = planned.apply()
        except RewindOvertaken as error:
            if at.kind not in ("earliest", "latest"):
                raise
            last = error
        else:
            return AppliedRewind(planned.streams, left)
    raise RewindOvertaken(f"{last} (it was tried {_TRIES_MAX} times)")


def record(view: DataflowView, moved: Sequence[Rewound], at: StartAt) -> None:
    """Leave a line in the dataflow's history."""
    streams = [
        f"{s.source}/{s.stream} from {position_text(s.before)} to {position_text(s.after)}"
        for s in moved[:_STREAMS_TOLD_MAX]
    ]
    more = len(moved) - len(streams)
    told = ", ".join(streams) + (f" and {more} more" if more else "")
    message = f"to {place_text(at)} by {author()}: {told}"
    event = HistoryEvent(at_ms=SYSTEM_CLOCK.now_ms(), kind="rewound", message=message)
    view.add_history([event])


def place_text(at: StartAt) -> str:
    """Where streams read on, for people: a time as their clocks show it, with its zone."""
    if at.kind != "time":
        return str(at)
    try:
        whole_s, ms = divmod(int(at.value), 1000)
        at_time = datetime.fromtimestamp(whole_s).astimezone().replace(microsecond=ms * 1000)
        return at_time.isoformat(timespec="milliseconds" if ms else "seconds")
    except (ValueError, OverflowError, OSError):  # a year that no calendar has
        return str(at)


def position_text(position: Position | None) -> str:
    """A position in a few words: those of its values that are no names."""
    if position is None:
        return "its start"
    if {"segment", "entry", "slot"} <= set(position):
        return "{segment}/{entry}/{slot}".format(**position)
    text = json.dumps(position)
    return str(position["offset"]) if "offset" in position else text if len(text) < 60 else f"{text[:60]} ..."
