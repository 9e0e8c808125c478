"""The conformance suite for segment stores: `check_segment_store` holds one against `log.store.contract`."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from scribengin.base.threads import background
from scribengin.errors import Fenced, LogNotFound, LogWriteFailed
from scribengin.log.format.entry import EncodedEntry
from scribengin.log.store.contract import (
    Announced,
    PlacedEntry,
    SegmentAppender,
    SegmentName,
    SegmentStore,
    SegmentView,
    Tail,
)
from scribengin.log.store.index import INTERVAL_BYTES, EntryPlace, walk
from scribengin.testing.conformance.expecting import expect, expect_equal, promised
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import records_entry

Check = Callable[[SegmentStore, str], None]
_ROUNDS = 2000


class Stopped(Exception):
    """Stands for the death of the process."""


def stop(_name: str) -> None:
    """Die at a failpoint."""
    raise Stopped


class Writing:
    """Entries placed one after the other."""

    def __init__(self, appender: SegmentAppender) -> None:
        self.appender = appender
        self.at = Tail(0, 0, 0, 0)

    def write(self, *entries: EncodedEntry) -> None:
        """A group, not synced."""
        placed = []
        for index, entry in enumerate(entries):
            header = entry.place(entry=self.at.entries, group_index=index, sequence=self.at.sequence, epoch=1)
            placed.append(PlacedEntry(self.at.end, header, entry))
            self.at = self.at.after(header)
        self.appender.write(placed)

    def append(self, *entries: EncodedEntry) -> None:
        """A group, durable and shown."""
        self.write(*entries)
        self.appender.sync()
        self.appender.publish(self.at)

    def late(self) -> None:
        """Write and sync what must not be acknowledged any more."""
        self.write(records_entry([b"late"]))
        self.appender.sync()


def entries_in(view: SegmentView, end: int) -> int:
    """How many entries stand before `end`, all of them good."""
    places = list(walk(view, 0, end))
    expect(all(isinstance(place, EntryPlace) for place in places), "what is before the tail holds")
    return len(places)


def check_segment_store(store: SegmentStore) -> None:
    """Raise AssertionError, with a sentence that says which promise is broken, unless the store keeps all of them.

    Each check makes a log of its own, and leaves it there.
    """
    for check in SEGMENT_STORE_CHECKS:
        store.create_log(check.__name__)
        with promised(check):
            check(store, check.__name__)


def what_was_written_is_read_as_far_as_the_tail_says(store: SegmentStore, log: str) -> None:
    """What lies behind the tail is there, and not shown."""
    name = SegmentName(log, 1, 1)
    writing = Writing(store.create(name, fsync=True))
    view = store.open(name)
    expect_equal(view.tail(), None, "the tail of a segment that nobody has written to")
    for count in range(1, 4):
        writing.append(records_entry([b"x"] * count))
        expect_equal(view.tail(), writing.at, "the tail after an append")
        expect_equal(entries_in(view, writing.at.end), count, "the number of entries before the tail")
    shown = writing.at
    writing.write(records_entry([b"not shown"]))
    writing.appender.sync()
    expect_equal(view.tail(), shown, "the tail after a write that was not published")
    expect_equal(view.size(), writing.at.end, "the size of the segment")


def who_follows_gets_to_the_newest_tail(store: SegmentStore, log: str) -> None:
    """By steps of whatever size, none of which leads beyond it."""
    name = SegmentName(log, 1, 1)
    writing = Writing(store.create(name, fsync=True))
    view = store.open(name)
    expect_equal(view.tail_beyond(0), None, "the tail of a segment that nobody has written to")
    entries = 0
    for count in (1, 1, 3, 1):
        for _ in range(count):
            writing.append(records_entry([b"x"]))
        while (tail := view.tail_beyond(entries)) is not None and tail.entries > entries:
            entries = tail.entries
        expect_equal(tail, writing.at, "the tail that is found after several looks")


def a_large_group_is_written_whole(store: SegmentStore, log: str) -> None:
    """However many buffers it has."""
    name = SegmentName(log, 1, 1)
    writing = Writing(store.create(name, fsync=True))
    writing.append(*(records_entry([os.urandom(3000)]) for _ in range(256)))
    view = store.open(name)
    expect_equal(view.size(), writing.at.end, "the size of a segment of one large group")
    expect_equal(entries_in(view, writing.at.end), 256, "the number of its entries")


def what_was_read_stays_valid_after_the_view_and_the_log_are_gone(store: SegmentStore, log: str) -> None:
    """Buffers outlive all that they were read from."""
    name = SegmentName(log, 1, 1)
    writing = Writing(store.create(name, fsync=True))
    writing.append(records_entry([b"kept"]))
    view = store.open(name)
    read = view.read(0, writing.at.end)
    before = read.to_pybytes()
    view.close()
    view.close()
    writing.appender.close()
    store.delete_log(log)
    expect_equal(read.to_pybytes(), before, "what was read before the log was deleted")


def reading_behind_the_end_gives_what_there_is(store: SegmentStore, log: str) -> None:
    """Fewer bytes, or none."""
    name = SegmentName(log, 1, 1)
    writing = Writing(store.create(name, fsync=True))
    view = store.open(name)
    expect_equal(view.read(0, 10).size, 0, "how much is read of an empty segment")
    writing.append(records_entry([b"x"]))
    for offset, length, wanted in ((0, 10_000_000, writing.at.end), (writing.at.end - 5, 100, 5)):
        expect_equal(view.read(offset, length).size, wanted, f"how much is read of {length} bytes at {offset}")
    expect_equal(view.read(writing.at.end + 5, 100).size, 0, "how much is read behind the end")


def what_is_read_past_the_cache_is_what_was_synced(store: SegmentStore, log: str) -> None:
    """Wherever a part of it begins and ends."""
    name = SegmentName(log, 1, 1)
    writing = Writing(store.create(name, fsync=True))
    for rows in (1, 7, 70_000):
        writing.append(records_entry([os.urandom(rows)]))
    whole = store.open(name).read(0, writing.at.end).to_pybytes()
    view = store.open(name, from_disk=True)
    for offset in (0, 1, 63, 65_535, 65_536, writing.at.end - 1, writing.at.end):
        expect_equal(view.read(offset, 100).to_pybytes(), whole[offset : offset + 100], f"100 bytes at {offset}")
    expect_equal(view.read(0, writing.at.end).to_pybytes(), whole, "all that is read past the cache")


def a_segments_place_opens_it(store: SegmentStore, log: str) -> None:
    """And says by name that it is gone."""
    name = SegmentName(log, 1, 1)
    location = store.location(name)
    expect(_raises(LogNotFound, location.open), "the place of a segment that is not there raises LogNotFound")
    writing = Writing(store.create(name, fsync=True))
    writing.append(records_entry([b"x"]))
    view = location.open()
    expect_equal(entries_in(view, writing.at.end), 1, "the number of entries at its place")
    expect(str(name) in str(location), "a place names its segment")


def a_segment_is_created_once(store: SegmentStore, log: str) -> None:
    """But once in every epoch."""
    name = SegmentName(log, 1, 1)
    store.create(name, fsync=True)
    expect(_raises(LogWriteFailed, lambda: store.create(name, fsync=True)), "a segment cannot be created again")
    store.create(SegmentName(log, 1, 2), fsync=True)


def segments_are_listed_and_removed_with_all_that_stands_beside_them(store: SegmentStore, log: str) -> None:
    """And no other's."""
    name, other = SegmentName(log, 1, 1), SegmentName(log, 2, 1)
    copy = name.copied("zstd-0a1b")
    for made in (other, copy, name):
        writing = Writing(store.create(made, fsync=True))
        writing.append(records_entry([b"x"]))
        writing.appender.close()
        expect(store.save_index(made, b"index"), "an index can be kept")
    store.fence(other)
    expect_equal(store.names(log), [name, copy, other], "the segments of a log")
    view = store.open(other)
    expect_equal(store.remove(other), writing.at.end, "the bytes of a segment that was removed")
    expect_equal(store.remove(other), 0, "the bytes of one that was gone")
    expect_equal(store.names(log), [name, copy], "the segments that are left")
    expect_equal(entries_in(view, writing.at.end), 1, "the entries of a removed segment that is open")
    expect_equal(store.load_index(other), b"", "its index")
    store.remove(copy)
    expect_equal(store.names(log), [name], "the segments that are left without the copy")
    expect_equal(store.load_index(name), b"index", "the index of the one that stayed")
    expect_equal(store.names("no-log"), [], "the segments of no log")


