"""The model of a disk whose power fails: what it lets happen, and what not."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from scribengin.testing.memory.disk_states import (
    SECTOR_BYTES,
    Disk,
    Link,
    Operation,
    Rename,
    Sync,
    SyncDirectory,
    Tree,
    Unlink,
    Write,
)
from tests.crash.disk_recorder import RecordedDisk
from tests.crash.power_failures import tree_of

FILE = Link("f", 1)


def left(*operations: Operation, at_most: int = 500) -> list[Tree]:
    """All that a power failure may leave after the operations."""
    disk = Disk()
    for operation in operations:
        disk.apply(operation)
    return list(disk.states(random.Random(1), at_most))


def written(data: bytes, offset: int = 0) -> Write:
    return Write(1, offset, data, "f")


def contents(states: list[Tree]) -> set[bytes | None]:
    return {state["f"] for state in states if "f" in state}


def test_what_was_synced_with_its_name_is_always_there() -> None:
    assert left(FILE, written(b"x"), Sync(1, "f"), SyncDirectory(".")) == [{"f": b"x"}]


def test_a_file_whose_directory_was_not_synced_may_be_gone() -> None:
    states = left(FILE, written(b"x"), Sync(1, "f"))
    assert {} in states
    assert {"f": b"x"} in states


def test_what_was_not_synced_is_there_or_lost_or_zeros_or_cut() -> None:
    found = contents(left(FILE, SyncDirectory("."), written(b"x" * 1000)))
    assert {b"", b"x" * 1000, bytes(512) + b"x" * 488} <= found
    assert any(content and content.endswith(b"\0") for content in found)
    assert any(content and 0 < len(content) < 1000 for content in found)


def test_any_block_of_what_was_not_synced_may_be_missing() -> None:
    data = os.urandom(16 * SECTOR_BYTES)
    found = contents(left(FILE, SyncDirectory("."), written(data)))
    holes = [c for c in found if c and len(c) == len(data) and c[:512] == data[:512] and c[-512:] == data[-512:]]
    assert any(content != data for content in holes)


def test_an_older_version_of_a_sector_may_be_what_is_left_but_nothing_older_than_the_last_sync() -> None:
    states = left(FILE, SyncDirectory("."), written(b"1"), Sync(1, "f"), written(b"2"), written(b"3"))
    assert contents(states) == {b"1", b"2", b"3"}


def test_what_was_synced_is_never_touched_by_what_comes_after_it() -> None:
    safe = os.urandom(700)
    for content in contents(
        left(FILE, SyncDirectory("."), written(safe), Sync(1, "f"), written(os.urandom(9000), 700))
    ):
        assert content is not None
        assert content.startswith(safe)


def test_a_rename_that_was_not_synced_leaves_the_old_or_the_new_file_whole() -> None:
    files = [FILE, written(b"old"), Sync(1, "f"), Link("g", 2), Write(2, 0, b"new", "g"), Sync(2, "g")]
    states = left(*files, SyncDirectory("."), Rename("g", "f"))
    assert states == [{"f": b"old", "g": b"new"}, {"f": b"new"}]


def test_names_go_and_come_in_any_order() -> None:
    states = left(FILE, written(b"x"), Sync(1, "f"), SyncDirectory("."), Unlink("f"), Link("d", -1), Link("d/e", -1))
    assert {"f": b"x"} in states
    assert {"d": None} in states
    assert {"f": b"x", "d": None, "d/e": None} in states
    assert all("d" in state for state in states if "d/e" in state)


def do_many_things(root: Path) -> None:
    (root / "a").mkdir()
    file = os.open(root / "a" / "f", os.O_WRONLY | os.O_CREAT)
    os.write(file, b"x" * 1000)
    os.writev(file, [b"y" * 600, b"z"])
    os.pwrite(file, b"Q", 3)
    os.ftruncate(file, 900)
    os.close(file)
    (root / "a" / "text").write_text("hello")
    os.replace(root / "a" / "text", root / "a" / "renamed")
    with open(root / "a" / "renamed", "ab") as appended:
        appended.write(b", world")
    (root / "b").mkdir()
    (root / "b" / "gone").write_bytes(b"1")
    shutil.rmtree(root / "b")


def test_everything_that_happens_below_the_root_is_recorded(tmp_path: Path) -> None:
    with RecordedDisk(tmp_path) as disk:
        do_many_things(tmp_path)
    model = Disk()
    for operation in disk.operations:
        model.apply(operation)
    assert model.whole() == tree_of(tmp_path)
    assert model.whole()["a/renamed"] == b"hello, world"


def test_a_hook_refuses_an_operation_or_cuts_a_write_short(tmp_path: Path) -> None:
    def refuse_names(operation: Operation) -> int | None:
        if isinstance(operation, Link) and operation.path == "no":
            raise OSError(28, "No space left on device")
        return 2 if isinstance(operation, Write) else None

    def create(name: str) -> Callable[[], int]:
        return lambda: os.open(tmp_path / name, os.O_WRONLY | os.O_CREAT)

    with RecordedDisk(tmp_path, refuse_names):
        file = create("yes")()
        assert os.write(file, b"12345") == 2
        os.close(file)
        try:
            create("no")()
        except OSError as error:
            refused = error.errno
    assert refused == 28
    assert tree_of(tmp_path) == {"yes": b"12"}
