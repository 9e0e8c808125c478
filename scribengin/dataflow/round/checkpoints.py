"""Taking over a checkpoint: the directory in which a streaming query keeps its state moves to its new owner's epoch.

A checkpoint has a name, which the commit logs hold, and its directory is called `<name>-<epoch of its owner>.<try>`. A
new owner fences the commit logs first; then it renames the directory to its own epoch; then its query starts there. A
query of an owner before it, which knows nothing of that, goes on with paths that are not there any more: what it writes
makes directories anew that nobody reads.

Rules, which the test of all interleavings of three owners holds:
1. The directory with the marker is the checkpoint. The marker is made with the checkpoint and moves with it, so there
   is one; directories that a stale query has made anew have none, whatever they are called.
2. After a rename, look again. Between a look and the rename an owner in between may have moved the checkpoint, and a
   stale query may have made a directory of its old name: then it was that one that was renamed.
3. Nobody renames anything to another's epoch, and nobody moves what it finds under a later one.
4. No name is renamed to twice. So one whose checkpoint is moved while it looks at directory after directory finds
   another list the next time, and takes it for missing only if it is.
5. An owner that has the checkpoint removes directories of earlier epochs without a marker: none of them will have one.
   One that cannot be removed stays, for the next owner to try.

A checkpoint's name is never given twice: what an earlier dataflow of this one's name has left is nobody's. The marker
says which registry it is of, so that nobody takes what belongs to another registry's dataflow of the same name.
"""

from __future__ import annotations

import posixpath
import re
import uuid
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import NamedTuple

from pydantic import ValidationError

from scribengin.base.commit_log import CommitLog
from scribengin.base.failpoints import failpoint
from scribengin.base.model import Part, from_node_name, indented, node_name
from scribengin.dataflow.config import StateConfig
from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.view import DataflowView
from scribengin.dataflow.round.state.silence import SilentAfter
from scribengin.errors import CheckpointMismatch, ConfigInvalid, DataflowError, StaleOwner, SystemUnreachable
from scribengin.filesystems.contract import TreeFileSystem
from scribengin.filesystems.paths import tree_file_system
from scribengin.launcher.local.launcher import scribengin_home
from scribengin.spark.stateful.query_log import BRING_BACK, READ_AGAIN, QueryDirectory
from scribengin_registry.contract import Registry

MARKER = "checkpoint.json"
OUT_OF_REACH = (ConfigInvalid, DataflowError, SystemUnreachable)
"""Why checkpoints can be neither read nor removed: this machine lacks what their file system needs, it refuses, or is
away."""
_MARKER_BYTES_MAX = 64 * 1024


def checkpoint_root(config: StateConfig) -> str:
    """The directory below which the checkpoints of a dataflow of that configuration lie."""
    return config.checkpoints or str(scribengin_home() / "state")


def checkpoints_directory(dataflow: str, config: StateConfig) -> str:
    """Where all those of a dataflow lie."""
    return posixpath.join(checkpoint_root(config), node_name(dataflow))


def checkpoints_of(dataflow: str, task: str, config: StateConfig) -> Checkpoints:
    """Those of one task."""
    directory = posixpath.join(checkpoints_directory(dataflow, config), node_name(task))
    return Checkpoints(*tree_file_system(directory))


def refuse_unusable(config: StateConfig, *, here: bool) -> None:
    """Raises ConfigInvalid if no checkpoint can be made in the directory of that configuration, SystemUnreachable if
    its file system does not answer. `here`: this machine's user writes there; else only that is asked. Changes
    nothing."""
    root = checkpoint_root(config)
    files, path = tree_file_system(root)
    try:
        if here:
            why = files.unwritable(path)
            if why is not None:
                raise ConfigInvalid(f"state.checkpoints: {why}")
        elif "://" in root:
            files.is_directory(path)
    except SystemUnreachable as error:
        raise SystemUnreachable(
            f"state.checkpoints: {root} cannot be reached ({error.__cause__}): have it answer, or name another place"
        ) from error


