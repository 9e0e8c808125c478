"""What every segment store promises, held over those there are; and what only the store of files has."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from scribengin.errors import StoreNotMounted
from scribengin.log.store.contract import SegmentName, SegmentStore, Tail
from scribengin.log.store.file import FileSegmentStore
from scribengin.log.store.layout import TAIL_BYTES, read_tail, slot_of
from scribengin.testing.conformance.segments import SEGMENT_STORE_CHECKS, Check, check_segment_store
from scribengin.testing.failpoints import record_stops
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.segments import MemoryAppender, MemorySegmentStore

NAME = SegmentName("log-1", 1, 1)
LOG = "a-log"


@pytest.fixture
def store(tmp_path: Path) -> FileSegmentStore:
    """One of files, with a log."""
    made = FileSegmentStore(tmp_path / "store")
    made.create_log(NAME.directory)
    return made


@pytest.fixture
def disk() -> MemoryDisk:
    """A disk of one test."""
    return MemoryDisk("disk of a test")


@pytest.fixture(params=["file", "memory"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path, disk: MemoryDisk) -> SegmentStore:
    """Each of the stores there are."""
    return FileSegmentStore(tmp_path / "any") if request.param == "file" else MemorySegmentStore(disk)


@pytest.mark.parametrize("check", SEGMENT_STORE_CHECKS, ids=lambda check: check.__name__)
def test_a_segment_store_keeps_its_promises(check: Check, any_store: SegmentStore) -> None:
    any_store.create_log(LOG)
    check(any_store, LOG)


@pytest.mark.parametrize("other", ["file", "memory"])
def test_nothing_is_made_in_the_place_of_another_namespace(other: str, tmp_path: Path, disk: MemoryDisk) -> None:
    """Its directory of the log is there all the same, where a namespace was moved away from it."""
    token = "0" * 32
    store = FileSegmentStore(tmp_path, token) if other == "file" else MemorySegmentStore(disk, token)
    (FileSegmentStore(tmp_path) if other == "file" else MemorySegmentStore(disk)).create_log(LOG)
    with pytest.raises(StoreNotMounted):
        store.create(SegmentName(LOG, 1, 1), fsync=True)


@pytest.mark.parametrize("check", SEGMENT_STORE_CHECKS, ids=lambda check: check.__name__)
def test_both_stores_pass_the_same_failpoints(check: Check, store: SegmentStore, disk: MemoryDisk) -> None:
    passed = []
    for one in (store, MemorySegmentStore(disk)):
        with record_stops() as stops:
            one.create_log(LOG)
            check(one, LOG)
        passed.append(stops)
    assert passed[0] == passed[1]


def test_a_store_that_breaks_a_promise_is_found(disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    check_segment_store(MemorySegmentStore(disk))
    monkeypatch.setattr(MemoryAppender, "sync", lambda self: None)  # acknowledges without looking for the fence
    with pytest.raises(AssertionError, match="the sync of a fenced segment raises Fenced"):
        check_segment_store(MemorySegmentStore(MemoryDisk("another disk")))


@pytest.mark.parametrize("size", [0, 1, 511, 65_536, 65_537, 8 * 1024 * 1024 + 3, 9_000_001])
def test_what_is_read_from_the_disk_is_what_was_written(store: FileSegmentStore, size: int) -> None:
    store.create(NAME, fsync=True).close()
    whole = (bytes(range(256)) * (size // 256 + 1))[:size]
    Path(store.path(NAME)).write_bytes(whole)
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


def test_what_is_read_once_takes_no_more_of_the_disk_than_was_asked_for(
    store: FileSegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create(NAME, fsync=True).close()
    size = 9_000_001
    whole = (bytes(range(256)) * (size // 256 + 1))[:size]
    Path(store.path(NAME)).write_bytes(whole)
    asked: list[int] = []
    read = os.preadv

    def counted(file: int, buffers: list[memoryview], offset: int) -> int:
        asked.append(sum(map(len, buffers)))
        return read(file, buffers, offset)

    monkeypatch.setattr(os, "preadv", counted)
    view = store.open(NAME, from_disk=True)
    for offset, length in ((0, 100), (70_000, 1_000_000), (size - 5, 100), (size, 7), (size + 9, 7), (0, 0)):
        asked.clear()
        assert view.read_once(offset, length).to_pybytes() == whole[offset : offset + length]
        assert sum(asked) <= length + 2 * 65_536


def test_a_short_read_from_the_disk_goes_on(store: FileSegmentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.create(NAME, fsync=True).close()
    whole = bytes(range(256)) * 400
    Path(store.path(NAME)).write_bytes(whole)
    whole_read = os.preadv

    def short(file: int, buffers: list[memoryview], offset: int) -> int:
        return min(whole_read(file, buffers, offset), 5000)

    monkeypatch.setattr(os, "preadv", short)
    assert store.open(NAME, from_disk=True).read(0, len(whole)).to_pybytes() == whole


def test_a_file_system_without_direct_reads_is_read_through_its_cache(
    store: FileSegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create(NAME, fsync=True).close()
    Path(store.path(NAME)).write_bytes(b"what there is")
    opened = os.open

    def refuse(path: str, flags: int, *more: int) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return opened(path, flags, *more)

    monkeypatch.setattr(os, "open", refuse)
    assert store.open(NAME, from_disk=True).read(0, 100).to_pybytes() == b"what there is"


def test_what_a_crash_left_of_a_removed_segment_is_listed_still(store: FileSegmentStore) -> None:
    store.create(NAME, fsync=True).close()
    store.save_index(NAME, b"index")
    os.remove(store.path(NAME))
    assert store.names(NAME.directory) == [NAME]
    store.remove(NAME)
    assert store.names(NAME.directory) == []


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