def what_is_not_there_is_not_found(store: SegmentStore, log: str) -> None:
    """And can be deleted all the same."""
    expect(_raises(LogNotFound, lambda: store.open(SegmentName(log, 1, 1))), "opening no segment raises LogNotFound")
    store.delete_log("no-log")


def nothing_is_acknowledged_once_the_segment_is_fenced(store: SegmentStore, log: str) -> None:
    """With fsync and without."""
    for number, fsync in enumerate((True, False), start=1):
        name = SegmentName(log, number, 1)
        writing = Writing(store.create(name, fsync=fsync))
        writing.append(records_entry([b"acknowledged"]))
        shown = writing.at
        store.fence(name)
        store.fence(name)
        expect(_raises(Fenced, writing.late), "the sync of a fenced segment raises Fenced")
        expect_equal(store.open(name).tail(), shown, "the tail of a fenced segment")


def a_fence_that_comes_during_the_sync_is_seen(store: SegmentStore, log: str) -> None:
    """Or else it comes too late: what is acknowledged stands in what it has left."""
    name = SegmentName(log, 1, 1)
    writing = Writing(store.create(name, fsync=True))
    writing.write(records_entry([b"in flight"]))
    left = []

    def fence(_stop: str) -> None:
        store.fence(name)
        left.append(store.open(name, from_disk=True).size())

    with at_failpoint("log.segment_sync:after", fence):
        fenced = _raises(Fenced, writing.appender.sync)
    expect(fenced or left == [writing.at.end], "a sync that was overtaken by a fence raises Fenced, or is in time")


