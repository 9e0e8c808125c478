"""Cutting the power at every moment of a record, and what recovery makes of it."""

from __future__ import annotations

import json
import os
import queue
import random
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol
from unittest import mock

from scribengin.errors import EndOfStream, RecoveryRefused, ScribenginError
from scribengin.log import LogNamespace, TransactionId
from scribengin.log.format.records import LogRecord
from scribengin.log.metadata.segments import SegmentDescriptor, SegmentsHead
from scribengin.log.store import announced
from scribengin.log.store.layout import read_tail
from scribengin.testing.memory.disk_states import Disk, Operation, Outside, Tree, Write
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin_registry.contract import Registry
from tests.crash.disk_recorder import RecordedDisk
from tests.crash.log_script import COMMIT_LOG, LOG, NAMESPACE, Expectation, all_records, commit_log_of, open_namespace
from tests.crash.recorded_registry import RecordedRegistry, RegistryTree

STORE = "deep/store"
_MACHINES = 4
_STATES_AT_ONCE = 20
AFTER = b"written after the power came back"


@dataclass(frozen=True)
class CrashState:
    """What a power failure left, and what was promised before it."""

    moment: int
    tree: Tree
    nodes: dict[str, bytes]
    expected: Any
    """What the script has said: an Expectation, of a log."""
    certain: int
    """How many records must be there."""


@dataclass
class Moments:
    """Follows a record operation by operation: what the disk, the registry and the promises are at each moment."""

    fsync: bool = True
    disk: Disk = field(default_factory=Disk)
    nodes: dict[str, bytes] = field(default_factory=dict)
    expected: Any = field(default_factory=Expectation)
    shown: int = 0
    """How many records readers have been shown: they may not vanish either."""
    backups: dict[int, dict[str, bytes]] = field(default_factory=dict)
    """What the registry was when the log's last segment had a number, for the last time."""

    def follow(self, operation: Operation) -> None:
        """Let one operation of the record happen."""
        self.disk.apply(operation)
        if isinstance(operation, Outside) and isinstance(operation.event, RegistryTree):
            self.nodes = operation.event.nodes
            if (head := self.head) is not None:
                self.backups[head.max_segment] = self.nodes
        elif isinstance(operation, Outside):
            self.expected = operation.event
        elif isinstance(operation, Write) and operation.path.endswith(".tail"):
            tail = read_tail(operation.data)
            assert tail is not None
            self.shown = max(self.shown, tail.sequence)

    @property
    def certain(self) -> int:
        """Without fsync only completed segments are safe."""
        if self.fsync:
            return max(len(self.expected.certain), self.shown)
        return 0 if self.head is None else self.head.next_sequence

    @property
    def head(self) -> SegmentsHead | None:
        """The head of the log's segments, if there is a log."""
        data = self.nodes.get(f"{NAMESPACE}/logs/flights%2F0/segments")
        return None if data is None else SegmentsHead.from_bytes(data, path="the head")

    def states(self, moment: int, chosen: random.Random, at_most: int) -> Iterator[CrashState]:
        """What a power failure just now may leave."""
        for tree in self.disk.states(chosen, at_most):
            yield CrashState(moment, tree, self.nodes, self.expected, self.certain)


def crash_states(
    operations: list[Operation], seed: int, *, at_most: int, fsync: bool = True, start: Moments | None = None
) -> Iterator[CrashState]:
    """States of all moments of a record, each combination of disk, registry and promises once.

    At most `at_most` a moment, and four times as many while a segment has bytes that are not durable.
    """
    chosen = random.Random(seed)
    moments = start or Moments(fsync)
    seen = set()
    for moment, operation in enumerate(operations):
        moments.follow(operation)
        for state in moments.states(moment, chosen, at_most * (4 if moments.disk.unsynced(".log") else 1)):
            key = hash((*state.tree.items(), *state.nodes.items(), state.expected, state.certain))
            if key not in seen:
                seen.add(key)
                yield state


def states_of_older_registries(operations: list[Operation], seed: int, *, at_most: int) -> Iterator[CrashState]:
    """As `crash_states`, but the registry is what a backup had that was made at some moment before."""
    chosen = random.Random(seed)
    moments = Moments()
    seen = set()
    for moment, operation in enumerate(operations):
        moments.follow(operation)
        for state in moments.states(moment, chosen, at_most):
            for number, nodes in moments.backups.items():
                key = hash((number, *state.tree.items(), *nodes.items()))
                if key not in seen:
                    seen.add(key)
                    yield replace(state, nodes=nodes)


