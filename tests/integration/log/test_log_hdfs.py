"""Logs whose segments are files of HDFS: what the log promises holds there as well."""

from __future__ import annotations

import uuid

import pytest

from scribengin.errors import ConfigInvalid, Fenced, NamespaceNotBound
from scribengin.log import DLSN, LogConfig, LogNamespace, migrate_namespace
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import fill_log, payloads_left, payloads_planned, payloads_read
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryEnsemble, MemoryRegistry
from scribengin.testing.memory.segments import MEMORY_STORE
from scribengin_dev.servers.hadoop.hdfs import HdfsServers
from tests.dying import Died, Stopped, die, stop_here

LOG = "flights/0"


@pytest.fixture
def namespace(memory_registry: MemoryRegistry, hdfs: HdfsServers) -> LogNamespace:
    """A new one, with an empty log of small segments."""
    LogNamespace.bind("/logs", f"{hdfs.url}/{uuid.uuid4().hex}", registry=memory_registry, store="hdfs")
    made = LogNamespace.open("/logs", registry=memory_registry)
    made.create(LOG, LogConfig(segment_bytes_max=4096))
    return made


def test_a_namespace_says_where_on_hdfs_it_is(memory_registry: MemoryRegistry, hdfs: HdfsServers) -> None:
    with pytest.raises(ConfigInvalid, match="no directory of HDFS"):
        LogNamespace.bind("/logs", "/tmp/logs", registry=memory_registry, store="hdfs")
    place = f"{hdfs.url}/{uuid.uuid4().hex}"
    for spelled in (place, f"{place}/", f"{place}/../{place.rpartition('/')[2]}"):
        assert LogNamespace.bind("/logs", spelled, registry=memory_registry, store="hdfs").location == place
    with pytest.raises(NamespaceNotBound, match="is bound to"):
        LogNamespace.bind("/logs", f"{place}-other", registry=memory_registry, store="hdfs")


def test_what_is_acknowledged_is_read_across_segments_and_given_up_from_the_beginning(namespace: LogNamespace) -> None:
    payloads = fill_log(namespace, LOG, 7, 3)
    assert [segment.segment for segment in namespace.segments(LOG)] == [1, 2, 3]
    assert payloads_read(namespace, LOG) == payloads
    with namespace.open_reader(LOG) as reader:
        assert [payload for part in payloads_planned(reader, DLSN(1, 0, 0), 5) for payload in part] == payloads
    assert namespace.truncate(LOG, DLSN(2, 1, 2))
    namespace.purge(LOG)
    assert payloads_read(namespace, LOG) == payloads[14:]
    assert [segment.segment for segment in namespace.segments(LOG)] == [2, 3]


def test_a_reader_follows_the_writer(namespace: LogNamespace) -> None:
    with namespace.open_writer(LOG) as writer, namespace.open_reader(LOG) as reader:
        for number in range(12):
            writer.write(b"%d" % number).result(60)
            assert payloads_left(reader) == [b"%d" % number]


@pytest.mark.usefixtures("unheard")
def test_a_writer_that_lost_the_log_acknowledges_nothing_more(
    ensemble: MemoryEnsemble, namespace: LogNamespace
) -> None:
    first = namespace.open_writer(LOG)
    first.write(b"acknowledged").result(60)
    with ensemble.connect() as session, LogNamespace.open("/logs", registry=session) as elsewhere:
        with elsewhere.open_writer(LOG, steal=True) as second:
            assert isinstance(first.write(b"late").exception(60), Fenced)
            second.write(b"next").result(60)
        first.abort()
        assert payloads_read(elsewhere, LOG) == [b"acknowledged", b"next"]


FIRST = pytest.param("log.segment_write:after", marks=pytest.mark.full)


@pytest.mark.parametrize("stop", [FIRST, "log.segment_sync:after", "log.tail_write:before"])
def test_a_writer_goes_on_where_one_has_died(namespace: LogNamespace, stop: str) -> None:
    first = namespace.open_writer(LOG)
    first.write(b"first").result(60)
    with at_failpoint(stop, stop_here):
        assert isinstance(first.write(b"perhaps").exception(60), Stopped)
    first.abort()
    with namespace.open_writer(LOG, steal=True) as writer:
        writer.write(b"last").result(60)
    assert payloads_read(namespace, LOG) in ([b"first", b"last"], [b"first", b"perhaps", b"last"])


@pytest.mark.parametrize("stop", [FIRST, "log.segment_settle:before", "log.migrate_begin:after"])
def test_a_move_to_hdfs_that_was_killed_is_ended_by_the_next_one(
    ensemble: MemoryEnsemble, memory_registry: MemoryRegistry, hdfs: HdfsServers, stop: str
) -> None:
    """Also where whoever was killed has a file there open yet, which nobody has synced."""
    left = MemoryDisk(f"left {stop}")
    LogNamespace.bind("/logs", left.name, registry=memory_registry, store=MEMORY_STORE)
    old = LogNamespace.open("/logs", registry=memory_registry)
    old.create(LOG, LogConfig(segment_bytes_max=4096))
    payloads = fill_log(old, LOG, 5)
    place = f"{hdfs.url}/{uuid.uuid4().hex}"
    with ensemble.connect() as killed, pytest.raises(Died), at_failpoint(stop, die):
        migrate_namespace("/logs", place, registry=killed, store="hdfs")
    migrate_namespace("/logs", place, registry=memory_registry, store="hdfs", timeout_s=60)
    moved = LogNamespace.open("/logs", registry=memory_registry)
    assert moved.descriptor.location == place
    assert payloads_read(moved, LOG) == payloads
    assert [found for report in moved.inspect(LOG).segments() for found in report.findings] == []
