"""Open files on HDFS under who follows a log: which DataNode is asked, when a file is opened anew, and when it is
closed. No cluster and no JVM."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from scribengin.errors import StoreUnreachable
from scribengin.filesystems import hdfs_open
from scribengin.filesystems.hdfs import HdfsFileSystem
from scribengin.filesystems.hdfs_open import OpenFileReader, OpenFiles
from scribengin.log import LogConfig, LogNamespace
from scribengin.log.store import hdfs
from scribengin.log.store.contract import Tail
from scribengin.log.store.hdfs import HdfsView
from scribengin.log.store.layout import slot_of
from scribengin.testing.log_samples import payloads_left
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin.testing.memory.segments import MEMORY_STORE, MemoryView

PATH = "/logs/log/1-1.log"
FIRST, SECOND = Tail(100, 1, 1, 1), Tail(200, 2, 2, 2)


class GrowingFile:
    """A file as it was opened, which grows by what is put into it."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        self.data = data
        self.reads = True
        self.closed = False

    @property
    def size(self) -> int:
        return len(self.data)

    def look(self) -> bool:
        return True

    def extend(self, size: int) -> bool:
        return size <= self.size

    def read(self, start: int, end: int) -> bytes:
        assert not self.closed
        if not self.reads:
            raise ConnectionError("EOFException")
        return self.data[start:end]

    def take_over(self, before: GrowingFile) -> None:
        before.close()

    def close(self) -> None:
        self.closed = True


class Files:
    """What is opened by name: a segment, and its tail."""

    def __init__(self) -> None:
        self.segment = bytes(range(200))
        self.tail = slot_of(FIRST)
        self.opened: list[GrowingFile] = []

    def open(self, path: str) -> GrowingFile:
        self.opened.append(GrowingFile(path, self.tail if path.endswith(".tail") else self.segment))
        return self.opened[-1]


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Files:
    """Those of a segment that is being written. They are not opened anew because time has passed."""
    made = Files()
    monkeypatch.setattr(OpenFiles, "open", lambda _files, path: made.open(path))
    monkeypatch.setattr(HdfsFileSystem, "open_complete", lambda _files, _path: None)
    monkeypatch.setattr(hdfs, "_ANEW_S_MIN", 1e6)
    monkeypatch.setattr(hdfs, "_ANEW_S_MAX", 1e6)
    return made


@pytest.fixture
def view(files: Files) -> HdfsView:
    return HdfsView(HdfsFileSystem("nowhere:1"), PATH)


def test_a_tail_whose_read_has_failed_is_opened_anew(files: Files, view: HdfsView) -> None:
    assert view.tail() == FIRST
    [before] = files.opened
    files.tail = before.data = slot_of(FIRST) + slot_of(SECOND)
    before.reads = False
    with pytest.raises(StoreUnreachable, match="EOFException"):
        view.tail()
    assert before.closed
    assert view.tail() == view.tail() == SECOND
    assert len(files.opened) == 2


def test_a_segment_whose_read_has_failed_is_opened_anew(files: Files, view: HdfsView) -> None:
    assert view.size() == 200
    [before] = files.opened
    before.reads = False
    with pytest.raises(StoreUnreachable, match="EOFException"):
        view.read(0, 200)
    assert before.closed
    assert view.read(0, 200).to_pybytes() == files.segment
    assert len(files.opened) == 2


def test_the_tail_of_a_complete_segment_is_let_go_of(files: Files, view: HdfsView) -> None:
    assert (view.tail(), view.size()) == (FIRST, 200)
    for _ in range(2):
        view.leave_tail()
    assert [file.closed for file in files.opened] == [True, False]
    assert view.tail() == FIRST
    view.close()
    assert [file.closed for file in files.opened] == [True, True, True]


