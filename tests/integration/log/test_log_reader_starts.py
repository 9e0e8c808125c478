"""Where a reader can start: positions, transaction ids, sequence ids, times, the first, the last, the tail; lookups."""

from __future__ import annotations

import pyarrow as pa
import pytest

from scribengin.errors import PositionTruncated
from scribengin.log import (
    DLSN,
    FIRST,
    LAST,
    TAIL,
    LogConfig,
    LogNamespace,
    LogRecord,
    SequenceId,
    Start,
    Time,
    TransactionId,
)
from scribengin.testing.clocks import ManualClock
from scribengin.testing.log_samples import fill_log, payload_batch, payloads_left
from tests.servers.memory import LogPlace

LOG = "flights/0"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def namespace(log_place: LogPlace, clock: ManualClock) -> LogNamespace:
    bound = log_place.bound(LOG, config=LogConfig(segment_bytes_max=4096))
    return LogNamespace.open(bound.path, registry=log_place.registry, clock=clock)


def records_from(namespace: LogNamespace, start: Start, log: str = LOG) -> list[LogRecord]:
    with namespace.open_reader(log, start) as reader:
        found: list[LogRecord] = []
        while records := reader.read(1000):
            found += records
        return found


@pytest.mark.parametrize("start", [None, FIRST, DLSN.INITIAL, DLSN.NON_INCLUSIVE_LOWER_BOUND, SequenceId(0), Time(0)])
def test_every_way_to_say_the_beginning(namespace: LogNamespace, start: Start) -> None:
    assert records_from(namespace, start) == []
    payloads = fill_log(namespace, LOG, 7, 3)
    assert [record.payload for record in records_from(namespace, start)] == payloads


def test_the_last_record_and_the_tail(namespace: LogNamespace) -> None:
    payloads = fill_log(namespace, LOG, 7, 3)
    assert [record.payload for record in records_from(namespace, LAST)] == payloads[-1:]
    assert records_from(namespace, TAIL) == []


@pytest.mark.parametrize("start", [LAST, TAIL])
def test_in_an_empty_log_the_last_record_is_the_next(namespace: LogNamespace, start: Start) -> None:
    with namespace.open_reader(LOG, start) as reader, namespace.open_writer(LOG) as writer:
        assert reader.read() == []
        writer.write(b"next").result(120)
        assert [record.payload for record in reader.read(timeout_s=120)] == [b"next"]


def test_sequence_ids_count_records_over_all_segments_and_stay_after_truncation(namespace: LogNamespace) -> None:
    """DistributedLog's TestSequenceID: one number for each record, from 0, without a gap between segments."""
    payloads = fill_log(namespace, LOG, 7, 3)
    with namespace.open_writer(LOG) as writer:  # after another writer, and control records of both
        writer.write(b"after").result(120)
    everything = records_from(namespace, FIRST)
    assert [record.sequence_id for record in everything] == list(range(22))
    assert namespace.truncate(LOG, DLSN(2, 1, 1))
    kept = records_from(namespace, FIRST)
    assert kept == everything[13:]
    for sequence in (13, 14, 17, 18, 21):
        assert records_from(namespace, SequenceId(sequence)) == everything[sequence:]
    with pytest.raises(PositionTruncated, match="the first kept is 13"):
        namespace.open_reader(LOG, SequenceId(12))
    assert len(payloads) == 21


def test_a_sequence_id_that_is_still_to_come_is_waited_for(namespace: LogNamespace) -> None:
    fill_log(namespace, LOG, 2)
    with namespace.open_reader(LOG, SequenceId(4)) as reader, namespace.open_writer(LOG) as writer:
        writer.write_bulk(payload_batch([b"2", b"3", b"4"])).result(120)
        assert [record.payload for record in reader.read(timeout_s=120)] == [b"4"]
        assert reader.last_place == (DLSN(2, 0, 2), 4)


@pytest.mark.real_stores
def test_readers_of_a_truncated_log_begin_with_what_is_kept(namespace: LogNamespace) -> None:
    """DistributedLog's TestBKDistributedLogManager, testTruncationValidation."""
    payloads = fill_log(namespace, LOG, 9)
    assert namespace.truncate(LOG, DLSN(2, 0, 0))
    for start in (DLSN.INITIAL, TransactionId(1), FIRST):
        records = records_from(namespace, start)
        assert records[0].dlsn == DLSN(2, 0, 0) == namespace.first_dlsn(LOG)
        assert [record.payload for record in records] == payloads[3:]
    assert namespace.truncate(LOG, DLSN(2, 1, 0))
    assert records_from(namespace, FIRST)[0].dlsn == DLSN(2, 1, 0)
    with pytest.raises(PositionTruncated):
        namespace.open_reader(LOG, DLSN(2, 0, 0))


def write_at(namespace: LogNamespace, clock: ManualClock, *payloads: bytes, txid: int | None = None) -> list[int]:
    """Write with a new writer (so in a new segment), a minute apart: the times at which each was written."""
    times = []
    with namespace.open_writer(LOG) as writer:
        for payload in payloads:
            clock.advance_s(60)
            times.append(clock.now_ms())
            writer.write(payload, txid=txid).result(120)
    clock.advance_s(60)
    return times


def test_a_time_is_a_record_where_transaction_ids_are_times(namespace: LogNamespace, clock: ManualClock) -> None:
    times = write_at(namespace, clock, b"0", b"1") + write_at(namespace, clock, b"2", b"3", b"4")
    for n, time in enumerate(times):
        for early_ms in (0, 1_000, 50_000):
            found = records_from(namespace, Time(time - early_ms))
            assert [record.payload for record in found] == [b"0", b"1", b"2", b"3", b"4"][n:]
    assert records_from(namespace, Time(times[-1] + 30_000)) == []


