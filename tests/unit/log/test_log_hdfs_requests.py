"""What it costs to open and read a segment on HDFS, in requests: a small log is all opening."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from scribengin.filesystems.hdfs import HdfsFileSystem
from scribengin.log.store import hdfs
from scribengin.log.store.hdfs import HdfsView

PATH = "/logs/log/1-1.log"
BLOCK = 128 * 1024 * 1024


class Cluster:
    """One file, as hdfs-native shows it, and what was asked for it. It is `shown_bytes` long where it is open."""

    def __init__(self, data: bytes, shown_bytes: int | None = None) -> None:
        self.data = data
        self.shown_bytes = len(data) if shown_bytes is None else shown_bytes
        self.asked: list[Any] = []

    def read(self, path: str) -> Cluster:
        self.asked.append("blocks")
        return self

    def __len__(self) -> int:
        return self.shown_bytes

    def get_file_info(self, path: str) -> SimpleNamespace:
        self.asked.append("status")
        return SimpleNamespace(length=len(self.data), blocksize=BLOCK, modification_time=2, access_time=1)

    def read_range(self, start: int, length: int) -> bytes:
        self.asked.append((start, length))
        return self.data[start : start + length]


def view_of(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> HdfsView:
    files = HdfsFileSystem("nowhere:1")
    monkeypatch.setattr(HdfsFileSystem, "_client", cluster)
    return HdfsView(files, PATH)


def test_a_small_segment_is_read_by_one_request_from_wherever_it_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytes(range(256)) * 1000
    cluster = Cluster(data)
    view = view_of(cluster, monkeypatch)
    assert view.size() == len(data)
    for start, length in ((len(data) - 64, 64), (0, 64), (64, 5000), (len(data) - 10, 50), (len(data) + 5, 3)):
        assert view.read(start, length).to_pybytes() == data[start : start + length]
    assert cluster.asked == ["blocks", "status", (0, len(data))]


def test_a_larger_one_is_read_from_where_it_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdfs, "_WHOLE_BYTES_MAX", 999)
    monkeypatch.setattr(hdfs, "WINDOW_BYTES", 400)
    data = bytes(range(250)) * 4
    cluster = Cluster(data)
    view = view_of(cluster, monkeypatch)
    for start, length in ((900, 64), (0, 64), (64, 300), (390, 50)):
        assert view.read(start, length).to_pybytes() == data[start : start + length]
    assert cluster.asked == ["blocks", "status", (900, 100), (0, 400), (390, 400)]


def test_a_request_that_fails_leaves_what_was_read_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdfs, "_WHOLE_BYTES_MAX", 0)
    monkeypatch.setattr(hdfs, "WINDOW_BYTES", 100)
    data = bytes(range(250))
    cluster = Cluster(data)
    view = view_of(cluster, monkeypatch)
    assert view.read(0, 50).to_pybytes() == data[:50]

    def fails(_start: int, _length: int) -> bytes:
        raise FileNotFoundError(PATH)

    with monkeypatch.context() as patch:
        patch.setattr(cluster, "read_range", fails)
        with pytest.raises(FileNotFoundError):
            view.read(150, 50)
    assert view.read(20, 50).to_pybytes() == data[20:70]


def test_what_the_name_node_knows_more_of_is_open_still(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(bytes(100), shown_bytes=0)
    monkeypatch.setattr(HdfsFileSystem, "_client", cluster)
    assert HdfsFileSystem("nowhere:1").open_complete(PATH) is None