def a_log_that_was_deleted_under_its_writer_acknowledges_nothing(store: SegmentStore, log: str) -> None:
    """Nor does it get another segment."""
    name = SegmentName(log, 1, 1)
    writing = Writing(store.create(name, fsync=True))
    store.fence(name)
    store.delete_log(log)
    expect(_raises(Fenced, writing.late), "the sync of a deleted segment raises Fenced")
    expect(_raises(Fenced, lambda: store.create(SegmentName(log, 2, 1), fsync=True)), "so does creating the next one")


def what_the_store_refuses_is_said(store: SegmentStore, log: str) -> None:
    """Of a write, a sync, a tail."""

    def refuse(_stop: str) -> None:
        raise OSError(5, "Input/output error")

    writing = Writing(store.create(SegmentName(log, 1, 1), fsync=True))
    for where in ("log.segment_write:before", "log.segment_sync:before", "log.tail_write:before"):
        with at_failpoint(where, refuse):
            refused = _raises(LogWriteFailed, lambda: writing.append(records_entry([b"x"])))
        expect(refused, f"what fails at {where} raises LogWriteFailed")


def an_index_is_kept_and_found_again(store: SegmentStore, log: str) -> None:
    """Each kind by itself."""
    name = SegmentName(log, 1, 1)
    store.create(name, fsync=True).close()
    expect_equal(store.load_index(name), b"", "the index of a segment that has none")
    for rows in (b"rows", b"more rows", b"row"):
        expect(store.save_index(name, rows), "an index can be kept")
        expect_equal(store.load_index(name), rows, "the index that was kept last")
    expect_equal(store.load_index(name, "keys"), b"", "the other index")


