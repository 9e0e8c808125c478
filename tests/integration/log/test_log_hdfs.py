"""Logs whose segments are files of HDFS: what the log promises holds there as well."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from scribengin.errors import ConfigInvalid, Fenced, NamespaceNotBound
from scribengin.log import DLSN, LogConfig, LogNamespace
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import fill_log, payloads_left, payloads_planned, payloads_read
from scribengin.testing.memory.registry import MemoryEnsemble, MemoryRegistry
from scribengin_dev.servers.hadoop.hdfs import HdfsServers
from tests.dying import Stopped, stop_here

LOG = "flights/0"


@pytest.fixture
def ensemble() -> MemoryEnsemble:
    """The registry of one test."""
    return MemoryEnsemble()


@pytest.fixture
def memory_registry(ensemble: MemoryEnsemble) -> Iterator[MemoryRegistry]:
    """A session of it."""
    with ensemble.connect() as session:
        yield session


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


@pytest.mark.parametrize("stop", ["log.segment_write:after", "log.segment_sync:after", "log.tail_write:before"])
def test_a_writer_goes_on_where_one_has_died(namespace: LogNamespace, stop: str) -> None:
    first = namespace.open_writer(LOG)
    first.write(b"first").result(60)
    with at_failpoint(stop, stop_here):
        assert isinstance(first.write(b"perhaps").exception(60), Stopped)
    first.abort()
    with namespace.open_writer(LOG, steal=True) as writer:
        writer.write(b"last").result(60)
    assert payloads_read(namespace, LOG) in ([b"first", b"last"], [b"first", b"perhaps", b"last"])
