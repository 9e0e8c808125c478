"""What a writer takes at once: message types, batches of which each row counts by itself, atomic ones, large ones."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

from scribengin.errors import LogError, LogWriteFailed, RecordTooLarge, TransactionIdOutOfOrder
from scribengin.log import DLSN, DlsnRange, LogConfig, LogNamespace
from scribengin.log.format.entry import HEADER_BYTES, EntryHeader, read_body, read_header
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import bound_namespace, payload_batch, payloads_read, segment_path
from scribengin_registry.contract import Registry

LOG = "flights/0"
MIB = 1024 * 1024


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    return bound_namespace(registry, tmp_path / "store", LOG)


def entries(namespace: LogNamespace, log: str, number: int = 1) -> list[tuple[EntryHeader, pa.RecordBatch]]:
    """Every entry of a segment, as it stands on disk."""
    data = pa.py_buffer(segment_path(namespace, log, number).read_bytes())
    found, at = [], 0
    while at < data.size:
        header = read_header(data, at)
        assert isinstance(header, EntryHeader)
        body = read_body(header, data.slice(at + HEADER_BYTES, header.body_bytes))
        assert isinstance(body, pa.RecordBatch)
        found.append((header, body))
        at += header.size
    return found


def test_a_record_has_a_message_type_of_16_bits(namespace: LogNamespace) -> None:
    with namespace.open_writer(LOG) as writer:
        writer.write(b"0")
        writer.write(b"1", type=65_535)
        for wrong in (-1, 65_536):
            with pytest.raises(LogError, match="message type"):
                writer.write(b"x", type=wrong)
        writer.flush()
        writer.write_bulk(pa.RecordBatch.from_pydict({"payload": [b"2", b"3"], "type": [7, None]}))
        with pytest.raises(LogError, match="column 'type'"):
            writer.write_bulk(pa.RecordBatch.from_pydict({"payload": [b"x"], "type": [65_536]}))
    found = [body.column("type").to_pylist() for _header, body in entries(namespace, LOG)]
    assert [number for part in found for number in part] == [0, 65_535, 7, 0]


def test_rows_that_the_log_does_not_take_are_left_out_and_reported(namespace: LogNamespace) -> None:
    with namespace.open_writer(LOG) as writer:
        writer.write(b"before", txid=10)
        batch = pa.RecordBatch.from_pydict(
            {
                "payload": [b"0", None, bytes(1_040_385), b"3", b"4"],
                "txid": pa.array([11, 12, 13, 9, 14], pa.int64()),
            }
        )
        result = writer.write_bulk(batch, partial=True).result(120)
        assert [type(result.error(row)) for row in range(5)] == [
            type(None),
            LogError,
            RecordTooLarge,
            TransactionIdOutOfOrder,
            type(None),
        ]
        assert result.dlsns().column("slot").to_pylist() == [0, None, None, None, 1]
        with pytest.raises(TransactionIdOutOfOrder, match="after 14"):
            writer.write(b"x", txid=13)
    assert payloads_read(namespace, LOG) == [b"before", b"0", b"4"]


def test_a_batch_of_nothing_but_refused_rows_is_answered_and_not_written(namespace: LogNamespace) -> None:
    with namespace.open_writer(LOG) as writer:
        nothing = pa.RecordBatch.from_pydict({"payload": pa.nulls(3, pa.binary())})
        result = writer.write_bulk(nothing, partial=True).result(120)
        assert (len(result.refused), result.records_written) == (3, 0)
        assert writer.flush() == DLSN.INVALID
        with pytest.raises(LogError, match="without rows"):
            writer.write_bulk(payload_batch([]), partial=True)
    assert namespace.segments(LOG) == ()


def test_positions_of_a_batch_that_spans_many_entries_are_those_that_readers_find(namespace: LogNamespace) -> None:
    namespace.create("small-entries", LogConfig(entry_bytes_max=1024))
    payloads = [b"%04d" % n + bytes(500) for n in range(700)]
    with namespace.open_writer("small-entries") as writer:
        result = writer.write_bulk(payload_batch(payloads), partial=True).result(120)
    with namespace.open_reader("small-entries") as reader:
        found = [record.dlsn for records in iter(lambda: reader.read(1000), []) for record in records]
    assert [DLSN(*row.values()) for row in result.dlsns().to_pylist()] == found


def test_a_disk_that_refuses_in_the_middle_of_a_batch_is_reported_row_by_row(namespace: LogNamespace) -> None:
    namespace.create("small-entries", LogConfig(entry_bytes_max=1024))

    def refuse(_stop: str) -> None:
        raise OSError(28, "No space left on device")

    writer = namespace.open_writer("small-entries")
    with at_failpoint("log.segment_write:before", refuse, occurrence=2):  # 256 entries are a group: the second one
        batch = payload_batch([bytes(600)] * 300)
        result = writer.write_bulk(batch, partial=True).result(120)
    assert isinstance(result.failure, LogWriteFailed)
    assert result.records_written == 256
    assert result.error(255) is None
    assert result.error(256) is result.failure
    assert result.dlsns().column("entry").to_pylist()[250:260] == [250, 251, 252, 253, 254, 255, None, None, None, None]
    writer.abort()
    namespace.open_writer("small-entries").close()
    assert namespace.count("small-entries") == 256


def test_an_atomic_batch_is_one_entry(namespace: LogNamespace) -> None:
    namespace.create("small-entries", LogConfig(entry_bytes_max=4096))
    with namespace.open_writer("small-entries") as writer:
        written = writer.write_atomic(payload_batch([b"%d" % n + bytes(300) for n in range(10)])).result(120)
        assert written == DlsnRange(DLSN(1, 0, 0), DLSN(1, 0, 9))
        with pytest.raises(RecordTooLarge, match=r"20 records of 8\d+ bytes together, the log takes 4096 at once"):
            writer.write_atomic(payload_batch([bytes(400)] * 20))
        with pytest.raises(LogError, match="without rows"):  # DistributedLog's TestLogRecordSet: nor is an empty set
            writer.write_atomic(payload_batch([]))
        writer.write_atomic(payload_batch([bytes(8000)])).result(120)  # a single record is always atomic
    assert [header.records for header, _body in entries(namespace, "small-entries")] == [10, 1]


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_an_atomic_batch_is_read_back_with_consecutive_slots(namespace: LogNamespace, codec: str) -> None:
    """DistributedLog's TestLogRecordSet."""
    namespace.create("coded", LogConfig.model_validate({"codec": codec}))
    payloads = [b"%d" % n * 50 for n in range(10)]
    with namespace.open_writer("coded") as writer:
        writer.write(b"before").result(120)
        written = writer.write_atomic(payload_batch(payloads)).result(120)
        with pytest.raises(RecordTooLarge, match="payload of 1040385 bytes"):
            writer.write_atomic(payload_batch([bytes(1_040_385)]))
    with namespace.open_reader("coded", written.first) as reader:
        found = reader.read(100)
    assert [(record.payload, record.dlsn) for record in found] == [
        (payload, DLSN(1, 1, slot)) for slot, payload in enumerate(payloads)
    ]


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.999, 1])
def test_of_an_atomic_batch_that_power_cut_short_nothing_or_all_is_left(namespace: LogNamespace, kept: float) -> None:
    def refuse(_stop: str) -> None:
        raise OSError(5, "Input/output error")

    writer = namespace.open_writer(LOG)
    writer.write(b"safe").result(120)
    path = segment_path(namespace, LOG, 1)
    safe = path.stat().st_size
    with at_failpoint("log.segment_sync:before", refuse), pytest.raises(LogWriteFailed):
        writer.write_atomic(payload_batch([b"%04d" % n for n in range(1000)])).result(120)
    writer.abort()
    whole = path.read_bytes()
    path.write_bytes(whole[: safe + int(kept * (len(whole) - safe))])
    namespace.open_writer(LOG).close()
    assert namespace.count(LOG) == (1001 if kept == 1 else 1)


