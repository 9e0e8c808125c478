"""The writer of a log: acknowledgements, groups, segments, its own end."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pyarrow as pa
import pytest

from scribengin.errors import (
    EndOfStream,
    LogClosed,
    LogError,
    RecordTooLarge,
    TransactionIdOutOfOrder,
)
from scribengin.log import DLSN, DlsnRange, LogConfig, LogNamespace
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import payload_batch, payloads_read
from scribengin.testing.waiting import wait_until
from tests.servers.memory import LogPlace

LOG = "flights/0"


@pytest.fixture
def namespace(log_place: LogPlace) -> LogNamespace:
    return log_place.bound(LOG)


def test_what_was_written_is_there_in_order_and_has_its_places(namespace: LogNamespace) -> None:
    with namespace.open_writer(LOG) as writer:
        ones = [writer.write(b"%d" % n) for n in range(3)]
        bulk = writer.write_bulk(payload_batch([b"3", b"4"]))
        places = [future.result(120) for future in ones]
        assert places[0] == DLSN.INITIAL
        assert places == sorted(places)
        assert bulk.result(120) == DlsnRange(writer.flush()._replace(slot=0), writer.flush())
        assert payloads_read(namespace, LOG) == [b"0", b"1", b"2", b"3", b"4"]
    assert payloads_read(namespace, LOG) == [b"0", b"1", b"2", b"3", b"4"]
    last = namespace.last_record(LOG)
    assert last is not None
    assert (last.payload, last.sequence_id) == (b"4", 4)


def test_what_waits_together_becomes_one_group(namespace: LogNamespace) -> None:
    with namespace.open_writer(LOG) as writer:
        entered, go = threading.Event(), threading.Event()

        def hold(_stop: str) -> None:
            entered.set()
            assert go.wait(120)

        with at_failpoint("log.segment_sync:before", hold):
            writer.write(b"first")
            assert entered.wait(120)
            futures = [writer.write(b"%d" % n) for n in range(100)]
            go.set()
            places = [future.result(120) for future in futures]
    assert places == [DLSN(1, 1, slot) for slot in range(100)]


def test_a_future_that_has_not_resolved_promises_nothing_and_one_that_has_is_readable(namespace: LogNamespace) -> None:
    with namespace.open_writer(LOG) as writer:
        entered, go = threading.Event(), threading.Event()

        def hold(_stop: str) -> None:
            entered.set()
            assert go.wait(120)

        with at_failpoint("log.segment_sync:before", hold):
            future = writer.write(b"x")
            assert entered.wait(120)
            assert not future.done()
            assert payloads_read(namespace, LOG) == []
            go.set()
            future.result(120)
        assert payloads_read(namespace, LOG) == [b"x"]


def test_a_batch_may_span_many_entries_and_groups(namespace: LogNamespace) -> None:
    namespace.create("small-entries", LogConfig(entry_bytes_max=1024))
    payloads = [b"%04d" % n + bytes(500) for n in range(1000)]
    with namespace.open_writer("small-entries") as writer:
        written = writer.write_bulk(payload_batch(payloads)).result(120)
    assert written.first == DLSN.INITIAL
    assert written.last.entry > 256
    assert payloads_read(namespace, "small-entries") == payloads


@pytest.mark.real_stores
def test_segments_are_rolled_by_size_and_read_through(namespace: LogNamespace) -> None:
    namespace.create("rolling", LogConfig(segment_bytes_max=4096))
    payloads = [b"%04d" % n + bytes(1000) for n in range(40)]
    with namespace.open_writer("rolling") as writer:
        for payload in payloads:
            writer.write(payload).result(120)
    segments = namespace.segments("rolling")
    assert len(segments) == 14
    assert [segment.start_sequence for segment in segments] == list(range(0, 40, 3))
    assert payloads_read(namespace, "rolling") == payloads


def test_a_writer_that_wrote_nothing_leaves_no_segment(namespace: LogNamespace) -> None:
    with namespace.open_writer(LOG):
        pass
    assert namespace.segments(LOG) == ()
    assert namespace.info(LOG).writer is None


def test_transaction_ids_go_on_where_the_last_writer_stopped(namespace: LogNamespace) -> None:
    """DistributedLog's testWriteRestartFrom1."""
    with namespace.open_writer(LOG) as writer:
        writer.write(b"x", txid=7)
        with pytest.raises(TransactionIdOutOfOrder):
            writer.write(b"y", txid=6)
        writer.write(b"y", txid=7)
    with namespace.open_writer(LOG) as writer:
        for txid in (1, 6):
            with pytest.raises(TransactionIdOutOfOrder, match="after 7"):
                writer.write(b"z", txid=txid)
            with pytest.raises(TransactionIdOutOfOrder, match="after 7"):
                writer.write_bulk(pa.RecordBatch.from_pydict({"payload": [b"z"], "txid": [txid]}))
        writer.write(b"z", txid=8)
        writer.write(b"far", txid=2**40)
    assert payloads_read(namespace, LOG) == [b"x", b"y", b"z", b"far"]


