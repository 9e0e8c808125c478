"""Every file system that files can be written on exactly once: what the file connector asks of it, on the real one."""

from __future__ import annotations

import itertools
import multiprocessing
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry

from scribengin.connectors.files.formats.lines import encode
from scribengin.errors import ConfigInvalid, DataflowError, SystemUnreachable
from scribengin.filesystems.contract import DurableFileSystem
from scribengin.filesystems.fsspec import FsspecDurableFileSystem
from scribengin.filesystems.paths import durable_file_system, file_system
from scribengin.testing.conformance.files import (
    FILE_SYSTEM_CHECKS,
    Check,
    check_file_system,
    contents,
    write_file,
)
from scribengin.testing.memory.files import MemoryFiles
from scribengin.testing.waiting import wait_until
from scribengin_dev.servers.hadoop.hdfs import HdfsServers

KINDS = ["local", "in memory", "memory", "file over fsspec", pytest.param("hdfs", marks=pytest.mark.servers)]


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[DurableFileSystem, str]]:
    """A file system and a directory of one's own on it, which is not there yet."""
    name = uuid.uuid4().hex
    if request.param == "hdfs":
        hdfs: HdfsServers = request.getfixturevalue("hdfs")
        yield durable_file_system(f"{hdfs.url}/file-systems/{name}")
    elif request.param == "memory":
        yield durable_file_system(f"memory://{name}/place")
    elif request.param == "in memory":
        yield MemoryFiles(), "/some/place"
    elif request.param == "local":
        yield durable_file_system(str(tmp_path / "place"))
    else:
        yield FsspecDurableFileSystem(fsspec.filesystem("file")), str(tmp_path / "place")


@pytest.mark.parametrize("check", FILE_SYSTEM_CHECKS, ids=lambda check: check.__name__)
def test_a_file_system_keeps_its_promises(check: Check, place: tuple[DurableFileSystem, str]) -> None:
    check(*place)


def test_a_file_system_that_breaks_a_promise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryFiles, "_remove", lambda self, path: None)
    with pytest.raises(AssertionError, match="a file that was removed should be"):
        check_file_system(MemoryFiles(), "/place")


def test_lines_of_an_arrow_column_are_written_as_they_are(place: tuple[DurableFileSystem, str]) -> None:
    files, root = place
    files.make_directories(root)
    batch = pa.record_batch({"payload": pa.array(["Grüße".encode(), b"", bytes(range(11, 256))], pa.binary())})
    lines = encode(batch, what="a test")
    write_file(files, f"{root}/f", lines, lines[:0])
    assert contents(files, f"{root}/f") == [bytes(lines)]


def test_an_interrupted_move_of_an_object_store_is_ended(tmp_path: Path) -> None:
    files, root = durable_file_system(f"memory://{tmp_path.name}-{uuid.uuid4().hex}")
    files.make_directories(root)
    for name in ("f", "copy"):
        write_file(files, f"{root}/{name}", b"the same")
    files.rename(f"{root}/f", f"{root}/copy")
    assert (files.names(root), contents(files, f"{root}/copy")) == (["copy"], [b"the same"])


class Store(MemoryFileSystem):  # type: ignore[misc]  # fsspec ships no types
    """An object store: what is first in a path is a bucket, and who may do what is known."""

    protocol = "s3"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = ["", "/mine", "/theirs"]

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return f"/{str(path).removeprefix('s3://').strip('/')}"

    def unstrip_protocol(self, name: str) -> str:
        return f"s3://{name.strip('/')}"

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        if path.strip("/").startswith("theirs"):
            raise PermissionError("AccessDenied")
        return super().ls(path, detail=detail, **options)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("mine/out", None),
        ("mine", None),
        ("theirs/out", "s3://theirs/out cannot be written, for this user may not list it (AccessDenied)"),
        ("nobodys/out", "s3://nobodys/out cannot be written, for there is no s3://nobodys"),
    ],
)
def test_an_object_store_is_asked_whether_it_can_be_written(
    monkeypatch: pytest.MonkeyPatch, path: str, why: str | None
) -> None:
    monkeypatch.setitem(_registry, "s3", Store)
    files, root = durable_file_system(f"s3://{path}")
    before = dict(Store.store)
    assert files.unwritable(root) == why
    assert Store.store == before, "nothing is tried"


def test_who_has_shown_no_credentials_writes_nothing() -> None:
    files = FsspecDurableFileSystem(Store(anon=True))
    assert "opened without credentials" in str(files.unwritable("/mine/out"))