def registry_begun_ms(registry: Registry) -> int | None:
    """What tells registries apart in the markers of checkpoints."""
    node = registry.find(paths.ROOT)
    return None if node is None else node.created_ms


def named_checkpoints(view: DataflowView) -> set[tuple[str, str]]:
    """The checkpoints that the commit logs of source streams name: the task of each, and its name."""
    tasks = {
        paths.commit_log(view.paths.source_stream(stream.source, stream.name)): name
        for name, task in view.tasks().items()
        for stream in task.sources
    }
    nodes = zip(tasks.items(), view.registry.find_all(list(tasks)), strict=True)
    logs = [(task, CommitLog.from_bytes(node.data, path=path)) for (path, task), node in nodes if node is not None]
    return {(task, log.batch.checkpoint) for task, log in logs if log.batch is not None}


def remove_checkpoints(dataflow: str, config: StateConfig, named: Iterable[tuple[str, str]]) -> None:
    """Delete those checkpoints of a dataflow that nobody owns, as far as this machine sees them. Raises one of
    OUT_OF_REACH."""
    for task, name in set(named):
        checkpoints_of(dataflow, task, config).remove(name)


class StateLeft(NamedTuple):
    """State that stays: below which directory, and why it could not be removed."""

    directory: str
    why: str


def remove_within_reach(dataflow: str, config: StateConfig, named: Iterable[tuple[str, str]]) -> StateLeft | None:
    """The same. What cannot be removed stays; None if all of it has gone."""
    try:
        remove_checkpoints(dataflow, config, named)
    except OUT_OF_REACH as error:
        why = str(error).partition("; ")[0]  # what to do stands behind that, and is meant for whoever tries again
        return StateLeft(checkpoints_directory(dataflow, config), why)
    return None


class CheckpointPlace(NamedTuple):
    """Under whose epoch a directory of a checkpoint's name is, and at which of that owner's tries it came there."""

    epoch: int
    attempt: int


@dataclass(frozen=True, slots=True)
class ListPlaces:
    """Answered by the places of all directories of the checkpoint's name."""


@dataclass(frozen=True, slots=True)
class HasMarker:
    """Answered by whether that directory is there and has the marker."""

    place: CheckpointPlace


@dataclass(frozen=True, slots=True)
class MoveTo:
    """Rename a directory of an earlier owner, if it is still there."""

    earlier: CheckpointPlace
    place: CheckpointPlace


@dataclass(frozen=True, slots=True)
class RemoveStale:
    """Delete a directory that a stale query has made anew."""

    place: CheckpointPlace


Step = ListPlaces | HasMarker | MoveTo | RemoveStale
Answer = tuple[CheckpointPlace, ...] | bool | None
Takeover = Generator[Step, Answer, CheckpointPlace | None]


def find_checkpoint() -> Takeover:
    """The steps by which anybody finds out where a checkpoint is just now. Pure. None: it is not there."""
    return (yield from _look())[0]


def take_checkpoint(epoch: int) -> Takeover:
    """The steps by which the owner under `epoch`, who has fenced the commit logs, gets a checkpoint. Pure.

    Returns where it is then; None: it is not there. Raises StaleOwner when a later owner has it.
    """
    attempt = 0
    while True:
        marked, places = yield from _look()
        if marked is None:
            return None
        if marked.epoch > epoch:
            raise StaleOwner(
                f"the checkpoint is its later owner's, under epoch {marked.epoch}; this one has epoch {epoch}"
            )
        if marked.epoch == epoch:
            for place in places:
                if place.epoch < epoch:
                    yield RemoveStale(place)
            return marked
        attempt += 1
        yield MoveTo(marked, CheckpointPlace(epoch, attempt))


def _look() -> Generator[Step, Answer, tuple[CheckpointPlace | None, tuple[CheckpointPlace, ...]]]:
    """Where the checkpoint is, and the list of places in which it was found."""
    before: Answer = None
    while True:
        found = yield ListPlaces()
        assert isinstance(found, tuple), "the answer to ListPlaces"
        for place in sorted(found, reverse=True):
            if (yield HasMarker(place)):
                return place, found
        if found == before:
            return None, found
        before = found