def test_who_follows_a_log_lets_go_of_the_tail_of_each_segment_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    followed: list[MemoryView] = []
    left: list[MemoryView] = []
    tail = MemoryView.tail
    monkeypatch.setattr(MemoryView, "tail", lambda view: (followed.append(view), tail(view))[1])
    monkeypatch.setattr(MemoryView, "leave_tail", lambda view: left.append(view))
    disk = MemoryDisk("rolls")
    with MemoryEnsemble().connect() as session:
        LogNamespace.bind("/logs", disk.name, registry=session, store=MEMORY_STORE)
        with LogNamespace.open("/logs", registry=session) as logs:
            logs.create("log", LogConfig(segment_bytes_max=4096))
            with logs.open_writer("log") as writer, logs.open_reader("log") as reader:
                for number in range(4):
                    writer.write(b"%d" % number + bytes(3000)).result()
                    assert len(payloads_left(reader)) == 1
                assert len(set(followed)) > 1
                assert set(left) == set(followed[:-1]) - {followed[-1]}


class Asked:
    """Stands for `FileEnd` and `ReplicaLengths`: DataNodes that hang, or tell of so many bytes."""

    def __init__(self, hang: set[str]) -> None:
        self.hang = hang
        self.nodes = ["a:1", "b:1", "c:1"]
        self.asked: list[str] = []
        self.open = 0

    def end(self, _stream: object) -> Any:
        block = SimpleNamespace(getStartOffset=lambda: 0)
        return SimpleNamespace(growing_block=lambda: block, move=lambda _block, _length: None)

    def lengths(self, _block: object, node: str) -> Any:
        self.open += 1

        def ask(_block: object) -> int:
            self.asked.append(node)
            if node in self.hang:
                raise TimeoutError
            return 64

        return SimpleNamespace(is_of=lambda _block: True, ask=ask, close=self.close)

    def close(self) -> None:
        self.open -= 1


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch) -> Callable[[Asked], Callable[[], OpenFileReader]]:
    """Opens a file of 32 bytes, as often as that is called."""

    def opening(asked: Asked) -> Callable[[], OpenFileReader]:
        monkeypatch.setattr(hdfs_open, "FileEnd", asked.end)
        monkeypatch.setattr(hdfs_open, "ReplicaLengths", asked.lengths)
        monkeypatch.setattr(hdfs_open, "data_nodes", lambda _block: asked.nodes)
        stream = SimpleNamespace(getVisibleLength=lambda: 32, close=lambda: None)
        return lambda: OpenFileReader(PATH, stream, 1000)

    return opening


def test_where_a_data_node_does_not_answer_in_time_another_one_is_asked(asking: Any) -> None:
    asked = Asked(hang={"a:1"})
    opened = asking(asked)
    before = opened()
    assert not before.look()
    assert (asked.asked, asked.open) == (["a:1"], 0)
    asked.nodes = ["c:1", "a:1", "b:1"]  # the NameNode names them in another order each time
    file = opened()
    file.take_over(before)
    assert file.look()
    assert (asked.asked, file.size) == (["a:1", "c:1"], 64)
    asked.hang.add("c:1")
    assert (file.look(), file.look()) == (False, True)
    assert asked.asked == ["a:1", "c:1", "c:1", "b:1"]


def test_where_none_has_answered_all_are_asked_once_more(asking: Any) -> None:
    asked = Asked(hang={"a:1", "b:1", "c:1"})
    file = asking(asked)()
    assert not any(file.look() for _ in range(4))
    assert asked.asked == ["a:1", "b:1", "c:1", "a:1"]
    asked.hang.clear()
    assert file.look()


@pytest.mark.parametrize("fails", ["getFileStatus", "getVisibleLength"])
def test_a_file_that_cannot_be_opened_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    def failing(*_arguments: object) -> object:
        raise ConnectionError(fails)

    asked = Asked(set())
    streams: list[str] = []
    stream = SimpleNamespace(getVisibleLength=failing, close=streams.clear)
    client = SimpleNamespace(
        open=lambda _path: (streams.append("open"), stream)[1],
        getFileStatus=failing if fails == "getFileStatus" else lambda _path: SimpleNamespace(getBlockSize=lambda: 1000),
    )
    monkeypatch.setattr(hdfs_open, "_client", lambda _url: client)
    monkeypatch.setattr(OpenFiles, "_path", lambda _files, path: path)
    monkeypatch.setattr(hdfs_open, "FileEnd", asked.end)
    with pytest.raises(ConnectionError, match=fails):
        OpenFiles("hdfs://nowhere:1").open(PATH)
    assert streams == []
