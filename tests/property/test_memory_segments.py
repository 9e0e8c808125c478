"""The segment store in memory against the one of files: the same random history on both, the same answers and bytes.

And what only the one in memory can be told to do: to lose power, to lose what was not synced, to be full, to be away.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scribengin.errors import LogNotFound, LogWriteFailed, ScribenginError, StoreNotMounted
from scribengin.log import LogConfig, LogNamespace
from scribengin.log.format.entry import EntryHeader, read_header
from scribengin.log.store.contract import SegmentName, SegmentStore, SegmentView
from scribengin.log.store.file import FileSegmentStore
from scribengin.log.store.index import EntryPlace, walk
from scribengin.testing.conformance.segments import Writing
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import payloads_read, records_entry
from scribengin.testing.memory.disk import MemoryDisk, disk_named
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin.testing.memory.segments import MEMORY_STORE, MemorySegmentStore
from tests.temporary import temporary_directory

NAME = SegmentName("log", 1, 1)
NAMES = [SegmentName("log", segment, epoch) for segment in (1, 2) for epoch in (1, 2)] + [
    NAME.copied("lz4-aa"),
    SegmentName("log/aside", 1, 1),
    SegmentName("other", 1, 1),
]
LOG = "words"


class Side:
    """One store, with what is open of it."""

    def __init__(self, store: SegmentStore) -> None:
        self.store = store
        self.writings: list[Writing] = []
        self.views: list[SegmentView] = []

    def act(self, chance: random.Random) -> object:
        """The next step of a history, and what came of it."""
        store, name, to = self.store, chance.choice(NAMES), chance.choice(NAMES)
        size, at, length = chance.choice((0, 10, 700, 70_000)), chance.randrange(3000), chance.choice((1, 64, 100_000))
        writing = chance.choice(self.writings) if self.writings else None
        view = chance.choice(self.views) if self.views else None
        acts: list[Callable[[], object]] = [
            lambda: store.create_log(name.directory),
            lambda: store.create(name, fsync=False).close(),
            lambda: self.writings.append(Writing(store.create(name, fsync=True))),
            lambda: self.views.append(store.open(name, from_disk=size == 0)),
            lambda: store.fence(name),
            lambda: store.make_durable(name),
            lambda: store.load_index(name, "keys"),
            lambda: store.save_index(name, bytes(size), "keys"),
            lambda: store.names(name.directory),
            lambda: store.announce(name),
            lambda: store.announced(name.directory),
            lambda: store.remove(name),
            lambda: store.move(name, to) if name != to and size == 0 else None,
            lambda: store.delete_log(name.directory) if size == at % 7 == 0 else None,
        ]
        if writing is not None:
            acts += [lambda: writing.append(records_entry([bytes(size)])), writing.appender.make_durable] * 3
            acts += [lambda: writing.write(records_entry([bytes(size)])), writing.appender.sync]
        if view is not None:
            acts += [view.tail, view.size, lambda: view.read(at, length).to_pybytes()] * 2
        try:
            return chance.choice(acts)()
        except ScribenginError as error:
            return type(error).__name__


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_same_history_has_the_same_answers(seed: int) -> None:
    with temporary_directory() as directory:
        real, memory = Side(FileSegmentStore(Path(directory))), Side(MemorySegmentStore(MemoryDisk("history")))
        chances = random.Random(seed), random.Random(seed)
        for step in range(60):
            answers = real.act(chances[0]), memory.act(chances[1])
            assert answers[0] == answers[1], f"step {step}"
        for side in (real, memory):
            for writing in side.writings:
                writing.appender.close()
            for view in side.views:
                view.close()


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32), synced=st.integers(0, 3), late=st.integers(0, 3))
def test_a_power_failure_takes_nothing_that_was_synced_and_may_tear_the_rest(seed: int, synced: int, late: int) -> None:
    disk = MemoryDisk("power")
    store = MemorySegmentStore(disk)
    store.create_log("log")
    writing = Writing(store.create(NAME, fsync=True))
    for number in range(synced):
        writing.append(records_entry([bytes([number]) * 600]))
    certain = writing.at
    for number in range(late):
        writing.write(records_entry([bytes([number]) * 600]))
    disk.crash(seed)
    with pytest.raises(LogWriteFailed, match="cannot"):
        writing.append(records_entry([b"by a process that is dead"]))
    view = store.open(NAME)
    places = list(walk(view, 0, certain.end))
    assert len(places) == synced
    assert all(isinstance(place, EntryPlace) for place in places)
    assert certain.end <= view.size() <= writing.at.end
    tail = view.tail()
    assert tail is None or tail.end <= certain.end


def test_every_way_of_losing_what_was_not_synced_is_met() -> None:
    met = {what_is_left_of_a_late_entry(seed) for seed in range(200)}
    assert met == {"whole", "gone", "torn"}


def what_is_left_of_a_late_entry(seed: int) -> str:
    """An entry of some sectors that was written, and not synced."""
    disk = MemoryDisk("ways")
    store = MemorySegmentStore(disk)
    store.create_log("log")
    writing = Writing(store.create(NAME, fsync=True))
    writing.write(records_entry([b"x" * 2000]))
    disk.crash(seed)
    data = store.open(NAME).read(0, writing.at.end)
    if not data.size or not any(data.to_pybytes()):
        return "gone"
    header = read_header(data)
    whole = isinstance(header, EntryHeader) and data.to_pybytes().count(b"x") >= 2000
    return "whole" if whole else "torn"


def test_names_that_were_not_synced_may_vanish_and_no_others() -> None:
    left = set()
    for seed in range(50):
        disk = MemoryDisk("names")
        store = MemorySegmentStore(disk)
        store.create_log("log")
        store.create(NAME, fsync=True).close()
        store.save_index(NAME, b"index")  # a hint: nobody syncs its name
        disk.crash(seed)
        assert store.names("log") == [NAME]
        assert store.open(NAME).size() == 0
        left.add(store.load_index(NAME) != b"")
    assert left == {True, False}


def test_a_failed_sync_loses_what_it_should_have_kept_and_the_next_one_says_nothing() -> None:
    disk = MemoryDisk("failing")
    store = MemorySegmentStore(disk)
    store.create_log("log")
    writing = Writing(store.create(NAME, fsync=True))
    writing.append(records_entry([b"kept"]))
    kept = writing.at.end
    writing.write(records_entry([b"lost"]))
    lost: list[int] = []
    with (
        at_failpoint("log.segment_sync:before", lambda _stop: lost.append(disk.lose_unsynced(0))),
        pytest.raises(LogWriteFailed, match="Input/output error"),
    ):
        writing.appender.sync()
    writing.appender.sync()  # the pages are clean, says the kernel
    store.make_durable(NAME)
    cached, there = store.open(NAME), store.open(NAME, from_disk=True)
    assert cached.read(kept, 64) != there.read(kept, 64)
    assert not any(there.read(kept, 10_000).to_pybytes())
    disk.crash(0)
    assert not any(store.open(NAME).read(kept, 10_000).to_pybytes())


def test_a_writer_is_told_once_of_what_the_disk_refused_since_whoever_was_told_before() -> None:
    disk = MemoryDisk("told")
    store = MemorySegmentStore(disk)
    store.create_log("log")
    writing = Writing(store.create(NAME, fsync=False))
    writing.append(records_entry([b"x"]))
    assert disk.lose_unsynced(1) == 1
    store.make_durable(NAME)  # opened since
    with pytest.raises(LogWriteFailed, match="Input/output error"):
        writing.appender.make_durable()
    writing.appender.make_durable()


def test_a_full_disk_takes_what_fits_and_has_room_again() -> None:
    disk = MemoryDisk("full")
    store = MemorySegmentStore(disk)
    store.create_log("log")
    other = SegmentName("log", 2, 1)
    Writing(store.create(other, fsync=True)).append(records_entry([bytes(5000)]))
    writing = Writing(store.create(NAME, fsync=True))
    disk.room_bytes = 100
    with pytest.raises(LogWriteFailed, match="No space left"):
        writing.append(records_entry([bytes(5000)]))
    assert store.open(NAME).size() == 100
    assert not store.save_index(NAME, b"index")
    store.remove(other)
    assert store.save_index(NAME, b"index")


def test_another_disk_in_its_place_is_no_empty_one() -> None:
    disk = MemoryDisk("away")
    with MemoryEnsemble().connect() as registry:
        LogNamespace.bind("/logs", disk.name, registry=registry, store=MEMORY_STORE)
        with LogNamespace.open("/logs", registry=registry) as namespace:
            namespace.create(LOG)
            with namespace.open_writer(LOG) as writer:
                writer.write(b"a").result()
            disk.mounted = False
            with pytest.raises(StoreNotMounted):
                payloads_read(namespace, LOG)
            with pytest.raises(StoreNotMounted):
                namespace.delete(LOG)
            disk.mounted = True
            assert payloads_read(namespace, LOG) == [b"a"]


@pytest.mark.parametrize("seed", range(30))
def test_a_log_comes_back_from_power_failures_with_all_that_was_acknowledged(seed: int) -> None:
    chance, disk = random.Random(seed), MemoryDisk("recovery")
    acknowledged: list[bytes] = []
    with MemoryEnsemble().connect() as registry:
        LogNamespace.bind("/logs", disk.name, registry=registry, store=MEMORY_STORE)
        config = LogConfig(segment_bytes_max=4096, check_txids=False)
        with LogNamespace.open("/logs", registry=registry, config=config) as namespace:
            namespace.create(LOG)
            for boot in range(4):
                writer = namespace.open_writer(LOG, steal=True)
                for number in range(chance.randrange(20)):
                    payload = b"%d.%d " % (boot, number) * chance.choice((1, 200))
                    writer.write(payload).result()
                    acknowledged.append(payload)
                disk.crash(chance.randrange(2**32))
                writer.abort()
            namespace.open_writer(LOG, steal=True).close()
            assert payloads_read(namespace, LOG) == acknowledged


def test_a_writer_that_was_taken_over_and_goes_on_late_acknowledges_nothing() -> None:
    disk = MemoryDisk("late")
    with MemoryEnsemble().connect() as registry:
        LogNamespace.bind("/logs", disk.name, registry=registry, store=MEMORY_STORE)
        with (
            LogNamespace.open("/logs", registry=registry) as first,
            LogNamespace.open("/logs", registry=registry) as two,
        ):
            first.create(LOG)
            stale = first.open_writer(LOG)
            stale.write(b"1").result()
            with two.open_writer(LOG, steal=True) as writer:
                with pytest.raises(ScribenginError):
                    stale.write(b"late").result()
                writer.write(b"2").result()
            stale.abort()
            assert payloads_read(two, LOG) == [b"1", b"2"]


def test_what_is_not_there_is_not_found() -> None:
    with pytest.raises(ValueError, match="no disk 'nowhere'"):
        disk_named("nowhere")
    with pytest.raises(LogNotFound):
        MemorySegmentStore(MemoryDisk("empty")).open(NAME)
