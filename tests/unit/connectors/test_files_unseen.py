"""What a listing does not show, though it is there: files that another owner found later, a directory that could not be
listed. Neither is forgotten, so neither is read twice."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem

from scribengin.connectors.contract import RoundLimits
from scribengin.connectors.files import FileSource, FileSourceConfig
from scribengin.connectors.files.source import listing
from scribengin.connectors.files.source import stream as stream_module
from scribengin.connectors.files.source.finished import FinishedFiles
from scribengin.connectors.files.source.stream import GONE_S
from scribengin.errors import SystemUnreachable
from scribengin.filesystems.fsspec import FsspecFileSystem
from scribengin.testing.clocks import ManualClock
from scribengin.testing.memory.registry import MemoryEnsemble

ONE, ALL = RoundLimits(1, 10**9), RoundLimits(10**6, 10**9)


def payloads(planned: Any) -> list[bytes]:
    return [p for split in planned.splits for batch in split.read() for p in batch.column("payload").to_pylist()]


def test_who_takes_a_stream_over_forgets_nothing_that_its_older_listing_does_not_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "MANY", 0)  # as with very many files: a listing is used for a while
    clock = ManualClock()
    config = FileSourceConfig.parse({"kind": "hdfs", "path": str(tmp_path), "settle_s": 0}, source="a test")
    first, second = (FileSource("in", config, clock) for _ in range(2))
    (stream,) = first.streams()
    (tmp_path / "z.txt").write_text("z1\n")
    early = second.open_reader(stream)
    assert early.lag(early.initial_position()) == 1  # this process has listed the files
    clock.advance_s(0.1)
    (tmp_path / "a.txt").write_text("a1\n")
    owner = first.open_reader(stream)
    read = owner.plan(owner.initial_position(), ONE)
    assert read is not None
    assert payloads(read) == [b"a1"]
    clock.advance_s(0.1)
    taken = early.plan(read.end, ALL)
    assert taken is not None
    assert payloads(taken) == [b"z1"]
    clock.advance_s(100)
    assert early.plan(taken.end, ALL) is None, "a file was read twice"


class Flaky(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Cannot list one directory."""

    cachable = False

    def ls(self, path: str, detail: bool = False, **kwargs: Any) -> Any:
        if path.endswith("/dt=1"):
            raise ConnectionResetError("the server hung up")
        return super().ls(path, detail=detail, **kwargs)


def test_a_directory_that_cannot_be_listed_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    for name in ("dt=1", "dt=2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_text("1\n")
    with pytest.raises(SystemUnreachable, match="the server hung up"):
        FsspecFileSystem(Flaky()).find(str(tmp_path))
    whole = FsspecFileSystem(LocalFileSystem())
    assert [info.name for info in whole.find(str(tmp_path))] == ["dt=1/x", "dt=2/x"]
    assert [info.size_bytes for info in whole.find(str(tmp_path / "dt=1" / "x"))] == [2]


def move_behind_a_listing(monkeypatch: pytest.MonkeyPatch, path: Path, to: Path) -> None:
    """Move a file at the moment when a listing has been in the directory that it goes to, and comes to the one where it
    was."""
    scandir = os.scandir

    def scan(directory: str) -> Any:
        if Path(directory) == path.parent and path.exists():
            path.rename(to)
        return scandir(directory)

    monkeypatch.setattr(os, "scandir", scan)


@pytest.mark.parametrize("folded", [False, True])
def test_a_file_that_is_moved_behind_a_listing_is_not_forgotten_with_the_next_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folded: bool
) -> None:
    if folded:
        monkeypatch.setattr(stream_module, "INLINE_BYTES_MAX", 0)
    clock = ManualClock()
    finished = FinishedFiles(MemoryEnsemble().connect(), "/finished") if folded else None
    config = FileSourceConfig.parse({"kind": "hdfs", "path": str(tmp_path), "settle_s": 0}, source="a test")
    source = FileSource("in", config, clock, (lambda _stream: finished) if finished is not None else None)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    old, new = (Path(entry) for entry in os.scandir(tmp_path))  # in the order in which a listing comes to them
    (new / "a.txt").write_text("a1\n")
    (new / "gone.txt").write_text("g1\n")
    reader = source.open_reader(source.streams()[0])
    first = reader.plan(reader.initial_position(), ALL)
    assert first is not None
    clock.advance_s(10)
    (new / "b.txt").write_text("b1\n")
    (new / "gone.txt").unlink()
    move_behind_a_listing(monkeypatch, new / "a.txt", old / "a.txt")
    second = reader.plan(first.end, ALL)
    assert second is not None
    assert (payloads(second), (old / "a.txt").exists()) == ([b"b1"], True), "or nothing was moved"
    clock.advance_s(10)
    assert reader.plan(second.end, ALL) is None, "a file was read twice"
    clock.advance_s(GONE_S)
    (new / "c.txt").write_text("c1\n")
    third = reader.plan(second.end, ALL)
    assert third is not None
    assert payloads(third) == [b"c1"]
    assert f"{new.name}/gone.txt" not in known(third.end, finished), "what is gone for long is forgotten"


def test_a_directory_that_is_away_for_a_while_is_not_read_twice(tmp_path: Path) -> None:
    """As one that is mounted anew, or whose names a power failure took back until their writer has recovered."""
    clock = ManualClock()
    config = FileSourceConfig.parse({"kind": "hdfs", "path": str(tmp_path), "settle_s": 0}, source="a test")
    source = FileSource("in", config, clock)
    for name in ("here", "mounted"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "first").write_text(f"{name}\n")
    reader = source.open_reader(source.streams()[0])
    planned = reader.plan(reader.initial_position(), ALL)
    assert planned is not None
    (tmp_path / "mounted").rename(tmp_path / ".away")
    for number in range(5):
        clock.advance_s(GONE_S / 6)
        (tmp_path / "here" / str(number)).write_text(f"{number}\n")
        planned = reader.plan(planned.end, ALL)
        assert planned is not None
        assert payloads(planned) == [b"%d" % number]
    (tmp_path / ".away").rename(tmp_path / "mounted")
    clock.advance_s(GONE_S / 6)
    assert reader.plan(planned.end, ALL) is None


def known(position: Any, finished: FinishedFiles | None) -> set[str]:
    held = finished.load(position["nodes"]).keys() if finished is not None else set()
    return {*position["finished"], *held} - set(position.get("dropped", ()))