def tree_of(root: Path) -> Tree:
    """A directory as it is."""
    paths = sorted(root.rglob("*"))
    return {str(path.relative_to(root)): None if path.is_dir() else path.read_bytes() for path in paths}


@contextmanager
def instant_syncs() -> Iterator[None]:
    """Machines that are made for a moment need no real disk below them, and their files are those of the record."""
    with (
        mock.patch.object(os, "fsync", return_value=None),
        mock.patch.object(os, "fdatasync", return_value=None),
        mock.patch.object(announced, "is_original", return_value=True),
    ):
        yield


class RestoredMachine(ABC):
    """A machine whose power comes back: a directory and a registry, made to hold a crash state."""

    def __init__(self, directory: Path, registry: Registry) -> None:
        self._directory = directory
        self._runs = 0
        directory.mkdir()
        self.root = directory / "0"
        self.registry = RecordedRegistry(registry)

    def boot(self, state: CrashState) -> None:
        """Hold what the power failure left."""
        shutil.rmtree(self.root, ignore_errors=True)
        self._runs += 1
        self.root = self._directory / str(self._runs)
        self.root.mkdir()
        for path, content in state.tree.items():
            if content is None:
                (self.root / path).mkdir()
            else:
                (self.root / path).write_bytes(content)
        self._restore_nodes(state)

    def wrong(self, state: CrashState) -> str | None:
        """Recover, twice, write on, and say what is wrong with what came of it."""
        try:
            return self._wrong(state)
        except (ScribenginError, OSError) as error:
            return f"{type(error).__name__}: {error}"

    @abstractmethod
    def _restore_nodes(self, state: CrashState) -> None:
        """The registry, which may name places of this boot's directory."""

    @abstractmethod
    def _wrong(self, state: CrashState) -> str | None: ...


class Machine(RestoredMachine):
    """One with a log."""

    def _restore_nodes(self, state: CrashState) -> None:
        nodes = dict(state.nodes)
        if nodes.get(NAMESPACE):
            nodes[NAMESPACE] = json.dumps(json.loads(nodes[NAMESPACE]) | {"location": str(self.root / STORE)}).encode()
        self.registry.restore(nodes)

    def _wrong(self, state: CrashState) -> str | None:
        namespace = self.recovered_namespace()
        sealed = self.recover(namespace)
        records = all_records(namespace)
        wrong: str | None = state.expected.wrong(records, state.certain)
        if wrong is not None or sealed:
            return wrong
        namespace.purge(LOG)  # what the writer's maintenance drops in its own time is no change by recovery
        segments = _segments_without_maintenance(namespace)
        writer = namespace.open_writer(LOG, steal=True, commit_log=COMMIT_LOG)
        now = _segments_without_maintenance(namespace)
        if now != segments or all_records(namespace) != records:
            return f"a second recovery changed the log: {set(segments) ^ set(now)}"
        writer.write(AFTER).result(120)
        writer.close()
        return _wrong_lookups(namespace, records)

    def recovered_namespace(self) -> LogNamespace:
        """The namespace; what the script had not made yet is made now."""
        LogNamespace.bind(NAMESPACE, self.root / STORE, registry=self.registry)
        if self.registry.find(COMMIT_LOG) is None:
            self.registry.create(COMMIT_LOG, commit_log_of(None), parents=True)
        namespace = open_namespace(self.registry)
        if not namespace.exists(LOG):
            namespace.create(LOG)
        return namespace

    def recover(self, namespace: LogNamespace) -> bool:
        """Open a writer, as whoever comes next does, and leave again. Whether the log is sealed."""
        try:
            namespace.open_writer(LOG, steal=True, commit_log=COMMIT_LOG).abort()
        except EndOfStream:
            return True
        return False


class MachineWithOlderRegistry(Machine):
    """One whose registry was restored from a backup when the power came back."""

    def _wrong(self, state: CrashState) -> str | None:
        for _ in range(2):  # it may go back again, behind what was written since
            wrong = self._wrong_files(state)
            if wrong is not None:
                return wrong
            self._restore_nodes(state)
        return self._wrong_files(state)

    def _wrong_files(self, state: CrashState) -> str | None:
        """Open writers, one of which writes, and say which files are not where the registry says, or went."""
        namespace = self.recovered_namespace()
        known, before = namespace.inspect(LOG).metadata_check, self._segments_there()
        named = {(segment.segment, segment.epoch) for segment in known.segments}  # which may be purged
        with suppress(EndOfStream, RecoveryRefused):  # its segment in progress was purged since
            self.recover(namespace)
            with namespace.open_writer(LOG, steal=True, commit_log=COMMIT_LOG) as writer:
                writer.write(AFTER).result(120)
        astray = [str(name) for name in namespace.inspect(LOG).unnamed() if not name.directory.endswith("/aside")]
        if astray:
            return f"no node names {astray}, and nobody set them aside"
        gone = sorted(found for found in before - named - self._segments_there() if found[0] >= known.head.begin)
        return f"{gone} were deleted" if gone else None

    def _segments_there(self) -> set[tuple[int, int]]:
        """Number and epoch of every segment that has a file with bytes, set aside or not."""
        files = [path for path in (self.root / STORE).rglob("*.log") if path.stat().st_size]
        parts = [path.name.partition(".")[0].partition("-") for path in files]
        return {(int(number), int(epoch)) for number, _dash, epoch in parts}