def test_a_time_is_a_segment_where_transaction_ids_are_something_else(
    namespace: LogNamespace, clock: ManualClock
) -> None:
    early = write_at(namespace, clock, b"0", b"1", txid=7)
    late = write_at(namespace, clock, b"2", b"3", txid=8)
    assert [record.payload for record in records_from(namespace, Time(early[1]))] == [b"0", b"1", b"2", b"3"]
    for time in late:
        assert [record.payload for record in records_from(namespace, Time(time))] == [b"2", b"3"]
    assert records_from(namespace, Time(clock.now_ms())) == []


@pytest.mark.parametrize("purged", [0, 5])
def test_a_time_is_found_in_the_first_segment_that_reaches_it_where_a_clock_went_back(
    namespace: LogNamespace, clock: ManualClock, *, purged: int
) -> None:
    """As if every segment were looked at in turn: rather too early than too late."""
    begun_ms = clock.now_ms()
    minutes = [0, 10, 20, 5, 50, 15, 25, 40, 12, 30]
    for number, minute in enumerate(minutes):
        clock.set_wall_ms(begun_ms + 60_000 * minute)
        write_at(namespace, clock, b"%d" % number, txid=7)
    if purged:
        assert namespace.truncate(LOG, DLSN(1 + purged, 0, 0))
        namespace.purge(LOG)
    completed = [segment.completed_ms or 0 for segment in namespace.segments(LOG)]
    assert completed != sorted(completed)
    for minute in range(-1, 55):
        time_ms = begun_ms + 60_000 * minute
        first = next((at for at, end_ms in enumerate(completed, purged) if end_ms >= time_ms), len(minutes))
        wanted = [b"%d" % number for number in range(first, len(minutes))]
        assert [record.payload for record in records_from(namespace, Time(time_ms))] == wanted


def test_a_time_in_the_segment_that_is_being_written(namespace: LogNamespace, clock: ManualClock) -> None:
    with namespace.open_writer(LOG) as writer:
        writer.write(b"before").result(120)
        clock.advance_s(60)
        now_ms = clock.now_ms()
        with namespace.open_reader(LOG, Time(now_ms)) as reader:
            assert reader.read() == []
            writer.write(b"after").result(120)
            assert [record.payload for record in reader.read(timeout_s=120)] == [b"after"]
        assert [record.payload for record in records_from(namespace, Time(now_ms))] == [b"after"]


def test_control_records_are_not_the_last_record(namespace: LogNamespace) -> None:
    """DistributedLog's TestBKDistributedLogManager, testGetLastDLSN."""
    for _ in range(3):
        with namespace.open_writer(LOG, commit_log="/scribengin/locks/commit-log") as writer:
            writer.stage(payload_batch([b"rolled back"]))
            writer.rollback_staged()
    assert namespace.last_record(LOG) is None
    assert records_from(namespace, LAST) == []
    with namespace.open_writer(LOG) as writer:
        dlsn = writer.write(b"one").result(120)
    with namespace.open_writer(LOG, commit_log="/scribengin/locks/commit-log") as writer:
        writer.stage(payload_batch([b"staged"]))
        staged = writer.prepare()
        assert staged is not None
        last = namespace.last_record(LOG)
        assert last is not None
        assert (last.dlsn, last.payload) == (dlsn, b"one")
        writer.commit_staged(staged)  # a control record stands behind it now
    last = namespace.last_record(LOG)
    assert last is not None
    assert last.payload == b"staged"
    assert [record.dlsn for record in records_from(namespace, LAST)] == [last.dlsn]
    assert namespace.count(LOG) == 2


def test_a_transaction_id_is_found_at_least_and_greater_with_duplicates_in_many_entries(
    namespace: LogNamespace,
) -> None:
    """DistributedLog's TestReadUtils and TestLogRecordSelectors."""
    namespace.create("many", LogConfig(segment_bytes_max=200_000))
    txids: list[int] = []
    with namespace.open_writer("many") as writer:
        for n in range(300):  # 5, 5, 5, 10, 10, 10 ...: each over three entries, and in the middle of some
            ids = [n // 3 * 5 + 5] * 2 + [(n + 1) // 3 * 5 + 5]
            txids += ids
            column = pa.array(ids, pa.int64())
            writer.write_bulk(payload_batch([bytes(1000)] * 3).append_column("txid", column)).result(120)
        with namespace.open_reader("many") as reader:
            records = records_from(namespace, FIRST, "many")
            assert [record.txid for record in records] == txids
            assert len({record.dlsn.segment for record in records}) > 3
            for txid in (-1, 0, 4, 5, 6, 250, 251, 254, 255, 500, 504, 505):
                at_least = next((record.dlsn for record in records if record.txid >= txid), None)
                greater = next((record.dlsn for record in records if record.txid > txid), None)
                assert (reader.find(txid), reader.find(txid, after=True)) == (at_least, greater), txid
            assert reader.find(506) is None
            assert reader.position == DLSN.INITIAL
    assert namespace.truncate("many", records[100].dlsn)
    with namespace.open_reader("many") as reader:
        assert reader.find(0) == reader.find(txids[100]) == records[100].dlsn
        assert reader.find(txids[100], after=True) == next(r.dlsn for r in records if r.txid > txids[100])


def test_nothing_is_found_in_a_log_without_records(namespace: LogNamespace) -> None:
    with namespace.open_reader(LOG) as reader:
        assert reader.find(0) is None
        fill_log(namespace, LOG, 3)
        namespace.truncate(LOG, namespace.end_dlsn(LOG))
    with namespace.open_reader(LOG) as reader:
        assert reader.find(0) is None
        assert payloads_left(reader) == []
