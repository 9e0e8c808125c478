"""Files that are renamed, replaced and overwritten while they are read: a file is known by more than its name."""

from __future__ import annotations

import gzip
import json
import os
import uuid
import zlib
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.model import Position
from scribengin.connectors.contract import PlannedRange, RoundLimits, SourceStreamReader
from scribengin.connectors.files import FileSource, FileSourceConfig
from scribengin.connectors.files.source.listing import stream_of
from scribengin.errors import DataflowError
from scribengin.filesystems.birth import file_status
from scribengin.filesystems.contract import DurableFileSystem
from scribengin.filesystems.hdfs import HdfsFileSystem
from scribengin.filesystems.paths import durable_file_system
from scribengin_dev.servers.hadoop.hdfs import HdfsServers

ALL, ONE = RoundLimits(10**6, 10**9), RoundLimits(1, 10**9)


def open_source(path: Path | str, **settings: Any) -> FileSource:
    config = {"kind": "hdfs", "path": str(path), "settle_s": 0, **settings}
    return FileSource("in", FileSourceConfig.parse(config, source="a test"), SYSTEM_CLOCK)


class Flow:
    """Reads a source of one stream: `position` is what its commit log would say. Another process at every step."""

    def __init__(self, path: Path | str, **settings: Any) -> None:
        self._path, self._settings = path, settings
        self.position: Position = self.reader().initial_position()

    def reader(self) -> SourceStreamReader:
        source = open_source(self._path, **self._settings)
        return source.open_reader(source.streams()[0])

    def read(self, limits: RoundLimits = ALL, column: str = "payload") -> list[Any]:
        plan = self.reader().plan(self.position, limits)
        if plan is None:
            return []
        self.position = json.loads(json.dumps(plan.end))
        return values(plan, column)

    def drain(self) -> list[Any]:
        found = []
        while values_now := self.read():
            found += values_now
        return found


def values(plan: PlannedRange | None, column: str = "payload") -> list[Any]:
    assert plan is not None
    return [v for split in plan.splits for batch in split.read() for v in batch[column].to_pylist()]


def lines(prefix: str, count: int) -> list[bytes]:
    """Lines of the same length whatever the prefix."""
    return [f"{prefix} Grüße {n:06d}".encode() for n in range(count)]


def put(path: Path, *found: bytes, append: bool = False) -> None:
    with path.open("ab" if append else "wb") as file:
        file.write(b"".join(line + b"\n" for line in found))


@pytest.mark.parametrize("path", ["", "log", "*log"])
@pytest.mark.parametrize("read_first", [1, 10**6])
def test_a_file_that_is_rotated_is_read_to_its_end_and_then_the_new_one(
    tmp_path: Path, path: str, read_first: int
) -> None:
    """Of a directory, of one file, of a pattern that does not mean the rotated one; half read, or finished."""
    log, first, later, new = tmp_path / "log", lines("old", 50), lines("end", 5), lines("new", 60)
    put(log, *first)
    flow = Flow(tmp_path / path if path else tmp_path, settle_s=3600)
    found = flow.read(RoundLimits(read_first, 10**9))
    put(log, *later, append=True)
    os.rename(log, tmp_path / "log.1")
    put(log, *new)
    assert found + flow.drain() == first + later + new
    put(tmp_path / "log.1", b"after the rename", append=True)  # its writer has not reopened yet
    assert flow.drain() == [b"after the rename"]
    os.rename(tmp_path / "log.1", tmp_path / "log.2")
    os.rename(log, tmp_path / "log.1")
    put(log, *lines("two", 3))
    assert flow.drain() == lines("two", 3)
    assert flow.reader().lag(flow.position) == 0


def test_between_the_rename_and_the_new_file_nothing_is_missing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    put(log, *lines("old", 3))
    source = open_source(log)
    reader = source.open_reader(source.streams()[0])
    first = reader.plan(reader.initial_position(), ONE)
    assert first is not None
    os.rename(log, tmp_path / "log.1")
    second = reader.plan(first.end, ALL)
    assert values(second) == lines("old", 3)[1:]
    assert second is not None
    assert reader.plan(second.end, ALL) is None
    put(log, *lines("new", 3))
    assert values(reader.plan(second.end, ALL)) == lines("new", 3)


