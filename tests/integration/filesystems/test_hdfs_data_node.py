"""A DataNode that dies under files that are being written: an error soon, and the next file is written. A log waits for
its second copy. Who follows a log goes round a DataNode that hangs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from scribengin.errors import StoreUnreachable, SystemUnreachable
from scribengin.filesystems import hdfs
from scribengin.filesystems.hdfs_growth import ReplicaLengths
from scribengin.filesystems.paths import durable_file_system
from scribengin.log.store.contract import SegmentName
from scribengin.log.store.hdfs import HdfsSegmentStore
from scribengin.testing.conformance.segments import Writing, entries_in
from scribengin.testing.log_samples import records_entry
from scribengin.testing.standstill import standing_still
from scribengin.testing.waiting import wait_until
from scribengin_dev.servers.hadoop.hdfs import HdfsServers

FILES = 4
DATA = b"x" * 300_000


@pytest.fixture
def two_data_nodes(own_hdfs: HdfsServers) -> Iterator[HdfsServers]:
    """HDFS whose first DataNode a test kills once."""
    yield own_hdfs
    own_hdfs.start_data_node(0)


@pytest.mark.full
def test_open_files_of_a_dead_data_node_are_given_up_and_new_ones_are_written(
    two_data_nodes: HdfsServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, folder = durable_file_system(f"{two_data_nodes.url}/staged")
    files.make_directories(folder)
    opened = [files.create(f"{folder}/{number}") for number in range(FILES)]
    for number, file in enumerate(opened):
        file.append(DATA)
        if number % 2:
            file.sync()
    monkeypatch.setattr(hdfs, "ANSWER_S", 10.0)  # what came before had to be answered
    two_data_nodes.kill_data_node(0)
    for file in opened:
        with suppress(SystemUnreachable):
            file.append(DATA)
            file.sync()
        file.close()
    tried = 0

    def another_is_written() -> bool:
        nonlocal tried
        tried += 1
        with suppress(SystemUnreachable):
            file = files.create(f"{folder}/again-{tried}")
            file.append(DATA)
            file.sync()
            file.close()
            return files.size(f"{folder}/again-{tried}") == len(DATA)
        return False

    wait_until(another_is_written, 180, "a file on the other DataNode")


def test_what_has_one_copy_left_is_not_acknowledged_to_a_log(two_data_nodes: HdfsServers) -> None:
    log = "a-log"
    store = HdfsSegmentStore(f"{two_data_nodes.url}/logs")
    store.create_log(log)
    first, *others = (SegmentName(log, number, number) for number in range(1, 1000))
    writing = Writing(store.create(first, fsync=True))
    writing.append(records_entry([b"on two disks"]))
    acknowledged = writing.at
    two_data_nodes.kill_data_node(0)
    with pytest.raises(StoreUnreachable, match="1 of its DataNodes is left, and 2 are wanted: start more, or let "):
        writing.append(records_entry([b"on one"]))

    def another_is_written() -> bool:
        writing = Writing(store.create(others.pop(0), fsync=True))
        with suppress(StoreUnreachable):
            writing.append(records_entry([b"on two disks, or not at all"]))
            return True
        return False

    assert not another_is_written()
    store.fence(first)
    assert entries_in(store.open(first), acknowledged.end) == acknowledged.entries
    two_data_nodes.start_data_node(0)
    wait_until(another_is_written, 180, "a segment on both DataNodes")


@pytest.mark.full
def test_a_tail_is_followed_round_a_data_node_that_hangs(
    own_hdfs: HdfsServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    made = ReplicaLengths.__init__

    def noted(lengths: ReplicaLengths, block: object, node: str) -> None:
        asked.append(node)
        made(lengths, block, node)

    monkeypatch.setattr(ReplicaLengths, "__init__", noted)
    name = SegmentName("followed", 1, 1)
    store = HdfsSegmentStore(f"{own_hdfs.url}/logs")
    store.create_log(name.directory)
    writing = Writing(store.create(name, fsync=True))
    view = store.open(name)
    for count in range(2):
        writing.append(records_entry([b"x"] * (count + 1)))
        assert view.tail() == writing.at
    writing.append(records_entry([b"shown by the other DataNode"]))
    sites = {number: own_hdfs.folder / f"conf-datanode-{number}" / "hdfs-site.xml" for number in range(2)}
    port = asked[0].rpartition(":")[2]
    [number] = [number for number, site in sites.items() if f":{port}</value>" in site.read_text()]
    process = own_hdfs.pids[f"datanode-{number}"]
    with closing(view), standing_still(process):
        assert view.tail() == writing.at
        assert entries_in(view, writing.at.end) == writing.at.entries
        view.tail()
        assert len(asked) == len(set(asked)) == 2
        own_hdfs.await_ready()
