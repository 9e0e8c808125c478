"""Files that somebody has open to write more, on a system that knows it: what stands at their end is not their end,
however old they look. HDFS does not move a file's time of modification while it is written."""

from __future__ import annotations

import gzip
import os
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.model import Position
from scribengin.connectors.contract import RoundLimits, SourceStreamReader
from scribengin.connectors.files import FileSource, FileSourceConfig
from scribengin.filesystems.contract import FileInfo
from scribengin.filesystems.hdfs import HdfsFileSystem
from scribengin.filesystems.local import LocalFileSystem
from scribengin.filesystems.paths import durable_file_system
from scribengin_dev.servers.hadoop.hdfs import HdfsServers

ALL = RoundLimits(10**6, 10**9)
BLOCK = 1024 * 1024


def open_reader(path: Path | str, **settings: Any) -> SourceStreamReader:
    config = {"kind": "hdfs", "path": str(path), "settle_s": 0, **settings}
    source = FileSource("in", FileSourceConfig.parse(config, source="a test"), SYSTEM_CLOCK)
    return source.open_reader(source.streams()[0])


def read(reader: SourceStreamReader, position: Position, column: str = "payload") -> tuple[list[Any], Position]:
    plan = reader.plan(position, ALL)
    if plan is None:
        return [], position
    return [v for split in plan.splits for batch in split.read() for v in batch[column].to_pylist()], plan.end


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of files that somebody has open. Their times do not say so."""
    names: set[str] = set()
    complete = LocalFileSystem.is_complete

    def is_complete(self: LocalFileSystem, path: str, info: FileInfo) -> bool:
        return os.path.basename(path) not in names and complete(self, path, info)

    monkeypatch.setattr(LocalFileSystem, "is_complete", is_complete)
    return names


def put(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    os.utime(path, (1_000_000_000, 1_000_000_000))


def test_half_a_line_of_a_file_that_is_open_waits_however_old_it_looks(tmp_path: Path, held: set[str]) -> None:
    held.add("a")
    put(tmp_path / "a", "1\nGrü".encode())
    reader = open_reader(tmp_path, settle_s=10)
    found, position = read(reader, reader.initial_position())
    assert (found, read(reader, position)[0], reader.lag(position)) == ([b"1"], [], 0)
    put(tmp_path / "a", "1\nGrüße\n2".encode())
    found, position = read(reader, position)
    assert found == ["Grüße".encode()]
    held.clear()
    assert read(reader, position)[0] == [b"2"]


def test_half_a_frame_of_a_file_that_is_open_is_no_damage(tmp_path: Path, held: set[str]) -> None:
    held.add("a")
    put(tmp_path / "a", b"\0\0\0\1x\0\0\0\5hal")
    reader = open_reader(tmp_path, file_format="binary")
    found, position = read(reader, reader.initial_position())
    assert (found, read(reader, position)[0]) == ([b"x"], [])
    held.clear()
    put(tmp_path / "a", b"\0\0\0\1x\0\0\0\5halfs")
    assert read(reader, position)[0] == [b"halfs"]


def test_a_compressed_file_that_is_open_waits(tmp_path: Path, held: set[str]) -> None:
    whole = gzip.compress(bytes(range(11, 256)) + b"\n2\n")
    held.add("a.gz")
    put(tmp_path / "a.gz", whole[:-9])
    reader = open_reader(tmp_path)
    assert read(reader, reader.initial_position())[0] == []
    held.clear()
    put(tmp_path / "a.gz", whole)
    assert read(reader, reader.initial_position())[0] == [bytes(range(11, 256)), b"2"]


def test_a_parquet_file_that_is_open_waits(tmp_path: Path, held: set[str]) -> None:
    for name in ("a", "b"):
        pq.write_table(pa.table({"id": [name]}), tmp_path / f"{name}.parquet")
    whole = (tmp_path / "b.parquet").read_bytes()
    held.add("b.parquet")
    put(tmp_path / "b.parquet", whole[:-20])
    reader = open_reader(tmp_path, file_format="parquet")
    found, position = read(reader, reader.initial_position(), "id")
    assert (found, read(reader, position, "id")[0]) == (["a"], [])
    held.clear()
    put(tmp_path / "b.parquet", whole)
    assert read(reader, position, "id")[0] == ["b"]


def test_a_source_that_is_not_followed_does_not_end_before_its_files_do(tmp_path: Path, held: set[str]) -> None:
    held.add("a")
    put(tmp_path / "a", b"1\nhal")
    reader = open_reader(tmp_path, follow=False)
    found, position = read(reader, reader.initial_position())
    assert (found, reader.ended(position)) == ([b"1"], False)
    held.clear()
    put(tmp_path / "a", b"1\nhalf")
    assert not reader.ended(position)
    found, position = read(reader, position)
    assert (found, reader.ended(position)) == ([b"half"], True)


def test_a_file_that_is_longer_than_its_listing_said_does_not_end_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "a", b"1\nhal")
    reader = open_reader(tmp_path)
    find = LocalFileSystem.find

    def and_then_written(self: LocalFileSystem, root: str, depth_max: int | None = None) -> list[FileInfo]:
        found = find(self, root, depth_max)
        with (tmp_path / "a").open("ab") as file:
            file.write(b"f")
        return found

    monkeypatch.setattr(LocalFileSystem, "find", and_then_written)
    assert read(reader, reader.initial_position())[0] == [b"1"]


# -- on the system that it is about


def test_hdfs_says_whether_a_file_is_open(hdfs: HdfsServers) -> None:
    from hdfs_native import WriteOptions

    files, root = durable_file_system(f"{hdfs.url}/open-{uuid.uuid4().hex}")
    assert isinstance(files, HdfsFileSystem)
    files.make_directories(root)
    small = files.create(f"{root}/small")
    small.append(b"1\nhal")
    small.sync()
    exact = files._client.create(f"{root}/exact", WriteOptions(block_size=BLOCK))
    exact.write(b"x" * (BLOCK + 10))  # not synced: the NameNode knows of one whole block, and that is what it shows

    def said() -> dict[str, tuple[int, bool]]:
        return {i.name: (i.size_bytes, files.is_complete(f"{root}/{i.name}", i)) for i in files.find(root)}

    assert said() == {"small": (5, False), "exact": (BLOCK, False)}
    before = files.find(root)
    small.append(b"f\n")
    small.close()
    exact.close()
    assert said() == {"small": (7, True), "exact": (BLOCK + 10, True)}
    assert not files.is_complete(f"{root}/small", next(info for info in before if info.name == "small"))
    with files._client.create(f"{root}/whole", WriteOptions(block_size=BLOCK)) as whole:
        whole.write(b"x" * BLOCK)
    assert said()["whole"] == (BLOCK, True)
    again = files._client.append(f"{root}/small")
    assert said()["small"] == (7, False)
    again.close()
    assert said()["small"] == (7, True)


def test_half_a_line_on_hdfs_waits_until_its_file_is_closed(hdfs: HdfsServers) -> None:
    from hdfs_native import WriteOptions

    url = f"{hdfs.url}/half-{uuid.uuid4().hex}"
    files, root = durable_file_system(url)
    assert isinstance(files, HdfsFileSystem)
    files.make_directories(root)
    line = "Grüße".encode() * 1000
    lines = [b"%d" % n + line for n in range(200)]
    data = b"\n".join(lines) + b"\nhalf"
    written = files._client.create(f"{root}/f", WriteOptions(block_size=BLOCK))
    written.write(data[: BLOCK + 100])
    reader = open_reader(url)
    found, position = read(reader, reader.initial_position())
    assert found == lines[: len(found)]
    assert len(found) == data[:BLOCK].count(b"\n")
    assert read(reader, position)[0] == []
    written.write(data[BLOCK + 100 :])
    written.close()
    assert found + read(reader, position)[0] == [*lines, b"half"]