@pytest.mark.parametrize("read_first", [2, 10**6])
def test_copy_and_truncate_is_an_error_that_says_so(tmp_path: Path, read_first: int) -> None:
    log = tmp_path / "log"
    put(log, *lines("old", 10))
    for count, message in (
        (1, "it was cut, as by copying"),
        (10, "overwritten in place, as by copying"),
        (30, "place"),
    ):
        flow = Flow(log)
        put(log, *lines("old", 10))
        flow.read(RoundLimits(read_first, 10**9))
        with log.open("r+b") as file:
            file.truncate(0)
            file.write(b"".join(line + b"\n" for line in lines("new", count)))
        with pytest.raises(DataflowError, match=rf"log.*{message}.*Rotate files by renaming them"):
            flow.read()


def test_a_new_file_under_a_finished_name_is_a_new_file(tmp_path: Path) -> None:
    for count in (10, 3, 20):
        flow = Flow(tmp_path)
        put(tmp_path / "a", *lines("old", 10))
        flow.read()
        (tmp_path / "a").unlink()
        put(tmp_path / "a", *lines("new", count))  # its inode is the old one's, most likely
        assert flow.drain() == lines("new", count)


def test_a_half_read_file_that_another_one_has_replaced_is_an_error(tmp_path: Path) -> None:
    put(tmp_path / "a", *lines("old", 10))
    flow = Flow(tmp_path)
    flow.read(ONE)
    os.rename(tmp_path / "a", tmp_path / ".a")
    put(tmp_path / "a", *lines("new", 10))
    with pytest.raises(DataflowError, match="a is another file now, and only 19 bytes of the one before were read"):
        flow.read()
    os.rename(tmp_path / ".a", tmp_path / "a.old")
    assert flow.drain() == lines("old", 10)[1:] + lines("new", 10)


def test_a_file_that_is_brought_anew_as_it_grows_is_read_on(tmp_path: Path) -> None:
    """As rsync does it: each time another file under the same name, with what was there before, and more."""
    flow = Flow(tmp_path)
    found = []
    for count in (3, 3, 7, 20):
        put(tmp_path / ".a.1", *lines("one", count))
        os.rename(tmp_path / ".a.1", tmp_path / "a")
        found += flow.drain()
    assert found == lines("one", 20)


def test_a_file_that_is_renamed_after_it_was_planned_is_read_where_it_is(tmp_path: Path) -> None:
    put(tmp_path / "a", *lines("old", 10))
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / ".p")
    (tmp_path / "p").mkdir()
    os.rename(tmp_path / ".p", tmp_path / "p" / "a")
    for path, settings, column, expected in (
        (tmp_path / "a", {}, "payload", lines("old", 10)),
        (tmp_path / "p", {"file_format": "parquet"}, "id", [1, 2]),
    ):
        source = open_source(path, **settings)
        reader = source.open_reader(source.streams()[0])
        plan = reader.plan(reader.initial_position(), ALL)
        at = path if path.is_file() else path / "a"
        os.rename(at, at.with_name("b"))
        at.write_bytes(at.with_name("b").read_bytes()[::-1])
        assert values(plan, column) == expected


def test_what_was_overwritten_after_it_was_planned_is_an_error(tmp_path: Path) -> None:
    put(tmp_path / "a", *lines("old", 10))
    source = open_source(tmp_path)
    reader = source.open_reader(source.streams()[0])
    plan = reader.plan(reader.initial_position(), ALL)
    put(tmp_path / "a", *lines("new", 10))
    with pytest.raises(DataflowError, match=r"a changed after it was planned: bytes 0 to 190 held 10 lines"):
        values(plan)