def test_a_local_path_is_looked_at_as_one_by_whatever_url(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert FsspecDurableFileSystem(fsspec.filesystem("file")).unwritable(str(tmp_path / "out")) is None
    told = FsspecDurableFileSystem(fsspec.filesystem("file")).unwritable(str(tmp_path / "file" / "out"))
    assert f"{tmp_path / 'file'} is no directory" in str(told)


def test_a_protocol_that_is_only_read_is_no_sink() -> None:
    with pytest.raises(ConfigInvalid, match=r"data:x cannot be a sink|data://x cannot be a sink"):
        durable_file_system("data://x")
    with pytest.raises(ConfigInvalid, match="'nosuch://' cannot be opened here"):
        file_system("nosuch://x")


# -- what is HDFS's own


def test_a_file_on_hdfs_that_is_written_to_shows_a_size_before_it_can_be_read(hdfs: HdfsServers) -> None:
    files, root = durable_file_system(f"{hdfs.url}/growing-{uuid.uuid4().hex}")
    files.make_directories(root)
    file = files.create(f"{root}/f")
    file.append(b"x" * 1000)
    file.sync()
    info = files.find(root)[0]
    assert (info.size_bytes, files.readable(f"{root}/f", info.size_bytes)) == (1000, 0)
    assert files.read(f"{root}/f", 0, 1000) == b""
    file.close()
    assert (files.readable(f"{root}/f", 1000), len(files.read(f"{root}/f", 0, 1000))) == (1000, 1000)


def test_a_file_on_hdfs_that_was_removed_refuses_its_writer(hdfs: HdfsServers) -> None:
    files, root = durable_file_system(f"{hdfs.url}/stale-{uuid.uuid4().hex}")
    files.make_directories(root)
    stale = files.create(f"{root}/f")
    stale.append(b"x")
    stale.sync()
    files.remove(f"{root}/f")
    with pytest.raises(DataflowError, match=r"f: it was deleted while it was written to"):
        stale.close()
    stale.close()
    assert files.names(root) == []


def test_a_file_on_hdfs_that_was_removed_is_read_whole_or_its_reader_is_told(hdfs: HdfsServers) -> None:
    files, root = durable_file_system(f"{hdfs.url}/removed-{uuid.uuid4().hex}")
    files.make_directories(root)
    write_file(files, f"{root}/f", b"x" * 3_000_000)
    readers = iter(files.snapshots([f"{root}/f"] * 1000))
    files.remove(f"{root}/f")

    def is_gone() -> bool:
        try:
            assert sum(map(len, next(readers))) == 3_000_000
        except FileNotFoundError:
            return True
        return False

    wait_until(is_gone, 120, "the DataNode to drop the blocks")


def test_the_default_file_system_is_that_of_the_configuration(
    hdfs: HdfsServers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from scribengin.filesystems.hdfs import HdfsFileSystem

    monkeypatch.setenv("HADOOP_CONF_DIR", str(hdfs.conf_directory))
    files = HdfsFileSystem("")
    assert files.resource("/x/../y/") == f"{hdfs.url}/y"
    assert files.is_directory("/")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    with pytest.raises(ConfigInvalid, match="let HADOOP_CONF_DIR name the directory"):
        HdfsFileSystem("")
    (tmp_path / "core-site.xml").write_text("<configuration>")
    with pytest.raises(ConfigInvalid, match=r"core-site\.xml is not XML"):
        HdfsFileSystem("")


def test_a_name_node_that_is_not_there_is_one_line(
    hdfs: HdfsServers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    site = "<configuration><property><name>dfs.client.failover.max.attempts</name><value>1</value></property>"
    (tmp_path / "hdfs-site.xml").write_text(f"{site}</configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    from scribengin.filesystems.hdfs import HdfsFileSystem

    with pytest.raises(SystemUnreachable, match=r"^cannot look at hdfs://localhost:1/x: Connection refused"):
        HdfsFileSystem("localhost:1").size("/x")


def test_a_process_that_was_forked_from_one_that_used_hdfs_says_so(hdfs: HdfsServers) -> None:
    files, root = file_system(f"{hdfs.url}/")
    assert files.is_directory(root)
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=_look, args=(hdfs.url, queue))
    child.start()
    said = queue.get()
    child.join()
    assert "was forked from" in said


def _look(url: str, queue: multiprocessing.SimpleQueue[str]) -> None:  # type: ignore[type-arg]
    files, root = file_system(f"{url}/")
    try:
        queue.put(str(files.is_directory(root)))
    except DataflowError as error:
        queue.put(str(error))


def test_threads_share_a_client(hdfs: HdfsServers) -> None:
    from concurrent.futures import ThreadPoolExecutor

    files, root = durable_file_system(f"{hdfs.url}/threads-{uuid.uuid4().hex}")
    files.make_directories(root)

    def work(thread: int) -> None:
        for number in range(5):
            write_file(files, f"{root}/{thread}-{number}", b"%d" % thread)
            files.rename(f"{root}/{thread}-{number}", f"{root}/done-{thread}-{number}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert files.names(root) == sorted(f"done-{t}-{n}" for t, n in itertools.product(range(8), range(5)))


def test_without_its_package_hdfs_is_refused_with_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    monkeypatch.delitem(sys.modules, "scribengin.filesystems.hdfs", raising=False)
    with pytest.raises(ConfigInvalid, match=r"pip install 'scribengin\[hdfs\]'"):
        file_system("hdfs://without-the-package:1/x")