def states_of_recovery(machine: Machine, state: CrashState, *, at_most: int) -> list[CrashState]:
    """Recover a state, and cut the power again at every moment of that."""
    machine.boot(state)
    before = Moments(disk=Disk.of(state.tree), nodes=machine.registry.tree.nodes, expected=state.expected)
    before.shown = state.certain
    with RecordedDisk(machine.root) as disk:
        machine.registry.changed = disk.mark
        namespace = machine.recovered_namespace()
        machine.recover(namespace)
        records = all_records(namespace)  # from here on it is decided, and readers know
        machine.registry.changed = lambda _tree: None
    if records:
        history = state.expected.certain + state.expected.possible
        kept = history[: records[-1].sequence_id + 1]
        disk.mark(replace(state.expected, certain=kept, possible=(), firsts=(records[0].sequence_id,)))
    return list(crash_states(disk.operations, state.moment, at_most=at_most, start=before))


def _segments_without_maintenance(namespace: LogNamespace) -> list[SegmentDescriptor]:
    """The log's segments, without what a writer's maintenance changes in its own time."""
    changes = {"compressed": None, "raw_dropped_ms": None}
    return [segment.model_copy(update=changes) for segment in namespace.segments(LOG)]


def _wrong_lookups(namespace: LogNamespace, records: list[LogRecord]) -> str | None:
    now = all_records(namespace)
    if now[:-1] != records or now[-1].payload != AFTER:
        return "what was written afterwards does not follow"
    if namespace.count(LOG) != len(now):
        return f"{namespace.count(LOG)} records are counted, {len(now)} read"
    wanted = now[len(now) // 2].txid
    with namespace.open_reader(LOG, TransactionId(wanted)) as reader:
        found = reader.read(1)[0].txid
    return None if found == wanted else f"looking up transaction id {wanted} found {found}"


class Bootable(Protocol):
    """A machine that can be made to hold a crash state, and says what is wrong with what comes of it."""

    def boot(self, state: CrashState) -> None: ...

    def wrong(self, state: CrashState) -> str | None: ...


def all_wrong(
    directory: Path,
    states: Sequence[CrashState],
    make: Callable[[Path, Registry], Bootable] = Machine,
) -> list[str]:
    """What is wrong with any of the states, tried on several machines at a time."""
    ensemble = MemoryEnsemble()
    with ExitStack() as stack, ThreadPoolExecutor(_MACHINES) as pool:
        machines: queue.SimpleQueue[Bootable] = queue.SimpleQueue()
        for number in range(_MACHINES):
            session = stack.enter_context(ensemble.connect(f"/machine-{number}"))
            machines.put(make(directory / f"machine-{number}", session))
        stack.enter_context(instant_syncs())

        def tried(state: CrashState) -> str | None:
            machine = machines.get()
            try:
                machine.boot(state)
                return machine.wrong(state)
            finally:
                machines.put(machine)

        found = zip(states, pool.map(tried, states), strict=True)
        return [f"moment {state.moment}: {problem}" for state, problem in found if problem is not None]


def record_of(disk: RecordedDisk) -> list[Operation]:
    """The record so far, after a look that nothing escaped it: the model holds what the directory holds."""
    model = Disk()
    for operation in disk.operations:
        model.apply(operation)
    assert model.whole() == tree_of(disk.root), "something changed the disk unseen"
    return list(disk.operations)


def any_wrong(
    directory: Path,
    states: Sequence[CrashState],
    make: Callable[[Path, Registry], Bootable] = Machine,
) -> bool:
    """Whether something is wrong with any of the states. Once it is, no further ones are tried."""
    for first in range(0, len(states), _STATES_AT_ONCE):
        part = directory / f"from-{first}"
        part.mkdir()
        if all_wrong(part, states[first : first + _STATES_AT_ONCE], make):
            return True
    return False
