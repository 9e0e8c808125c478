"""What every segment store promises. The one there is keeps files; each later one joins the list."""

from __future__ import annotations

import errno
import os
import random
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from scribengin.errors import Fenced, LogNotFound, LogWriteFailed
from scribengin.log.format.entry import EncodedEntry
from scribengin.log.store.contract import PlacedEntry, SegmentAppender, SegmentName, SegmentStore, SegmentView, Tail
from scribengin.log.store.file import TAIL_BYTES, FileSegmentStore, read_tail, slot_of
from scribengin.log.store.index import INTERVAL_BYTES, EntryPlace, walk
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import records_entry

NAME = SegmentName("log-1", 1, 1)


@pytest.fixture(params=[FileSegmentStore], ids=["file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SegmentStore:
    made: SegmentStore = request.param(tmp_path / "store")
    made.create_log(NAME.directory)
    return made


class Stopped(Exception):
    """Stands for the death of the process."""


def stop(_name: str) -> None:
    raise Stopped


class Writing:
    """Entries placed one after the other."""

    def __init__(self, appender: SegmentAppender) -> None:
        self.appender = appender
        self.at = Tail(0, 0, 0, 0)

    def write(self, *entries: EncodedEntry) -> None:
        placed = []
        for index, entry in enumerate(entries):
            header = entry.place(entry=self.at.entries, group_index=index, sequence=self.at.sequence, epoch=1)
            placed.append(PlacedEntry(self.at.end, header, entry))
            self.at = self.at.after(header)
        self.appender.write(placed)

    def append(self, *entries: EncodedEntry) -> None:
        self.write(*entries)
        self.appender.sync()
        self.appender.publish(self.at)


def entries_in(view: SegmentView, end: int) -> int:
    places = list(walk(view, 0, end))
    assert all(isinstance(place, EntryPlace) for place in places)
    return len(places)


def test_what_was_written_is_read_as_far_as_the_tail_says(store: SegmentStore) -> None:
    writing = Writing(store.create(NAME, fsync=True))
    view = store.open(NAME)
    assert view.tail() is None
    for count in range(1, 4):
        writing.append(records_entry([b"x"] * count))
        assert view.tail() == writing.at
        assert entries_in(view, writing.at.end) == count
    writing.write(records_entry([b"not shown"]))
    assert view.tail() != writing.at
    assert view.size() == writing.at.end


def test_a_large_group_is_written_whole(store: SegmentStore) -> None:
    writing = Writing(store.create(NAME, fsync=True))
    writing.append(*(records_entry([os.urandom(3000)]) for _ in range(256)))
    view = store.open(NAME)
    assert view.size() == writing.at.end
    assert entries_in(view, writing.at.end) == 256


def test_what_was_read_stays_valid_after_the_view_and_the_log_are_gone(store: SegmentStore) -> None:
    writing = Writing(store.create(NAME, fsync=True))
    writing.append(records_entry([b"kept"]))
    view = store.open(NAME)
    read = view.read(0, writing.at.end)
    before = read.to_pybytes()
    view.close()
    view.close()
    writing.appender.close()
    store.delete_log(NAME.directory)
    assert read.to_pybytes() == before


def test_reading_behind_the_end_gives_what_there_is(store: SegmentStore) -> None:
    writing = Writing(store.create(NAME, fsync=True))
    view = store.open(NAME)
    assert view.read(0, 10).size == 0
    writing.append(records_entry([b"x"]))
    assert view.read(0, 10_000_000).size == writing.at.end
    assert view.read(writing.at.end - 5, 100).size == 5
    assert view.read(writing.at.end + 5, 100).size == 0


@pytest.mark.parametrize("size", [0, 1, 511, 65_536, 65_537, 8 * 1024 * 1024 + 3, 9_000_001])
def test_what_is_read_from_the_disk_is_what_was_written(store: SegmentStore, size: int) -> None:
    store.create(NAME, fsync=True).close()
    whole = (bytes(range(256)) * (size // 256 + 1))[:size]
    Path(str(store.location(NAME))).write_bytes(whole)
    store.make_durable(NAME)
    view, mapped = store.open(NAME, from_disk=True), store.open(NAME)
    assert mapped.read(0, size).to_pybytes() == whole
    assert view.read(0, size).to_pybytes() == whole
    for offset in (0, 1, 63, 65_535, 65_536, 8 * 1024 * 1024 - 7, size - 1, size, size + 9):
        if offset >= 0:
            assert view.read(offset, 100).to_pybytes() == whole[offset : offset + 100]
    read = view.read(0, size)
    view.close()
    view.close()
    store.remove(NAME)
    assert read.to_pybytes() == whole


def test_a_short_read_from_the_disk_goes_on(store: SegmentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.create(NAME, fsync=True).close()
    whole = bytes(range(256)) * 400
    Path(str(store.location(NAME))).write_bytes(whole)
    whole_read = os.preadv

    def short(file: int, buffers: list[memoryview], offset: int) -> int:
        return min(whole_read(file, buffers, offset), 5000)

    monkeypatch.setattr(os, "preadv", short)
    assert store.open(NAME, from_disk=True).read(0, len(whole)).to_pybytes() == whole


def test_a_file_system_without_direct_reads_is_read_through_its_cache(
    store: SegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create(NAME, fsync=True).close()
    Path(str(store.location(NAME))).write_bytes(b"what there is")
    opened = os.open

    def refuse(path: str, flags: int, *more: int) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return opened(path, flags, *more)

    monkeypatch.setattr(os, "open", refuse)
    assert store.open(NAME, from_disk=True).read(0, 100).to_pybytes() == b"what there is"


def test_a_segment_is_created_once(store: SegmentStore) -> None:
    store.create(NAME, fsync=True)
    with pytest.raises(LogWriteFailed, match="cannot create segment"):
        store.create(NAME, fsync=True)
    store.create(SegmentName(NAME.directory, 1, 2), fsync=True)


def test_segments_are_listed_and_removed_with_all_that_stands_beside_them(store: SegmentStore) -> None:
    other, copy = SegmentName(NAME.directory, 2, 1), NAME.copied("zstd-0a1b")
    for name in (other, copy, NAME):
        writing = Writing(store.create(name, fsync=True))
        writing.append(records_entry([b"x"]))
        writing.appender.close()
        assert store.save_index(name, b"index")
    store.fence(other)
    assert store.names(NAME.directory) == [NAME, copy, other]
    view = store.open(other)
    assert store.remove(other) == writing.at.end
    assert store.remove(other) == 0
    assert store.names(NAME.directory) == [NAME, copy]
    assert entries_in(view, writing.at.end) == 1
    assert store.load_index(other) == b""
    store.remove(copy)
    assert store.names(NAME.directory) == [NAME]
    assert store.load_index(NAME) == b"index"
    assert store.names("no such log") == []


def test_what_a_crash_left_of_a_removed_segment_is_listed_still(store: SegmentStore) -> None:
    store.create(NAME, fsync=True).close()
    store.save_index(NAME, b"index")
    os.remove(str(store.location(NAME)))
    assert store.names(NAME.directory) == [NAME]
    store.remove(NAME)
    assert store.names(NAME.directory) == []


def test_a_segment_that_is_not_there_is_not_found(store: SegmentStore) -> None:
    with pytest.raises(LogNotFound):
        store.open(NAME)
    store.delete_log("no such log")


@pytest.mark.parametrize("fsync", [True, False])
def test_nothing_is_acknowledged_once_the_segment_is_fenced(store: SegmentStore, fsync: bool) -> None:
    writing = Writing(store.create(NAME, fsync=fsync))
    writing.append(records_entry([b"acknowledged"]))
    shown = writing.at
    store.fence(NAME)
    store.fence(NAME)
    writing.write(records_entry([b"late"]))
    with pytest.raises(Fenced):
        writing.appender.sync()
    view = store.open(NAME)
    assert view.tail() == shown


def test_a_fence_that_comes_during_the_fsync_is_seen(store: SegmentStore) -> None:
    writing = Writing(store.create(NAME, fsync=True))
    writing.write(records_entry([b"in flight"]))
    with at_failpoint("log.segment_sync:after", lambda _stop: store.fence(NAME)), pytest.raises(Fenced):
        writing.appender.sync()


def test_a_log_that_was_deleted_under_its_writer_acknowledges_nothing(store: SegmentStore) -> None:
    writing = Writing(store.create(NAME, fsync=True))
    store.fence(NAME)
    store.delete_log(NAME.directory)
    writing.write(records_entry([b"late"]))
    with pytest.raises(Fenced):
        writing.appender.sync()


def test_a_write_and_a_sync_that_the_disk_refuses_say_so(store: SegmentStore) -> None:
    def refuse(_stop: str) -> None:
        raise OSError(5, "Input/output error")

    writing = Writing(store.create(NAME, fsync=True))
    for stop in ("log.segment_write:before", "log.segment_sync:before", "log.tail_write:before"):
        with at_failpoint(stop, refuse), pytest.raises(LogWriteFailed, match="Input/output error"):
            writing.append(records_entry([b"x"]))


def test_an_index_is_kept_and_found_again(store: SegmentStore) -> None:
    assert store.load_index(NAME) == b""
    assert store.save_index(NAME, b"rows")
    assert store.load_index(NAME) == b"rows"
    assert store.save_index(NAME, b"more rows")
    assert store.load_index(NAME) == b"more rows"


def test_a_writer_leaves_an_index_row_for_every_interval(store: SegmentStore) -> None:
    writing = Writing(store.create(NAME, fsync=True))
    for _ in range(10):
        writing.append(records_entry([bytes(INTERVAL_BYTES // 2)]))
    assert len(store.load_index(NAME)) // 32 == 4  # entries 2, 4, 6 and 8


def test_a_segment_that_is_moved_takes_everything_along_also_after_a_crash_half_way(store: SegmentStore) -> None:
    names = [SegmentName(NAME.directory, segment, 1) for segment in (1, 2)]
    for name in names:
        Writing(store.create(name, fsync=True)).append(records_entry([b"x"]))
        store.fence(name)
    view = store.open(names[0])
    aside = SegmentName(f"{NAME.directory}/aside", 1, 1)
    for where in ("log.log_directory:after", "log.segment_move:before", "log.segment_move:after"):
        with pytest.raises(Stopped), at_failpoint(where, stop):
            store.move(names[0], aside)
    for _again in range(2):
        store.move(names[0], aside)
    assert store.names(NAME.directory) == names[1:]
    assert store.names(aside.directory) == [aside]
    assert store.open(aside).tail() is not None
    assert len(view.read(0, view.size())) == view.size() > 0


def test_a_reader_never_sees_a_tail_that_was_not_written(store: SegmentStore) -> None:
    writing = Writing(store.create(NAME, fsync=False))
    done = threading.Event()
    wrong = []

    def look() -> None:
        view = store.open(NAME)
        while not done.is_set():
            tail = view.tail()
            if tail is not None and (tail.end % 64 or tail.sequence != tail.entries or tail.end < tail.entries * 128):
                wrong.append(tail)

    watcher = threading.Thread(target=look)
    watcher.start()
    for _ in range(2000):
        writing.append(records_entry([b"x"]))
    done.set()
    watcher.join()
    assert not wrong


def tails(*ends: int) -> bytes:
    return b"".join(slot_of(Tail(end, 1, 1, 1)) for end in ends)


@pytest.mark.parametrize("slot", [0, 1])
def test_the_other_slot_holds_while_one_is_torn(slot: int) -> None:
    whole = tails(64, 128)
    for at in range(slot * 32, slot * 32 + 32):
        torn = bytearray(whole)
        torn[at] ^= 0xFF
        assert read_tail(bytes(torn)) == Tail([128, 64][slot], 1, 1, 1)


@pytest.mark.parametrize(
    "data",
    [b"", bytes(TAIL_BYTES), tails(64)[:31], random.Random(5).randbytes(TAIL_BYTES)],
    ids=["nothing", "zeros", "half", "noise"],
)
def test_a_tail_file_without_a_valid_slot_shows_nothing(data: bytes) -> None:
    assert read_tail(data) is None


def test_a_view_maps_without_copying(store: SegmentStore) -> None:
    writing = Writing(store.create(NAME, fsync=True))
    writing.append(records_entry([b"x" * 1000]))
    view = store.open(NAME)
    first, second = view.read(0, 100), view.read(0, 100)
    assert isinstance(first, pa.Buffer)
    assert first.address == second.address