class CheckpointMark(Part):
    """What stands in the marker: what was chosen with the checkpoint."""

    name: str
    partitions: int
    """Into how many partitions its state was to be divided when it began. What it has by now, its query's log says."""
    registry_ms: int | None = None
    """When the registry began whose commit logs name it (`registry_begun_ms`)."""


@dataclass(frozen=True, slots=True)
class OwnedCheckpoint:
    """A checkpoint in its owner's hands: what its marker says, and where the query keeps what is its own."""

    mark: CheckpointMark
    query: QueryDirectory


@dataclass(frozen=True, slots=True)
class FoundCheckpoint:
    """A checkpoint that was come across, whoever's it is."""

    mark: CheckpointMark
    task: QueryDirectory
    """The directory of its task."""
    dataflow: str
    since_ms: int
    """When its marker was written."""


def checkpoints_below(root: str) -> Iterator[FoundCheckpoint]:
    """All below a directory in which dataflows have theirs, as far as they are whole. Raises SystemUnreachable."""
    files, path = tree_file_system(root)
    for of_dataflow in _directories(files, path):
        for task in _directories(files, of_dataflow):
            for directory in _directories(files, task):
                with suppress(FileNotFoundError, ValueError):  # what else lies there is nobody's business
                    marker = posixpath.join(directory, MARKER)
                    [info] = files.find(marker)
                    mark = CheckpointMark.model_validate_json(files.read(marker, 0, _MARKER_BYTES_MAX))
                    dataflow = from_node_name(posixpath.basename(of_dataflow))
                    yield FoundCheckpoint(mark, QueryDirectory(files, task), dataflow, info.modified_ms)


def _directories(files: TreeFileSystem, path: str) -> list[str]:
    below = [posixpath.join(path, name) for name in files.names(path)]
    return [one for one in below if files.is_directory(one)]


