"""The store of HDFS keeps what every segment store promises, on a real HDFS; and what only it has."""

from __future__ import annotations

import pickle
import socket
import uuid

import pytest

from scribengin.base.jvm import is_java, java, java_error, start_jvm
from scribengin.errors import ConfigInvalid, LogNotFound, LogWriteFailed, StoreNotMounted
from scribengin.filesystems.hdfs_growth import ReplicaLengths, data_nodes
from scribengin.filesystems.hdfs_open import OpenFileReader, OpenFiles
from scribengin.log.store import hdfs as hdfs_store
from scribengin.log.store.contract import SegmentName
from scribengin.log.store.hdfs import HdfsSegmentStore
from scribengin.log.store.opening import open_store, store_kind
from scribengin.testing.conformance.segments import SEGMENT_STORE_CHECKS, Check, Writing, entries_in
from scribengin.testing.log_samples import records_entry
from scribengin_dev.servers.hadoop.hdfs import HdfsServers

LOG = "a-log"
NAME = SegmentName(LOG, 1, 1)


@pytest.fixture
def location(hdfs: HdfsServers) -> str:
    """A directory of the test's own."""
    return f"{hdfs.url}/logs-{uuid.uuid4().hex}"


@pytest.fixture
def store(location: str) -> HdfsSegmentStore:
    """One with a log."""
    made = HdfsSegmentStore(location)
    made.create_log(LOG)
    return made


@pytest.mark.parametrize("check", SEGMENT_STORE_CHECKS, ids=lambda check: check.__name__)
def test_a_segment_store_on_hdfs_keeps_its_promises(check: Check, store: HdfsSegmentStore) -> None:
    check(store, LOG)


def test_what_was_acknowledged_is_in_the_segment_that_another_process_has_fenced(
    store: HdfsSegmentStore, location: str
) -> None:
    writing = Writing(store.create(NAME, fsync=True))
    for count in range(1, 6):
        writing.append(records_entry([b"x" * 1000] * count))
    acknowledged = writing.at
    writing.write(records_entry([b"in flight"]))
    HdfsSegmentStore(location).fence(NAME)
    view = store.open(NAME)
    assert view.size() >= acknowledged.end
    assert entries_in(view, acknowledged.end) == acknowledged.entries
    store.make_durable(NAME)
    assert store.open(NAME).read(0, acknowledged.end).equals(view.read(0, acknowledged.end))


def test_a_segment_of_many_blocks_is_read_whole_while_it_is_written(
    store: HdfsSegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = Writing(store.create(NAME, fsync=True))
    following = store.open(NAME)
    for count in range(1, 10):
        writing.append(records_entry([bytes(1 << 20)] * 8))  # 72 MiB: more than a block
        assert following.tail() == writing.at
        assert entries_in(following, writing.at.end) == count
    view = store.open(NAME)
    assert view.size() == writing.at.end > 64 << 20
    assert entries_in(view, writing.at.end) == 9
    assert view.read((64 << 20) - 100, 200).size == 200


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that are opened by name, by Hadoop's client."""
    paths: list[str] = []
    plain = OpenFiles.open

    def noted(files: OpenFiles, path: str) -> OpenFileReader:
        paths.append(path)
        return plain(files, path)

    monkeypatch.setattr(OpenFiles, "open", noted)
    return paths


def test_a_tail_that_grows_is_followed_without_anything_being_opened_anew(
    store: HdfsSegmentStore, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hdfs_store, "_ANEW_S_MIN", 1e6)
    monkeypatch.setattr(hdfs_store, "_ANEW_S_MAX", 1e6)
    writing = Writing(store.create(NAME, fsync=True))
    writing.append(records_entry([b"first"]))
    view = store.open(NAME)
    assert (view.tail(), entries_in(view, writing.at.end)) == (writing.at, 1)
    opened.clear()
    for count in range(2, 12):
        writing.append(records_entry([b"x" * 1000]))
        assert (view.tail(), entries_in(view, writing.at.end)) == (writing.at, count)
    assert opened == []


@pytest.mark.parametrize("answer", ["nothing new", "nothing at all", "no answer"])
def test_a_tail_is_followed_where_the_data_node_that_was_asked_was_left_behind(
    store: HdfsSegmentStore, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    waits_s = 0.0 if answer == "nothing new" else 1e6
    monkeypatch.setattr(hdfs_store, "_ANEW_S_MIN", waits_s)
    monkeypatch.setattr(hdfs_store, "_ANEW_S_MAX", waits_s)
    writing = Writing(store.create(NAME, fsync=True))
    writing.append(records_entry([b"first"]))
    view = store.open(NAME)
    assert view.tail() == writing.at

    def ask(_lengths: ReplicaLengths, _block: object) -> int:
        if answer == "no answer":
            raise ConnectionError
        return 0 if answer == "nothing new" else -1

    monkeypatch.setattr(ReplicaLengths, "ask", ask)
    for _ in range(3):
        writing.append(records_entry([b"another"]))
        assert view.tail() == writing.at


def test_a_data_node_that_hangs_is_not_waited_for_without_an_end() -> None:
    start_jvm()
    with socket.create_server(("127.0.0.1", 0)) as hanging:  # it answers as a process does that was stopped
        port = hanging.getsockname()[1]
        node = java("org.apache.hadoop.hdfs.protocol.DatanodeID")("127.0.0.1", "localhost", "x", port, 0, 0, port)
        info = java("org.apache.hadoop.hdfs.protocol.DatanodeInfo$DatanodeInfoBuilder")().setNodeID(node).build()
        block = java("org.apache.hadoop.hdfs.protocol.LocatedBlock")(
            java("org.apache.hadoop.hdfs.protocol.ExtendedBlock")("pool", 1), [info]
        )
        lengths = ReplicaLengths(block, data_nodes(block)[0])
        with pytest.raises(java_error()) as raised:
            lengths.ask(block)
        assert is_java(raised.value, "SocketTimeoutException")
        lengths.close()


def test_a_place_is_sent_to_another_process(store: HdfsSegmentStore) -> None:
    writing = Writing(store.create(NAME, fsync=True))
    writing.append(records_entry([b"x"]))
    place = store.location(NAME)
    writing.appender.close()
    assert pickle.loads(pickle.dumps(place)).open().read(0, 10_000).size == writing.at.end


def test_a_segment_that_is_gone_cannot_be_made_durable(store: HdfsSegmentStore) -> None:
    with pytest.raises(LogWriteFailed, match="it is gone"):
        store.make_durable(NAME)
    with pytest.raises(LogNotFound, match="is gone"):
        store.location(NAME).open()


def test_a_directory_of_another_namespace_is_told(location: str) -> None:
    kind = store_kind("hdfs")
    token = kind.prepare(location)
    assert kind.prepare(location) == token
    open_store("hdfs", location, token).check_mounted()
    with pytest.raises(StoreNotMounted, match=r"should hold 0000.*open the namespace again"):
        open_store("hdfs", location, "0" * 32).check_mounted()
    open_store("hdfs", location, token).create_log(LOG)
    with pytest.raises(StoreNotMounted):
        open_store("hdfs", location, "0" * 32).create(NAME, fsync=True)
    with pytest.raises(StoreNotMounted, match="there is none"):
        open_store("hdfs", f"{location}-other", token).names(LOG)


@pytest.mark.parametrize("wrong", ["/logs", "hdfs://host:1", "hdfs://host:1/", "file:///logs"])
def test_a_place_that_is_none_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigInvalid, match="no directory of HDFS"):
        store_kind("hdfs").resolved(wrong)
