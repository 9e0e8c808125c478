"""Clients that write several logs: split by key, and balanced over the logs that can be written."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from scribengin.errors import (
    ConfigInvalid,
    Fenced,
    LogClosed,
    LogError,
    LogWriteFailed,
    OverCapacity,
    OwnershipAcquireFailed,
    RecordTooLarge,
    TransactionIdOutOfOrder,
    WritersTooMany,
)
from scribengin.log import DLSN, LogConfig, LogNamespace, LogRecord
from scribengin.log.clients import BalancedWriter, PartitionedWriter, int_partitioner, partition_logs
from scribengin.testing.clocks import ManualClock
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import bound_namespace, payload_batch, payloads_read
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry
from scribengin_registry.opening import connect

LOGS = partition_logs("clicks", 3)


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    return bound_namespace(registry, tmp_path / "store", *LOGS)


@pytest.fixture
def elsewhere(namespace: LogNamespace, registry_hosts: str) -> Iterator[LogNamespace]:
    """The same namespace through a session of its own, as another process has it."""
    with connect(registry_hosts, session_timeout_s=100) as session:
        yield LogNamespace.open(namespace.path, registry=session)


def keyed_batch(keys: list[bytes | None], **columns: list[object]) -> pa.RecordBatch:
    payloads = [b"%d" % n for n in range(len(keys))]
    return pa.record_batch({"key": pa.array(keys, pa.binary()), "payload": pa.array(payloads, pa.binary()), **columns})


def records_of(namespace: LogNamespace, log: str) -> list[LogRecord]:
    with namespace.open_reader(log) as reader:
        return reader.read(100_000)


def everything(namespace: LogNamespace) -> list[bytes]:
    return sorted(payload for log in LOGS for payload in payloads_read(namespace, log))


def test_a_key_stands_in_one_log_in_order_whether_written_in_bulk_or_one_by_one(namespace: LogNamespace) -> None:
    keys: list[bytes | None] = [b"key-%d" % (n % 17) for n in range(2000)]
    with PartitionedWriter(namespace, LOGS) as writer:
        assert writer.logs == tuple(LOGS)
        placed = writer.write_bulk(keyed_batch(keys))
        for n, key in enumerate(keys[:100]):
            writer.write(key, b"%d" % (2000 + n))
    by_key = defaultdict(list)
    where = defaultdict(set)
    for log in LOGS:
        records = records_of(namespace, log)
        assert placed[log].result(120).first == DLSN.INITIAL
        for record in records:
            by_key[record.key].append(int(record.payload))
            where[record.key].add(log)
    assert len(by_key) == 17
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
    assert sorted(number for numbers in by_key.values() for number in numbers) == list(range(2100))
    assert all(len(logs) == 1 for logs in where.values())


def test_records_without_a_key_are_dealt_out_over_calls(namespace: LogNamespace) -> None:
    with PartitionedWriter(namespace, LOGS, partitioner=int_partitioner) as writer:
        writer.write(None, b"first")
        writer.write_bulk(payload_batch([b"second", b"third", b"fourth"]))
        writer.write(b"4", b"to 1")
    assert [payloads_read(namespace, log) for log in LOGS] == [[b"first", b"fourth"], [b"second", b"to 1"], [b"third"]]


def test_a_fenced_log_refuses_its_records_and_the_others_go_on(
    namespace: LogNamespace, elsewhere: LogNamespace
) -> None:
    writer = PartitionedWriter(namespace, LOGS, partitioner=int_partitioner)
    writer.write(b"1", b"before").result(120)
    elsewhere.open_writer(LOGS[1], steal=True).close()
    placed = writer.write_bulk(keyed_batch([b"0", b"1", b"2"]))
    with pytest.raises(Fenced):
        placed[LOGS[1]].result(120)
    placed[LOGS[0]].result(120)
    placed[LOGS[2]].result(120)
    with pytest.raises(Fenced):
        writer.write(b"1", b"late")
    again = writer.write_bulk(keyed_batch([b"1", b"0"]))
    assert isinstance(again[LOGS[1]].exception(10), Fenced)
    again[LOGS[0]].result(120)
    with pytest.raises(Fenced):
        writer.flush()
    assert writer.reopen() == [LOGS[1]]
    assert writer.reopen() == []
    writer.write(b"1", b"after").result(120)
    writer.close()
    assert payloads_read(namespace, LOGS[1]) == [b"before", b"after"]
    with pytest.raises(LogClosed):
        writer.write(b"1", b"closed")


def test_what_is_wrong_with_the_rows_of_one_log_is_said_by_its_future(namespace: LogNamespace) -> None:
    with PartitionedWriter(namespace, LOGS, partitioner=int_partitioner) as writer:
        txids = pa.array([5, 7, 6], pa.int64())
        placed = writer.write_bulk(keyed_batch([b"0", b"1", b"1"]).append_column("txid", txids))
        assert isinstance(placed[LOGS[1]].exception(10), TransactionIdOutOfOrder)
        assert placed[LOGS[0]].result(120).first == DLSN.INITIAL
        with pytest.raises(LogError, match="no whole number"):
            writer.write_bulk(keyed_batch([b"0", b"one"]))
        with pytest.raises(LogError, match="not binary"):
            writer.write_bulk(pa.record_batch({"key": [1], "payload": [b"x"]}))
        with pytest.raises(LogError, match="without rows"):
            writer.write_bulk(payload_batch([]))
    assert [payloads_read(namespace, log) for log in LOGS] == [[b"0"], [], []]


def test_a_client_is_the_writer_of_all_its_logs_or_of_none(namespace: LogNamespace, elsewhere: LogNamespace) -> None:
    with elsewhere.open_writer(LOGS[2]):
        with pytest.raises(OwnershipAcquireFailed):
            PartitionedWriter(namespace, LOGS, timeout_s=0.05)
        with pytest.raises(OwnershipAcquireFailed):
            BalancedWriter(namespace, LOGS, timeout_s=0.05)
        elsewhere.open_writer(LOGS[0], timeout_s=0).close()
    with pytest.raises(ConfigInvalid):
        PartitionedWriter(namespace, [LOGS[0], LOGS[0]])


@pytest.mark.parametrize("client", [PartitionedWriter, partial(BalancedWriter, policy="round_robin")])
def test_an_aborted_client_resolves_every_future_and_gives_every_lock_back(
    namespace: LogNamespace, client: Callable[[LogNamespace, list[str]], PartitionedWriter | BalancedWriter]
) -> None:
    writer = client(namespace, LOGS)
    entered, go = threading.Event(), threading.Event()

    def hold(_stop: str) -> None:
        entered.set()
        assert go.wait(120)

    with at_failpoint("log.segment_sync:before", hold):
        futures = _written(writer, keyed_batch([b"first"]))
        assert entered.wait(120)
        for n in range(30):
            futures += _written(writer, keyed_batch([b"%d" % n]))
        aborting = threading.Thread(target=writer.abort)
        aborting.start()
        wait_until(lambda: any(f.done() and isinstance(f.exception(), LogClosed) for f in futures))
        go.set()
        aborting.join(120)
    assert not wait(futures, 10).not_done
    assert all(namespace.info(log).writer is None for log in LOGS)


def _written(writer: PartitionedWriter | BalancedWriter, batch: pa.RecordBatch) -> list[Future[object]]:
    written: object = writer.write_bulk(batch)
    return list(written.values()) if isinstance(written, dict) else [written]  # type: ignore[list-item]  # one future


def test_two_threads_write_through_one_client_and_nothing_is_lost(namespace: LogNamespace) -> None:
    with PartitionedWriter(namespace, LOGS) as partitioned:
        _run_two(lambda thread, n: partitioned.write(b"%d" % n, b"p%d-%d" % (thread, n)))
    with BalancedWriter(namespace, LOGS, policy="round_robin") as balanced:
        _run_two(lambda thread, n: balanced.write(b"b%d-%d" % (thread, n)))
    wanted = [b"%c%d-%d" % (kind, thread, n) for kind in b"pb" for thread in range(2) for n in range(300)]
    assert everything(namespace) == sorted(wanted)


def test_batches_go_where_the_fewest_bytes_are_under_way(namespace: LogNamespace) -> None:
    entered, go = threading.Event(), threading.Event()

    def hold(_stop: str) -> None:
        entered.set()
        assert go.wait(120)

    with BalancedWriter(namespace, LOGS) as writer:
        with at_failpoint("log.segment_sync:before", hold):
            stuck = writer.write_bulk(payload_batch([bytes(100_000)]))
            assert entered.wait(120)
            others = [writer.write(b"%d" % n) for n in range(20)]
            logs = {other.result(120).log for other in others}
            assert not stuck.done()
            go.set()
        assert stuck.result(120).log not in logs
        assert len(logs) == 2


def test_in_turn_means_in_turn(namespace: LogNamespace) -> None:
    with BalancedWriter(namespace, LOGS, policy="round_robin") as writer:
        assert [writer.write(b"x").result(120).log for _ in range(6)] == LOGS * 2


@pytest.mark.parametrize("client", [PartitionedWriter, BalancedWriter])
def test_closing_flushes_and_can_be_repeated(
    namespace: LogNamespace, client: Callable[[LogNamespace, list[str]], PartitionedWriter | BalancedWriter]
) -> None:
    writer = client(namespace, LOGS)
    futures = [future for n in range(20) for future in _written(writer, keyed_batch([b"%d" % n]))]
    writer.close()
    writer.close()
    writer.abort()
    assert all(future.done() and future.exception() is None for future in futures)
    assert len(everything(namespace)) == 20


@pytest.mark.usefixtures("unheard")
def test_a_fenced_log_is_left_out_and_only_what_was_not_written_goes_elsewhere(
    namespace: LogNamespace, elsewhere: LogNamespace
) -> None:
    clock = ManualClock()
    writer = BalancedWriter(namespace, LOGS, policy="round_robin", retry_s=5, clock=clock)
    owner = elsewhere.open_writer(LOGS[0], steal=True)
    uncertain = writer.write(b"uncertain")  # the fenced writer takes it, and can only tell afterwards
    assert isinstance(uncertain.exception(10), Fenced)
    with pytest.raises(Fenced):
        writer.flush()
    placed = [writer.write(b"%d" % n).result(120) for n in range(6)]
    assert {place.log for place in placed} == {LOGS[1], LOGS[2]}
    assert list(writer.failed_logs()) == [LOGS[0]]
    clock.advance_s(5)
    writer.write(b"6").result(120)  # tries the log again, in vain: it has another owner
    assert "is being written by" in writer.failed_logs()[LOGS[0]]
    owner.close()
    clock.advance_s(5)
    assert {writer.write(b"%d" % n).result(120).log for n in range(7, 10)} == set(LOGS)
    assert writer.failed_logs() == {}
    writer.close()
    assert everything(namespace) == [b"%d" % n for n in range(10)]


@pytest.mark.usefixtures("unheard")
def test_a_sealed_log_and_a_deleted_one_stay_out(namespace: LogNamespace, elsewhere: LogNamespace) -> None:
    clock = ManualClock()
    with BalancedWriter(namespace, LOGS, policy="round_robin", retry_s=1, clock=clock) as writer:
        elsewhere.open_writer(LOGS[0], steal=True).mark_end_of_stream()
        elsewhere.open_writer(LOGS[1], steal=True).close()
        elsewhere.delete(LOGS[1])
        for _ in range(2):
            assert isinstance(writer.write(b"lost").exception(10), Fenced)
        for n in range(4):
            assert writer.write(b"%d" % n).result(120).log == LOGS[2]
            clock.advance_s(1)
        assert list(writer.failed_logs()) == LOGS[:2]
        with pytest.raises(Fenced):
            writer.flush()


def test_a_record_that_no_log_takes_is_the_callers_and_fails_no_log(namespace: LogNamespace) -> None:
    with BalancedWriter(namespace, LOGS) as writer:
        with pytest.raises(RecordTooLarge):
            writer.write(bytes(2_000_000))
        assert writer.failed_logs() == {}
        assert writer.write(b"x").result(120).dlsn == DLSN.INITIAL


def test_a_log_with_too_much_under_way_is_passed_over(namespace: LogNamespace) -> None:
    full = LogConfig(outstanding_writes_max=0, outstanding_dark_mode=False)
    namespace.create("full", full)
    namespace.create("full-2", full)
    with BalancedWriter(namespace, ["full", LOGS[0]], policy="round_robin") as writer:
        assert {writer.write(b"x").result(120).log for _ in range(4)} == {LOGS[0]}
        assert writer.failed_logs() == {}
    with BalancedWriter(namespace, ["full", "full-2"]) as writer, pytest.raises(OverCapacity):
        writer.write(b"x")


def test_a_log_whose_writer_failed_for_want_of_room_is_written_again_once_there_is_some(
    namespace: LogNamespace,
) -> None:
    clock = ManualClock()
    with BalancedWriter(namespace, LOGS[:2], policy="round_robin", retry_s=1, clock=clock) as writer:

        def no_room(_stop: str) -> None:
            raise WritersTooMany("a proxy has no room")

        with at_failpoint("log.segment_create:before", no_room):
            assert isinstance(writer.write(b"refused").exception(10), WritersTooMany)
        with pytest.raises(WritersTooMany):
            writer.flush()
        for n in range(2):
            assert writer.write(b"%d" % n).result(120).log == LOGS[1]
        assert list(writer.failed_logs()) == [LOGS[0]]
        clock.advance_s(1)
        assert {writer.write(b"%d" % n).result(120).log for n in range(2, 4)} == set(LOGS[:2])


@pytest.mark.usefixtures("unheard")
def test_when_no_log_can_be_written_the_caller_is_told(namespace: LogNamespace, elsewhere: LogNamespace) -> None:
    writer = BalancedWriter(namespace, LOGS[:2])
    for log in LOGS[:2]:
        elsewhere.open_writer(log, steal=True).close()
    for _ in range(2):
        assert isinstance(writer.write(b"uncertain").exception(10), Fenced)
    with pytest.raises(LogWriteFailed, match="none of the logs can be written, so nothing was"):
        writer.write(b"refused")
    writer.abort()
    with pytest.raises(LogClosed):
        writer.write(b"closed")


def test_a_batch_of_many_groups_that_fails_in_the_middle_is_not_written_again_elsewhere(
    registry: Registry, tmp_path: Path
) -> None:
    config = LogConfig(entry_bytes_max=1024, pending_bytes_max=1024)
    namespace = bound_namespace(registry, tmp_path / "store", *LOGS[:2], config=config)
    writer = BalancedWriter(namespace, LOGS[:2])
    fail_second = at_failpoint("log.segment_sync:before", _no_disk, occurrence=2)
    with fail_second:
        answer = writer.write_bulk(payload_batch([bytes(1000)] * 600))
        assert isinstance(answer.exception(10), LogWriteFailed)
    with pytest.raises(LogWriteFailed):
        writer.close()
    assert sorted(namespace.count(log) for log in LOGS[:2])[0] == 0


def _no_disk(_stop: str) -> None:
    raise OSError(28, "No space left on device")


def _run_two(write: object) -> None:
    """300 records from each of two threads at once."""
    both = threading.Barrier(2)

    def run(thread: int) -> None:
        both.wait(120)
        wait([write(thread, n) for n in range(300)], 10)  # type: ignore[operator]  # one of two writers' methods

    threads = [threading.Thread(target=run, args=(thread,)) for thread in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
