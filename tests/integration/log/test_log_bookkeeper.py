"""Logs whose segments are ledgers of BookKeeper: what the log promises holds there as well, also when bookies die."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from scribengin.errors import ConfigInvalid, Fenced, NamespaceNotBound, StoreUnreachable
from scribengin.log import DLSN, LogConfig, LogNamespace
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import fill_log, payloads_left, payloads_planned, payloads_read
from scribengin.testing.memory.registry import MemoryEnsemble, MemoryRegistry
from scribengin.testing.waiting import wait_until
from scribengin_dev.servers.bookkeeper import BookKeeperServers
from scribengin_tools.logs.rendering import segment_json
from tests.dying import Stopped, stop_here

LOG = "flights/0"


@pytest.fixture(scope="module")
def bookies(bookkeeper: BookKeeperServers) -> Iterator[BookKeeperServers]:
    """Those of the run: no other test uses them meanwhile, and whom a test kills is there again behind these tests."""
    yield bookkeeper
    bookkeeper.start()


@pytest.fixture
def namespace(memory_registry: MemoryRegistry, bookies: BookKeeperServers) -> LogNamespace:
    """A new one, with an empty log of small segments."""
    LogNamespace.bind("/logs", bookies.log_location(uuid.uuid4().hex), registry=memory_registry, store="bk")
    made = LogNamespace.open("/logs", registry=memory_registry)
    made.create(LOG, LogConfig(segment_bytes_max=4096))
    return made


def expect_read(namespace: LogNamespace, log: str, *either: list[bytes]) -> None:
    """A new reader sees one of these. Raises AssertionError."""
    found = payloads_read(namespace, log)
    assert found in either, f"{found}"


def test_a_namespace_says_where_on_bookkeeper_it_is(
    memory_registry: MemoryRegistry, bookies: BookKeeperServers
) -> None:
    with pytest.raises(ConfigInvalid, match="no place of BookKeeper"):
        LogNamespace.bind("/logs", "/tmp/logs", registry=memory_registry, store="bk")
    place = bookies.log_location(uuid.uuid4().hex)
    for spelled in (place, f"{place}/"):
        assert LogNamespace.bind("/logs", spelled, registry=memory_registry, store="bk").location == place
    with pytest.raises(NamespaceNotBound, match="is bound to"):
        LogNamespace.bind("/logs", place.replace("?", "-other?"), registry=memory_registry, store="bk")


def test_what_is_acknowledged_is_read_across_segments_and_given_up_from_the_beginning(namespace: LogNamespace) -> None:
    payloads = fill_log(namespace, LOG, 7, 3)
    assert [segment.segment for segment in namespace.segments(LOG)] == [1, 2, 3]
    expect_read(namespace, LOG, payloads)
    with namespace.open_reader(LOG) as reader:
        assert [payload for part in payloads_planned(reader, DLSN(1, 0, 0), 5) for payload in part] == payloads
    assert namespace.truncate(LOG, DLSN(2, 1, 2))
    namespace.purge(LOG)
    expect_read(namespace, LOG, payloads[14:])
    assert [segment.segment for segment in namespace.segments(LOG)] == [2, 3]


def test_an_inspection_says_which_bookies_have_each_segment(namespace: LogNamespace) -> None:
    fill_log(namespace, LOG, 4, 3)
    reports = list(namespace.inspect(LOG).segments())
    assert [len(set(report.machines)) for report in reports] == [3, 3]
    drawn = str(segment_json(reports[0])["found"]["machines"])
    assert all(machine in drawn for machine in reports[0].machines)


def test_a_reader_follows_the_writer(namespace: LogNamespace) -> None:
    with namespace.open_writer(LOG) as writer, namespace.open_reader(LOG) as reader:
        for number in range(12):
            writer.write(b"%d" % number).result(60)
            assert (found := payloads_left(reader)) == [b"%d" % number], f"{found}"


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
        expect_read(elsewhere, LOG, [b"acknowledged", b"next"])


@pytest.mark.parametrize("stop", ["log.segment_write:after", "log.segment_sync:after", "log.tail_write:before"])
def test_a_writer_goes_on_where_one_has_died(namespace: LogNamespace, stop: str) -> None:
    first = namespace.open_writer(LOG)
    first.write(b"first").result(60)
    with at_failpoint(stop, stop_here):
        assert isinstance(first.write(b"perhaps").exception(60), Stopped)
    first.abort()
    with namespace.open_writer(LOG, steal=True) as writer:
        writer.write(b"last").result(60)
    expect_read(namespace, LOG, [b"first", b"last"], [b"first", b"perhaps", b"last"])


def test_a_log_says_how_many_bookies_hold_it_and_new_segments_obey(
    namespace: LogNamespace, bookies: BookKeeperServers
) -> None:
    namespace.create("copied", LogConfig(ensemble_size=2))
    fill_log(namespace, "copied", 1, 3)
    namespace.configure("copied", LogConfig(ensemble_size=1))
    fill_log(namespace, "copied", 1, 3)
    namespace.configure("copied", LogConfig(ensemble_size=4))
    with pytest.raises(StoreUnreachable, match="too few bookies"), namespace.open_writer("copied") as writer:
        writer.write(b"thinner than wanted").result(60)
    assert [len(report.machines) for report in namespace.inspect("copied").segments()] == [2, 1]


def test_acknowledgements_go_on_without_one_bookie_and_stop_without_two(
    namespace: LogNamespace, bookies: BookKeeperServers
) -> None:
    namespace.create("large")
    writer = namespace.open_writer("large")
    acknowledged = []

    def write(payload: bytes) -> BaseException | None:
        failure = writer.write(payload).exception(120)
        if failure is None:
            acknowledged.append(payload)
        return failure

    assert write(b"three bookies") is None
    bookies.kill(0)
    for number in range(20):
        assert write(b"two bookies %d" % number) is None
    with namespace.open_reader("large") as reader:
        assert (found := payloads_left(reader)) == acknowledged, f"{found}"
    bookies.kill(1)
    assert isinstance(write(b"one bookie"), StoreUnreachable)
    writer.abort()
    bookies.start()
    wait_until(lambda: is_written(namespace, "large"), what="a write with all bookies back")
    read = payloads_read(namespace, "large")
    assert read[:21] == acknowledged, f"{read}"
    assert set(read[21:]) <= {b"one bookie", b"again"}, f"{read}"
    assert read[-1] == b"again", f"{read}"


def test_what_a_bookie_had_that_is_gone_is_copied_to_another(
    namespace: LogNamespace, bookies: BookKeeperServers
) -> None:
    namespace.create("triples", LogConfig(ensemble_size=3, write_quorum=3, ack_quorum=3))
    wait_until(lambda: is_written(namespace, "triples"), what="all bookies that another test has killed")
    namespace.create("pairs", LogConfig(ensemble_size=2, segment_bytes_max=4096))
    payloads = fill_log(namespace, "pairs", 9)
    machines = machines_of(namespace, "pairs")
    gone = machines[0][0]
    assert namespace.repair("pairs") == 0
    bookies.kill(bookies.addresses.index(gone))

    def is_whole() -> bool:
        namespace.repair("pairs")
        return not any(gone in of_segment for of_segment in machines_of(namespace, "pairs"))

    wait_until(is_whole, what="what is missing to be copied")
    assert [len(of_segment) for of_segment in machines_of(namespace, "pairs")] == [2] * len(machines)
    expect_read(namespace, "pairs", payloads)
    namespace.repair("pairs")  # the bookie may have come to be missed between two segments
    assert namespace.repair("pairs") == 0
    bookies.start_bookie(bookies.addresses.index(gone))


def is_written(namespace: LogNamespace, log: str) -> bool:
    try:
        with namespace.open_writer(log) as writer:
            writer.write(b"again").result(120)
    except StoreUnreachable:  # the client may hold a bookie for dead that is back
        return False
    return True


def machines_of(namespace: LogNamespace, log: str) -> list[tuple[str, ...]]:
    return [report.machines for report in namespace.inspect(log).segments()]
