"""What a listing does not show, though it is there: files that another owner found later, a directory that could not be
listed. Neither is forgotten, so neither is read twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem

from scribengin.connectors.contract import RoundLimits
from scribengin.connectors.files import FileSource, FileSourceConfig
from scribengin.connectors.files.source import listing
from scribengin.errors import SystemUnreachable
from scribengin.filesystems.fsspec import FsspecFileSystem
from scribengin.testing.clocks import ManualClock

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