class Checkpoints:
    """The checkpoints of one task, below one directory. Used by one thread."""

    def __init__(self, files: TreeFileSystem, directory: str) -> None:
        """`directory` need not exist."""
        self._files = files
        self._directory = directory

    def begin(self, epoch: int, partitions: int, registry_ms: int | None = None) -> OwnedCheckpoint:
        """A new, empty checkpoint of the owner under `epoch`, under a name that nothing else has."""
        mark = CheckpointMark(name=uuid.uuid4().hex, partitions=partitions, registry_ms=registry_ms)
        owned = self._owned(mark, CheckpointPlace(epoch, 0))
        self._files.make_directories(owned.query.path)
        directory = posixpath.dirname(owned.query.path)
        with closing(self._files.create(posixpath.join(directory, f".{MARKER}"))) as file:
            file.append(indented(mark.model_dump()))
            file.sync()
        self._files.rename(posixpath.join(directory, f".{MARKER}"), posixpath.join(directory, MARKER))
        self._files.sync_directory(directory)
        return owned

    def take(self, name: str, epoch: int) -> OwnedCheckpoint:
        """The checkpoint of that name, moved to `epoch`, whose owner has fenced the commit logs.

        Raises CheckpointMismatch when it is not there or its marker is damaged, StaleOwner when a later owner has it.
        """
        place = self._carried_out(name, take_checkpoint(epoch))
        if place is None:
            raise self._missing(name)
        return self._owned(self._mark(name, place), place)

    def find(self, name: str) -> OwnedCheckpoint | None:
        """The checkpoint of that name where it is just now, whoever has it: its owner may change it, and another one
        move it. None: it is not there. Raises CheckpointMismatch when its marker is damaged."""
        place = self._carried_out(name, find_checkpoint())
        return None if place is None else self._owned(self._mark(name, place), place)

    def remove(self, name: str) -> None:
        """Delete the checkpoint, whose owner is gone, and what stale queries have made of its name. Idempotent."""
        for place in self._places(name):
            path = self._path(name, place)
            for part in (posixpath.join(path, "query"), path):  # the marker goes last: by it the rest is found again
                with failpoint("checkpoint.remove"):
                    self._files.remove_tree(part)
        for directory in (self._directory, posixpath.dirname(self._directory)):  # where another one's is, it stays
            with failpoint("checkpoint.remove_directory"):
                self._files.remove_directory(directory)

    def _carried_out(self, name: str, steps: Takeover) -> CheckpointPlace | None:
        answer: Answer = None
        try:
            while True:
                answer = self._do(name, steps.send(answer))
        except StopIteration as end:
            place: CheckpointPlace | None = end.value
            return place

    def _do(self, name: str, step: Step) -> Answer:
        match step:
            case ListPlaces():
                return self._places(name)
            case HasMarker(place):
                return self._files.size(posixpath.join(self._path(name, place), MARKER)) is not None
            case MoveTo(earlier, place):
                return self._move(self._path(name, earlier), self._path(name, place))
            case RemoveStale(place):
                self._remove_stale(self._path(name, place))
                return None

    def _move(self, path: str, to: str) -> bool:
        try:
            self._files.rename(path, to)
        except FileNotFoundError:
            return False  # the next look says what became of it
        self._files.sync_directory(self._directory)
        return True

    def _remove_stale(self, path: str) -> None:
        # What cannot be removed (no right, a file that NFS keeps for a reader, a snapshot) is nothing to fail for:
        # nobody reads it, and the next take-over meets it again.
        with suppress(DataflowError):
            if self._files.size(posixpath.join(path, MARKER)) is None:  # else a copy that somebody has brought back
                with failpoint("checkpoint.remove_stale"):
                    self._files.remove_tree(path)

    def _places(self, name: str) -> tuple[CheckpointPlace, ...]:
        found = (re.fullmatch(r"(\w+)-(\d+)\.(\d+)", entry) for entry in self._files.names(self._directory))
        return tuple(
            sorted(CheckpointPlace(int(one[2]), int(one[3])) for one in found if one is not None and one[1] == name)
        )

    def _mark(self, name: str, place: CheckpointPlace) -> CheckpointMark:
        path = posixpath.join(self._path(name, place), MARKER)
        try:
            return CheckpointMark.model_validate_json(self._files.read(path, 0, _MARKER_BYTES_MAX))
        except ValidationError:
            raise CheckpointMismatch(f"{self._named(path)} is damaged: {BRING_BACK}") from None

    def _owned(self, mark: CheckpointMark, place: CheckpointPlace) -> OwnedCheckpoint:
        path = posixpath.join(self._path(mark.name, place), "query")
        return OwnedCheckpoint(mark, QueryDirectory(self._files, path))

    def _path(self, name: str, place: CheckpointPlace) -> str:
        return posixpath.join(self._directory, f"{name}-{place.epoch}.{place.attempt}")

    def _named(self, path: str) -> str:
        return str(QueryDirectory(self._files, path))

    def _missing(self, name: str) -> CheckpointMismatch:
        return CheckpointMismatch(
            f"the commit logs name checkpoint {name}, and {self._named(self._directory)} has none of that name: bring "
            f"its directory back from where it was moved or backed up, or {READ_AGAIN}"
        )


@dataclass(frozen=True, slots=True)
class StateOfTask:
    """Where a task has its checkpoints, and into how many partitions a new one is divided; `fixed`: the user said so,
    and one that has another number is divided anew. `silent_after`: the sources that the watermark does not wait for
    once they are silent."""

    checkpoints: Checkpoints
    partitions: int
    fixed: bool
    silent_after: Mapping[str, SilentAfter]
    late_sink: str | None
    """Where late records go: then each range is planned with the watermark of its time."""


def state_of_task(dataflow: str, task: str, config: StateConfig, cores: int) -> StateOfTask:
    """Where a task of a dataflow of that configuration keeps its state, in a worker of so many `cores`."""
    checkpoints = checkpoints_of(dataflow, task, config)
    fixed = config.partitions is not None
    silent_after = {
        source: SilentAfter(one.idle_after_s, round(one.delay_s * 1000))
        for source, one in config.watermarks.items()
        if one.idle_after_s is not None
    }
    late_sink = None if config.late is None else config.late.sink
    return StateOfTask(checkpoints, config.partitions or cores, fixed, silent_after, late_sink)