def test_whole_files_are_known_by_what_they_hold(tmp_path: Path) -> None:
    """Of the same size, under the same name: Parquet and what is compressed."""
    (tmp_path / "p").mkdir()
    (tmp_path / "z").mkdir()
    for seed, expected in ((1, [1]), (2, [2])):
        pq.write_table(pa.table({"id": [seed]}), tmp_path / "p" / f".{seed}")
        (tmp_path / "z" / f".{seed}").write_bytes(gzip.compress(b"%d\n" % expected[0]))
    for name, settings, column, found in (
        ("p", {"file_format": "parquet"}, "id", [[1], [2]]),
        ("z", {"codec": "gzip"}, "payload", [[b"1"], [b"2"]]),
    ):
        folder = tmp_path / name
        assert (folder / ".1").stat().st_size == (folder / ".2").stat().st_size
        flow = Flow(folder, **settings)
        for seed in (1, 2):
            os.rename(folder / f".{seed}", folder / "a")
            assert flow.read(column=column) == found[seed - 1]
            os.rename(folder / "a", folder / "b")  # renamed, it is not read again
            assert flow.read(column=column) == []
            os.rename(folder / "b", folder / "a")
        data = (folder / "a").read_bytes()
        (folder / "a").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        with pytest.raises(DataflowError, match=r"a has \d+ bytes, and had \d+ when it was read, .* may not change"):
            flow.read(column=column)


def test_files_keep_their_stream_when_they_are_rotated() -> None:
    rotated = ["app.log", "app.log.1", "app.log.12", "app.log-20261123", "app.log.2026-11-23_14-00-00", "app.log~"]
    assert {stream_of(name, 64) for name in rotated} == {zlib.crc32(b"app.log") % 64}
    for name in ("part-00001", "events-2026-11-23", "FlumeData.1365433", "a/b.csv", "x/.1"):
        assert stream_of(name, 64) == zlib.crc32(name.encode()) % 64


def test_an_object_that_is_written_anew_is_a_new_one(tmp_path: Path) -> None:
    memory, folder = fsspec.filesystem("memory"), f"/{tmp_path.name}"
    memory.makedirs(folder)
    flow = Flow(f"memory:/{folder}")
    try:
        for prefix in ("old", "new"):
            memory.pipe(f"{folder}/a", b"".join(line + b"\n" for line in lines(prefix, 3)))
            assert flow.drain() == lines(prefix, 3)
        memory.pipe(f"{folder}/a", b"".join(line + b"\n" for line in lines("new", 5)))
        assert flow.drain() == lines("new", 5)[3:]
    finally:
        memory.rm(folder, recursive=True)


