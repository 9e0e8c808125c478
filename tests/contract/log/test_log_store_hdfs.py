"""The store of HDFS keeps what every segment store promises, on a real HDFS; and what only it has."""

from __future__ import annotations

import pickle
import uuid

import pytest

from scribengin.errors import ConfigInvalid, LogNotFound, LogWriteFailed, StoreNotMounted
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
    for _ in range(9):
        writing.append(records_entry([bytes(1 << 20)] * 8))  # 72 MiB: more than a block
    view = store.open(NAME)
    assert view.size() == writing.at.end > 64 << 20
    assert entries_in(view, writing.at.end) == 9
    assert view.read((64 << 20) - 100, 200).size == 200


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
    with pytest.raises(StoreNotMounted, match="should hold 0000"):
        open_store("hdfs", location, "0" * 32).check_mounted()
    with pytest.raises(StoreNotMounted, match="there is none"):
        open_store("hdfs", f"{location}-other", token).names(LOG)


@pytest.mark.parametrize("wrong", ["/logs", "hdfs://host:1", "hdfs://host:1/", "file:///logs"])
def test_a_place_that_is_none_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigInvalid, match="no directory of HDFS"):
        store_kind("hdfs").resolved(wrong)