def a_writer_leaves_an_index_row_for_every_interval(store: SegmentStore, log: str) -> None:
    """So that readers need not make them."""
    name = SegmentName(log, 1, 1)
    writing = Writing(store.create(name, fsync=True))
    for _ in range(10):
        writing.append(records_entry([bytes(INTERVAL_BYTES // 2)]))
    expect_equal(len(store.load_index(name)) // 32, 4, "the number of rows")  # entries 2, 4, 6 and 8


def what_was_announced_last_is_told(store: SegmentStore, log: str) -> None:
    """By epoch first, and never back under one epoch."""
    expect_equal(store.announced(log), Announced(0, None), "what is announced of a new log")
    for number, epoch, wanted in ((3, 1, (1, 3)), (2, 1, (1, 3)), (1, 2, (2, 1)), (9, 1, (2, 1)), (4, 2, (2, 4))):
        store.announce(SegmentName(log, number, epoch))
        expect_equal(store.announced(log), Announced(*wanted), f"the last after segment {number} of epoch {epoch}")
    store.create(SegmentName(log, 5, 3), fsync=True).close()
    expect_equal(store.announced(log), Announced(3, 5), "the last after a segment was created")


def a_segment_that_is_moved_takes_everything_along(store: SegmentStore, log: str) -> None:
    """Also after a crash half way."""
    names = [SegmentName(log, segment, 1) for segment in (1, 2)]
    for name in names:
        Writing(store.create(name, fsync=True)).append(records_entry([b"x"]))
        store.fence(name)
    view = store.open(names[0])
    aside = SegmentName(f"{log}/aside", 1, 1)
    for where in ("log.log_directory:after", "log.segment_move:before", "log.segment_move:after"):
        with at_failpoint(where, stop):
            expect(_raises(Stopped, lambda: store.move(names[0], aside)), f"a move passes {where}")
    for _again in range(2):
        store.move(names[0], aside)
    expect_equal(store.names(log), names[1:], "the segments that stayed")
    expect_equal(store.names(aside.directory), [aside], "the segment that was moved")
    expect(store.open(aside).tail() is not None, "a segment that was moved has its tail")
    expect_equal(len(view.read(0, view.size())), view.size(), "the bytes of a moved segment that is open")


def a_segment_that_is_set_aside_is_fenced_where_it_is(store: SegmentStore, log: str) -> None:
    """Its writer is told, and all that was acknowledged can be read there."""
    name, aside = SegmentName(log, 1, 1), SegmentName(f"{log}/aside", 1, 1)
    writing = Writing(store.create(name, fsync=True))
    writing.append(records_entry([b"x"]))
    store.move(name, aside)
    store.fence(aside)
    store.make_durable(aside)
    expect(_raises(Fenced, writing.late), "the sync of a segment that was set aside and fenced raises Fenced")
    view = store.open(aside)
    found = next(walk(view, 0, view.size()), None)
    expect(isinstance(found, EntryPlace), "its first entry is there")
    view.close()


def a_reader_never_sees_a_tail_that_was_not_written(store: SegmentStore, log: str) -> None:
    """However often it looks while one is written."""
    name = SegmentName(log, 1, 1)
    writing = Writing(store.create(name, fsync=False))
    done = threading.Event()
    wrong = []

    def look() -> None:
        view = store.open(name)
        while not done.is_set():
            tail = view.tail()
            if tail is not None and (tail.end % 64 or tail.sequence != tail.entries or tail.end < tail.entries * 128):
                wrong.append(tail)

    watcher = background("segment-check", look)
    watcher.start()
    for _ in range(_ROUNDS):
        writing.append(records_entry([b"x"]))
    done.set()
    watcher.join()
    expect_equal(wrong, [], "the tails that were never written")


def a_watch_tells_of_every_tail(store: SegmentStore, log: str) -> None:
    """Where the store can tell."""
    name = SegmentName(log, 1, 1)
    writing = Writing(store.create(name, fsync=True))
    writing.append(records_entry([b"x"]))
    moved = threading.Event()
    view = store.open(name)
    unwatch = view.watch_tail(moved)
    if unwatch is not None:
        for _ in range(3):
            writing.append(records_entry([b"x"]))
            expect(moved.wait(60), "a watch tells of the tail within a minute")
            moved.clear()
        unwatch()


def a_view_reads_the_same_bytes_from_the_same_memory(store: SegmentStore, log: str) -> None:
    """So that a reader of many small entries copies nothing for each."""
    name = SegmentName(log, 1, 1)
    Writing(store.create(name, fsync=True)).append(records_entry([b"x" * 1000]))
    view = store.open(name)
    expect_equal(view.read(0, 100).address, view.read(0, 100).address, "where the same bytes are read to")


def a_whole_segment_needs_no_repair(store: SegmentStore, log: str) -> None:
    """Nor does one that another process may be completing."""
    name = SegmentName(log, 1, 1)
    writing = Writing(store.create(name, fsync=True))
    writing.append(records_entry([b"x"]))
    expect_equal(store.repair(name), 0, "how many machines were replaced under a writer")
    writing.append(records_entry([b"y"]))
    writing.appender.close()
    expect_equal(store.repair(name), 0, "how many machines were replaced")


SEGMENT_STORE_CHECKS: tuple[Check, ...] = (
    what_was_written_is_read_as_far_as_the_tail_says,
    who_follows_gets_to_the_newest_tail,
    a_large_group_is_written_whole,
    what_was_read_stays_valid_after_the_view_and_the_log_are_gone,
    reading_behind_the_end_gives_what_there_is,
    what_is_read_past_the_cache_is_what_was_synced,
    a_segments_place_opens_it,
    a_segment_is_created_once,
    segments_are_listed_and_removed_with_all_that_stands_beside_them,
    what_is_not_there_is_not_found,
    nothing_is_acknowledged_once_the_segment_is_fenced,
    a_fence_that_comes_during_the_sync_is_seen,
    a_log_that_was_deleted_under_its_writer_acknowledges_nothing,
    what_the_store_refuses_is_said,
    an_index_is_kept_and_found_again,
    a_writer_leaves_an_index_row_for_every_interval,
    what_was_announced_last_is_told,
    a_segment_that_is_moved_takes_everything_along,
    a_segment_that_is_set_aside_is_fenced_where_it_is,
    a_reader_never_sees_a_tail_that_was_not_written,
    a_watch_tells_of_every_tail,
    a_view_reads_the_same_bytes_from_the_same_memory,
    a_whole_segment_needs_no_repair,
)


def _raises(kind: type[Exception], act: Callable[[], object]) -> bool:
    try:
        act()
    except kind:
        return True
    return False