def test_the_operating_system_tells_of_a_files_birth(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    os.utime(tmp_path / "a", ns=(1, 1_700_000_000_123_456_789))
    found, plain = file_status(str(tmp_path / "a")), os.stat(tmp_path / "a")
    assert (found.inode, found.size_bytes, found.modified_ns) == (plain.st_ino, 5, plain.st_mtime_ns)
    with (tmp_path / "a").open("rb") as file:
        assert file_status(file.fileno()) == found
    with pytest.raises(FileNotFoundError):
        file_status(str(tmp_path / "none"))


def test_files_on_hdfs_are_renamed_and_replaced(hdfs: HdfsServers) -> None:
    """HDFS tells no identity, but a rename keeps the time of modification."""
    url = f"{hdfs.url}/rotation-{uuid.uuid4().hex}"
    files, root = durable_file_system(url)
    files.make_directories(root)

    def write(name: str, *found: bytes) -> None:
        file = files.create(f"{root}/{name}")
        file.append(b"".join(line + b"\n" for line in found))
        file.sync()
        file.close()

    write("log", *lines("old", 10))
    flow = Flow(url)
    assert flow.read(ONE) == lines("old", 1)
    files.rename(f"{root}/log", f"{root}/log.1")
    write("log", *lines("new", 10))
    assert flow.drain() == lines("old", 10)[1:] + lines("new", 10)
    files.rename(f"{root}/log.1", f"{root}/log.2")
    assert flow.drain() == []
    files.remove(f"{root}/log")
    write("log", *lines("two", 10))
    assert flow.drain() == lines("two", 10)
    written = files.create(f"{root}/put._COPYING_")
    written.append(lines("put", 1)[0])
    written.sync()
    assert flow.drain() == []
    written.close()
    files.rename(f"{root}/put._COPYING_", f"{root}/put")
    assert flow.drain() == lines("put", 1)


@pytest.mark.parametrize("read_first", [1, 10**6])
@pytest.mark.parametrize("path", ["", "/log"])
def test_a_file_of_hdfs_that_is_appended_to_and_renamed_is_read_to_its_end(
    hdfs: HdfsServers, read_first: int, path: str
) -> None:
    """The append has moved its time of modification, all that a rename keeps. And all this happens while nobody looks,
    as over a restart."""
    url = f"{hdfs.url}/ended-{uuid.uuid4().hex}"
    files, root = durable_file_system(url)
    files.make_directories(root)
    write(files, f"{root}/log", *lines("old", 10))
    flow = Flow(url + path)
    found = flow.read(RoundLimits(read_first, 10**9))
    assert found == lines("old", min(read_first, 10))
    assert isinstance(files, HdfsFileSystem)
    with files._client.append(f"{root}/log") as log:
        log.write(b"".join(line + b"\n" for line in lines("end", 5)))
    files.rename(f"{root}/log", f"{root}/log.1")
    write(files, f"{root}/log", *lines("new", 20))
    assert found + flow.drain() == lines("old", 10) + lines("end", 5) + lines("new", 20)
    assert flow.reader().lag(flow.position) == 0


def write(files: DurableFileSystem, path: str, *found: bytes) -> None:
    """A file with these lines, complete."""
    file = files.create(path)
    file.append(b"".join(line + b"\n" for line in found))
    file.sync()
    file.close()


@pytest.mark.parametrize("count", [3, 10, 30])
def test_copy_and_truncate_on_hdfs_is_an_error_that_says_so(hdfs: HdfsServers, count: int) -> None:
    """Nothing there tells a file that was cut from another one of its name."""
    url = f"{hdfs.url}/cut-{uuid.uuid4().hex}"
    files, root = durable_file_system(url)
    files.make_directories(root)
    write(files, f"{root}/log", *lines("old", 10))
    flow = Flow(f"{url}/log")
    assert flow.read(ONE) == lines("old", 1)
    files.remove(f"{root}/log")
    write(files, f"{root}/log", *lines("new", count))
    with pytest.raises(DataflowError, match=r"log is another file now, and only 19 bytes .* Rotate files by renaming"):
        flow.read()


@pytest.mark.parametrize("count", [3, 10, 30])
def test_copy_and_truncate_of_an_object_is_an_error_that_says_so(tmp_path: Path, count: int) -> None:
    memory, folder = fsspec.filesystem("memory"), f"/{tmp_path.name}"
    memory.makedirs(folder)
    try:
        memory.pipe(f"{folder}/log", b"".join(line + b"\n" for line in lines("old", 10)))
        flow = Flow(f"memory:/{folder}")
        assert flow.read(ONE) == lines("old", 1)
        memory.copy(f"{folder}/log", f"{folder}/log.1")
        memory.pipe(f"{folder}/log", b"".join(line + b"\n" for line in lines("new", count)))
        with pytest.raises(DataflowError, match=r"log is another file now, .*Rotate files by renaming"):
            flow.read()
    finally:
        memory.rm(folder, recursive=True)


@pytest.mark.parametrize("path", ["", "log"])
def test_rotations_while_nobody_reads_are_followed_after_a_restart(tmp_path: Path, path: str) -> None:
    log = tmp_path / "log"
    put(log, *lines("one", 10))
    flow = Flow(tmp_path / path if path else tmp_path, settle_s=3600)
    found = flow.read(ONE)
    put(log, *lines("end", 5), append=True)
    os.rename(log, tmp_path / "log.1")
    put(log, *lines("two", 20))
    os.rename(tmp_path / "log.1", tmp_path / "log.2")
    os.rename(log, tmp_path / "log.1")
    put(log, *lines("six", 30))
    expected = lines("one", 10) + lines("end", 5) + ([] if path else lines("two", 20)) + lines("six", 30)
    assert sorted(found + flow.drain()) == sorted(expected)
    assert flow.reader().lag(flow.position) == 0