def test_a_refused_record_leaves_the_writer_as_it_was(namespace: LogNamespace) -> None:
    """DistributedLog's testMaxLogRecSize."""
    with namespace.open_writer(LOG) as writer:
        with pytest.raises(RecordTooLarge):
            writer.write(bytes(1_040_385))
        with pytest.raises(RecordTooLarge):
            writer.write_bulk(payload_batch([b"small", bytes(1_040_385)]))
        with pytest.raises(LogError, match="without rows"):
            writer.write_bulk(payload_batch([]))
        writer.write(bytes(1_040_384)).result(120)
    assert payloads_read(namespace, LOG) == [bytes(1_040_384)]


def test_a_sealed_log_takes_nothing_more(namespace: LogNamespace) -> None:
    writer = namespace.open_writer(LOG)
    writer.write(b"last")
    writer.mark_end_of_stream()
    with pytest.raises(LogClosed):
        writer.write(b"later")
    with pytest.raises(EndOfStream, match="was sealed"):
        namespace.open_writer(LOG)
    assert namespace.info(LOG).writer is None
    namespace.create("empty")
    namespace.open_writer("empty").mark_end_of_stream()
    with namespace.open_reader("empty") as reader, pytest.raises(EndOfStream):
        reader.read()


def test_close_flushes(namespace: LogNamespace) -> None:
    """DistributedLog's TestBKLogSegmentWriter."""
    writer = namespace.open_writer(LOG)
    futures = [writer.write(b"%d" % n) for n in range(100)]
    writer.close()
    assert [future.result(0).slot >= 0 for future in futures] == [True] * 100
    assert namespace.count(LOG) == 100
    assert not namespace.segments(LOG)[0].in_progress


@pytest.mark.real_stores
def test_abort_does_not_flush_but_finishes_the_group_that_is_being_written(namespace: LogNamespace) -> None:
    """DistributedLog's TestBKLogSegmentWriter: what waits is cancelled."""
    writer = namespace.open_writer(LOG)
    entered, go = threading.Event(), threading.Event()

    def hold(_stop: str) -> None:
        entered.set()
        assert go.wait(120)

    with at_failpoint("log.segment_sync:before", hold):
        written = writer.write(b"being written")
        assert entered.wait(120)
        waiting = writer.write(b"waiting")
        aborting = threading.Thread(target=writer.abort)
        aborting.start()
        with pytest.raises(LogClosed):
            waiting.result(120)
        go.set()
        aborting.join()
    assert written.result(120) == DLSN.INITIAL
    assert payloads_read(namespace, LOG) == [b"being written"]


@pytest.mark.parametrize("end", ["close", "abort"])
def test_a_writer_that_was_ended_takes_nothing_more(namespace: LogNamespace, end: str) -> None:
    writer = namespace.open_writer(LOG)
    getattr(writer, end)()
    writer.close()
    writer.abort()
    calls: list[Callable[[], object]] = [
        lambda: writer.write(b"x"),
        lambda: writer.write_bulk(payload_batch([b"x"])),
        lambda: writer.stage(payload_batch([b"x"])),
        writer.prepare,
        writer.rollback_staged,
        writer.mark_end_of_stream,
    ]
    for call in calls:
        with pytest.raises(LogError):
            call()


def test_an_exception_in_the_with_block_aborts(namespace: LogNamespace) -> None:
    def use_and_fail() -> None:
        with namespace.open_writer(LOG) as writer:
            writer.write(b"x").result(120)
            raise KeyError

    with pytest.raises(KeyError):
        use_and_fail()
    with namespace.open_writer(LOG, timeout_s=0) as writer:
        writer.write(b"y")
    assert payloads_read(namespace, LOG) == [b"x", b"y"]


def test_writing_faster_than_the_disk_makes_callers_wait(namespace: LogNamespace) -> None:
    namespace.create("bounded", LogConfig(pending_bytes_max=1024))
    go = threading.Event()
    taken: list[int] = []
    with namespace.open_writer("bounded") as writer:

        def write_three() -> None:
            for n in range(3):
                writer.write(bytes(1000))
                taken.append(n)

        with at_failpoint("log.segment_sync:before", lambda _stop: go.wait(120)):
            caller = threading.Thread(target=write_three)
            caller.start()
            wait_until(lambda: taken, what="the first record to be taken")
            assert taken == [0]
            go.set()
            caller.join()
    assert namespace.count("bounded") == 3


@pytest.mark.real_stores
def test_many_threads_may_write_and_each_keeps_its_order(namespace: LogNamespace) -> None:
    with namespace.open_writer(LOG) as writer:

        def write(who: int) -> None:
            for n in range(50):
                writer.write(b"%d:%d" % (who, n)) if n % 3 else writer.write_bulk(payload_batch([b"%d:%d" % (who, n)]))

        threads = [threading.Thread(target=write, args=(who,)) for who in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    written = payloads_read(namespace, LOG)
    for who in range(4):
        mine = [payload for payload in written if payload.startswith(b"%d:" % who)]
        assert mine == [b"%d:%d" % (who, n) for n in range(50)]