def test_records_that_are_too_large_for_one_entry_together_are_no_error_one_by_one(namespace: LogNamespace) -> None:
    """DistributedLog's testMaxTransmissionSize: the first is sent, and then the second."""
    with namespace.open_writer(LOG) as writer:
        entered, go = threading.Event(), threading.Event()

        def hold(_stop: str) -> None:
            entered.set()
            assert go.wait(120)

        with at_failpoint("log.segment_sync:before", hold):
            writer.write(b"first")
            assert entered.wait(120)
            futures = [writer.write(bytes(600_000)) for _ in range(2)]
            go.set()
            assert [future.result(120) for future in futures] == [DLSN(1, 1, 0), DLSN(1, 2, 0)]
    assert [header.records for header, _body in entries(namespace, LOG)] == [1, 1, 1]


def test_a_payload_of_512_mib_is_written_and_read_back_and_one_byte_more_is_not(namespace: LogNamespace) -> None:
    """Boomscooter's largest message."""
    largest = 512 * MIB
    namespace.create("large", LogConfig(record_bytes_max=largest))
    payload = b"x".rjust(largest, b".")
    with namespace.open_writer("large") as writer:
        written = writer.write(payload)
        with pytest.raises(RecordTooLarge, match=f"{largest + 1} bytes, the log takes {largest}"):
            writer.write(bytes(largest + 1))
        assert written.result(120) == DLSN.INITIAL
        writer.write(b"after")
    with namespace.open_reader("large") as reader:
        batch = reader.read_batch()
        assert batch is not None
        found = batch.column("payload")[0].as_buffer()
        assert found.size == largest
        assert found.equals(pa.py_buffer(payload))
        assert [record.payload for record in reader.read()] == [b"after"]
