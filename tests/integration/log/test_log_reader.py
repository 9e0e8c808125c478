"""Readers of a log on a real registry: positions, transaction ids, the tail, ends, damage."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from scribengin.errors import (
    DamagedEntry,
    EndOfStream,
    InconsistentLog,
    LogClosed,
    LogError,
    LogNotFound,
)
from scribengin.log import DLSN, READ_SCHEMA, LogConfig, LogNamespace, LogReader, LogRecord, TransactionId
from scribengin.log.format.entry import HEADER_BYTES, EntryHeader, read_header
from scribengin.testing.log_samples import (
    bound_namespace,
    damage_segment,
    fill_log,
    payload_batch,
    payloads_left,
    payloads_of,
    payloads_planned,
    payloads_read,
    segment_path,
)
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry

LOG = "flights/0"


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    return bound_namespace(registry, tmp_path / "store", LOG, config=LogConfig(segment_bytes_max=4096))


def test_batches_carry_records_places_and_sequence_ids(namespace: LogNamespace) -> None:
    payloads = fill_log(namespace, LOG, 4, 3)
    with namespace.open_reader(LOG) as reader:
        batches = []
        while (batch := reader.read_batch(2)) is not None:
            batches.append(batch)
    assert all(batch.schema == READ_SCHEMA for batch in batches)
    assert [batch.num_rows for batch in batches] == [2, 1] * 4
    whole = pa.Table.from_batches(batches)
    assert whole.column("payload").to_pylist() == payloads
    assert whole.column("sequence_id").to_pylist() == list(range(12))
    places = list(zip(*(whole.column(name).to_pylist() for name in ("segment", "entry", "slot")), strict=True))
    expected = [(segment, entry, slot) for segment in (1, 2) for entry in (0, 1, 2) for slot in range(3)]
    assert places == expected[:12]


def test_a_reader_starts_at_any_place_and_goes_on_from_its_position(namespace: LogNamespace) -> None:
    payloads = fill_log(namespace, LOG, 7, 3)
    with namespace.open_reader(LOG) as reader:
        places = [record.dlsn for record in iter_records(reader)]
    for n, place in enumerate(places):
        with namespace.open_reader(LOG, place) as reader:
            assert payloads_left(reader) == payloads[n:]
        with namespace.open_reader(LOG) as reader:
            first = [record.payload for _ in range(n + 1) for record in reader.read(1)]
            position = reader.position
        with namespace.open_reader(LOG, DLSN.parse(position.to_base64())) as reader:
            assert first + payloads_left(reader) == payloads


def iter_records(reader: LogReader) -> Iterator[LogRecord]:
    while records := reader.read(5):
        yield from records


@pytest.mark.parametrize("txid", [-5, 0, 1, 10, 15, 30, 31, 59, 60])
def test_a_reader_starts_at_a_transaction_id(namespace: LogNamespace, txid: int) -> None:
    payloads = fill_log(namespace, LOG, 7, 2)
    with namespace.open_reader(LOG, TransactionId(txid)) as reader:
        assert payloads_left(reader) == [p for n, p in enumerate(payloads) if n // 2 * 10 >= txid]


def test_a_transaction_id_that_is_still_to_come_is_waited_for(namespace: LogNamespace) -> None:
    fill_log(namespace, LOG, 2)
    with namespace.open_reader(LOG, TransactionId(100)) as reader, namespace.open_writer(LOG) as writer:
        assert reader.read() == []
        writer.write(b"too small", txid=99).result(120)
        assert reader.read(timeout_s=0.1) == []
        writer.write_bulk(pa.RecordBatch.from_pydict({"payload": [b"no", b"yes"], "txid": [99, 100]})).result(120)
        assert [record.payload for record in reader.read(timeout_s=120)] == [b"yes"]
        writer.write(b"and on", txid=100).result(120)
        assert [record.payload for record in reader.read(timeout_s=120)] == [b"and on"]


def test_a_reader_follows_the_tail_across_segments_and_writers(
    namespace: LogNamespace, elsewhere: LogNamespace
) -> None:
    payloads = [b"%06d" % n + bytes(1000) for n in range(60)]

    def write() -> None:
        for start in range(0, 60, 20):
            with elsewhere.open_writer(LOG, timeout_s=120) as writer:
                for payload in payloads[start : start + 20]:
                    writer.write(payload).result(120)

    with namespace.open_reader(LOG) as reader:
        writing = threading.Thread(target=write)
        writing.start()
        found: list[bytes] = []
        while len(found) < 60:
            batch = reader.read_batch(timeout_s=120)
            assert batch is not None
            found += payloads_of(batch)
        writing.join()
        assert found == payloads
        assert reader.read_batch() is None


def test_a_reader_of_a_log_without_segments_sees_the_first_record(
    namespace: LogNamespace, elsewhere: LogNamespace
) -> None:
    with namespace.open_reader(LOG) as reader:
        assert reader.read() == []
        with elsewhere.open_writer(LOG) as writer:
            writer.write(b"first")
            assert [record.payload for record in reader.read(timeout_s=120)] == [b"first"]


def test_a_sealed_log_ends_every_time_and_only_behind_its_last_record(
    namespace: LogNamespace, elsewhere: LogNamespace
) -> None:
    with namespace.open_reader(LOG) as reader:
        writer = elsewhere.open_writer(LOG)
        writer.write(b"last")
        writer.mark_end_of_stream()
        assert [record.payload for record in reader.read(timeout_s=120)] == [b"last"]
        wait_until(lambda: reader.ended(reader.position), what="the seal to be seen")
        for _ in range(2):
            with pytest.raises(EndOfStream):
                reader.read_batch(timeout_s=120)
            with pytest.raises(EndOfStream):
                reader.read(timeout_s=120)
        assert not reader.ended(DLSN.INITIAL)


def test_a_closed_reader_reads_nothing_but_what_it_read_stays(namespace: LogNamespace) -> None:
    payloads = fill_log(namespace, LOG, 3)
    reader = namespace.open_reader(LOG)
    batch = reader.read_batch()
    reader.close()
    reader.close()
    calls: list[Callable[[], object]] = [
        reader.read,
        reader.read_batch,
        reader.end_position,
        lambda: reader.plan(DLSN.INITIAL, 1, 1),
        lambda: reader.lag(DLSN.INITIAL),
        lambda: reader.wait(DLSN.INITIAL, 0),
        lambda: reader.ended(DLSN.INITIAL),
    ]
    for call in calls:
        with pytest.raises(LogClosed):
            call()
    namespace.delete(LOG)
    assert batch is not None
    assert payloads_of(batch) == payloads[:1]


@pytest.mark.parametrize("at", [1555, 1536 + 64 + 700], ids=["header", "body"])
def test_damage_stops_the_reader_at_its_place_every_time(namespace: LogNamespace, at: int) -> None:
    payloads = fill_log(namespace, LOG, 6)
    damage_segment(namespace, LOG, 2, at)
    with namespace.open_reader(LOG) as reader:
        assert [payload for _ in range(2) for payload in read_some(reader)] == payloads[:4]
        for call in (reader.read_batch, reader.read, lambda: namespace.open_reader(LOG, DLSN(2, 1, 0)).read()):
            with pytest.raises(DamagedEntry, match="segment 2, entry 1") as raised:
                call()
            assert DLSN.parse(raised.value.position) == DLSN(2, 1, 0) == reader.position


def read_some(reader: LogReader) -> list[bytes]:
    return [record.payload for record in reader.read(2)]


def test_an_entry_whose_sequence_ids_do_not_follow_is_damage_even_if_its_checksums_hold(
    namespace: LogNamespace,
) -> None:
    fill_log(namespace, LOG, 2)
    wrong = "its first sequence id is 2, and 1 comes next"
    with namespace.open_reader(LOG) as reader:
        plan = reader.plan(DLSN.INITIAL, 10, 1 << 20)
        assert plan is not None
        path = segment_path(namespace, LOG, 1)
        data = bytearray(path.read_bytes())
        first = read_header(memoryview(data))
        assert isinstance(first, EntryHeader)
        second = read_header(memoryview(data), first.size)
        assert isinstance(second, EntryHeader)
        data[first.size : first.size + HEADER_BYTES] = replace(second, sequence=second.sequence + 1).to_bytes()
        path.write_bytes(data)
        with pytest.raises(DamagedEntry, match=wrong):
            list(plan.splits[0].read())
    with namespace.open_reader(LOG) as reader:
        assert len(reader.read(1)) == 1
        with pytest.raises(DamagedEntry, match=wrong):
            reader.read(1)


@pytest.mark.parametrize("cut", [1, 64, 1536, 4000])
def test_a_completed_segment_that_was_cut_is_damage(namespace: LogNamespace, cut: int) -> None:
    fill_log(namespace, LOG, 3)
    path = segment_path(namespace, LOG, 1)
    path.write_bytes(path.read_bytes()[:-cut])
    with namespace.open_reader(LOG) as reader, pytest.raises(DamagedEntry):
        payloads_left(reader)
    with namespace.open_reader(LOG) as reader, pytest.raises(DamagedEntry):
        payloads_planned(reader, DLSN.INITIAL, 100)


@pytest.mark.parametrize("position", [DLSN(3, 2, 0), DLSN(4, 0, 1), DLSN(9, 0, 0), DLSN(2, 4, 0)])
def test_a_position_that_the_log_never_had_is_an_error(namespace: LogNamespace, position: DLSN) -> None:
    fill_log(namespace, LOG, 7, 3)
    with pytest.raises(InconsistentLog, match="no position of this log"):
        namespace.open_reader(LOG, position)
    with namespace.open_reader(LOG) as reader, pytest.raises(InconsistentLog):
        reader.plan(position, 1, 1)


def test_a_deleted_log_is_not_found_even_if_it_was_created_again(
    namespace: LogNamespace, elsewhere: LogNamespace
) -> None:
    fill_log(namespace, LOG, 2)
    for again in (False, True):
        with namespace.open_reader(LOG) as reader:
            reader.read(1)
            elsewhere.delete(LOG)
            if again:
                elsewhere.create(LOG)

            def notices(reader: LogReader = reader) -> bool:
                try:
                    reader.lag(DLSN.INITIAL)
                except LogNotFound:
                    return True
                return False

            wait_until(notices, what="the reader to notice")
            with pytest.raises(LogNotFound):
                reader.read_batch()
        if not again:
            namespace.create(LOG)


def test_a_list_of_segments_with_a_gap_is_an_error(namespace: LogNamespace, registry: Registry) -> None:
    fill_log(namespace, LOG, 7, 3)
    nodes = registry.children(f"{namespace.path}/logs/flights%2F0/segments")
    registry.delete(f"{namespace.path}/logs/flights%2F0/segments/{nodes[1]}")
    for call in (
        lambda: namespace.open_reader(LOG),
        lambda: namespace.open_writer(LOG),
        lambda: namespace.segments(LOG),
    ):
        with pytest.raises(InconsistentLog, match=r"segments 1 to 3, and there are 2"):
            call()
    assert registry.find(f"{namespace.path}/logs/flights%2F0/lock") is None


def test_compressed_logs_read_the_same(namespace: LogNamespace) -> None:
    for codec in ("lz4", "zstd"):
        namespace.create(codec, LogConfig(codec=codec))
        payloads = [b"%06d" % n + bytes(1000) for n in range(500)]
        with namespace.open_writer(codec) as writer:
            writer.write_bulk(payload_batch(payloads))
            writer.write(payloads[-1])
        assert payloads_read(namespace, codec) == [*payloads, payloads[-1]]
        assert namespace.info(codec).bytes < 100_000
        with namespace.open_reader(codec) as reader:
            assert payloads_planned(reader, DLSN.INITIAL, 1000) == [[*payloads, payloads[-1]]]


def test_errors_of_the_log_are_log_errors() -> None:
    assert issubclass(DamagedEntry, LogError)
