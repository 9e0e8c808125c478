"""What a reader hands out, as it was asked to: places or none, types, channels, whole entries, read ahead or not."""

from __future__ import annotations

import threading
from typing import Any, Literal

import pyarrow as pa
import pytest

from scribengin.errors import ConfigInvalid, DamagedEntry, EndOfStream
from scribengin.log import DLSN, LogConfig, LogNamespace, ReadAhead, RecordPlace
from scribengin.log.format.entry import BODY_SCHEMA
from scribengin.testing.log_samples import (
    damage_segment,
    fill_log,
    payload_batch,
    payloads_left,
    payloads_of,
)
from tests.servers.memory import LogPlace

LOG = "flights/0"
AHEAD = [None, ReadAhead(), ReadAhead(entries_max=3, bytes_max=150_000, threads=2)]


@pytest.fixture
def namespace(log_place: LogPlace) -> LogNamespace:
    return log_place.bound(LOG, config=LogConfig(segment_bytes_max=4096))


def test_without_places_a_batch_is_the_body_and_the_reader_knows_where_it_stood(namespace: LogNamespace) -> None:
    payloads = fill_log(namespace, LOG, 4, 3)
    with namespace.open_reader(LOG) as reader:
        assert reader.last_place is None
        found: list[bytes] = []
        places: list[RecordPlace | None] = []
        while (batch := reader.read_batch(2, place=False)) is not None:
            assert batch.schema == BODY_SCHEMA
            places.append(reader.last_place)
            found += payloads_of(batch)
    assert found == payloads
    entries = [(1, 0), (1, 1), (1, 2), (2, 0)]
    expected = [RecordPlace(DLSN(*entry, slot), 3 * n + slot) for n, entry in enumerate(entries) for slot in (0, 2)]
    assert places == expected


def test_a_record_carries_its_type_channel_and_key(namespace: LogNamespace) -> None:
    with namespace.open_writer(LOG) as writer:
        writer.write(b"p", txid=5, key=b"k", channel="orders/1", type=40_000).result(120)
        writer.write(b"q", txid=6).result(120)
    with namespace.open_reader(LOG) as reader:
        first, second = reader.read()
    assert (first.type, first.channel, first.key, first.txid, first.payload) == (40_000, "orders/1", b"k", 5, b"p")
    assert (second.type, second.channel, second.key, second.sequence_id) == (0, None, None, 1)


def channelled(count: int) -> pa.RecordBatch:
    names = ["orders/eu", "audit", None, "orders/us", "orderly", ""]
    channels = [names[n % len(names)] for n in range(count)]
    return pa.RecordBatch.from_pydict({"payload": [b"%d" % n for n in range(count)], "channel": channels})


@pytest.mark.parametrize("rows", [1, 4, 100])
@pytest.mark.parametrize("ahead", [None, ReadAhead()])
def test_a_reader_of_channels_gets_their_records_and_their_places(
    namespace: LogNamespace, rows: int, ahead: ReadAhead | None
) -> None:
    batch = channelled(120)
    with namespace.open_writer(LOG) as writer:
        for start in range(0, 120, rows):
            writer.write_bulk(batch.slice(start, rows)).result(120)
    with namespace.open_reader(LOG) as reader:
        everything = [record for _ in range(20) for record in reader.read(10)]
    assert len(everything) == 120
    for prefixes in (("orders/",), ("orders/", "audit"), ("audit",), ("",), ("none",)):
        with namespace.open_reader(LOG, channels=prefixes, read_ahead=ahead) as reader:
            found = [record for _ in range(60) for record in reader.read(7)]
            assert reader.position == reader.end_position()
        assert found == [r for r in everything if r.channel is not None and r.channel.startswith(prefixes)]
        with namespace.open_reader(LOG, channels=prefixes) as reader:
            while (left := reader.read_batch(50, place=False)) is not None:
                at = reader.last_place
                assert at is not None
                assert everything[at.sequence_id].dlsn == at.dlsn
                assert everything[at.sequence_id].payload == payloads_of(left)[0]


def test_whole_entries_are_not_cut(namespace: LogNamespace) -> None:
    """DistributedLog's TestAsyncReaderWriter, testWriteRecordSet: a set comes whole, or a record at a time."""
    payloads = fill_log(namespace, LOG, 3, 3)
    with namespace.open_reader(LOG, DLSN(1, 0, 1), whole_entries=True) as reader:
        batches = []
        while (batch := reader.read_batch(1)) is not None:
            batches.append(payloads_of(batch))
    assert batches == [payloads[1:3], payloads[3:6], payloads[6:]]
    with namespace.open_reader(LOG, whole_entries=True) as reader:
        assert [record.payload for record in reader.read(4)] == payloads[:6]
    with namespace.open_reader(LOG) as reader:
        assert [record.payload for record in reader.read(1)] == payloads[:1]


@pytest.mark.parametrize(
    ("option", "value"), [("chanels", ()), ("channels", "orders"), ("idle_error_s", 0), ("read_ahead", {"pages": 1})]
)
def test_an_option_that_there_is_not_is_refused(namespace: LogNamespace, option: str, value: Any) -> None:
    with pytest.raises(ConfigInvalid, match=f"a reader of log '{LOG}'.*{option}"):
        namespace.open_reader(LOG, **{option: value})


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("ahead", AHEAD)
def test_large_entries_read_the_same_ahead_or_not(
    namespace: LogNamespace, codec: Literal["none", "zstd"], ahead: ReadAhead | None
) -> None:
    config = LogConfig(codec=codec, segment_bytes_max=1_000_000, entry_bytes_max=100_000)
    namespace.create(codec, config)
    payloads = [b"%06d" % n + bytes(range(200)) * 4 for n in range(4_000)]
    with namespace.open_writer(codec) as writer:
        writer.write_bulk(payload_batch(payloads[:3_000])).result(120)
        for payload in payloads[3_000:3_010]:
            writer.write(payload)
        writer.write_bulk(payload_batch(payloads[3_010:])).result(120)
    with namespace.open_reader(codec, read_ahead=ahead) as reader:
        assert payloads_left(reader) == payloads


def read_ahead_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("log-read-ahead")]


def test_no_thread_outlives_its_reader(namespace: LogNamespace) -> None:
    namespace.create("large", LogConfig(entry_bytes_max=100_000))
    with namespace.open_writer("large") as writer:
        writer.write_bulk(payload_batch([bytes(1000)] * 1000)).result(120)
    with namespace.open_reader("large", read_ahead=ReadAhead(threads=2)) as reader:
        reader.read(1)
        assert len(read_ahead_threads()) == 2
    assert read_ahead_threads() == []


def test_what_is_read_ahead_is_bounded(namespace: LogNamespace) -> None:
    namespace.create("large", LogConfig(entry_bytes_max=100_000))
    with namespace.open_writer("large") as writer:
        writer.write_bulk(payload_batch([bytes(1000)] * 5000)).result(120)
    for limits in (ReadAhead(entries_max=4), ReadAhead(bytes_max=350_000), ReadAhead(bytes_max=1)):
        with namespace.open_reader("large", read_ahead=limits) as reader:
            reader.read(1)
            cursor = reader._entries._cursor  # type: ignore[attr-defined]
            ahead = 4 if limits.bytes_max > 1 else 1
            assert cursor.position == DLSN(1, ahead, 0), "the first was taken, and no more were added yet"


@pytest.mark.parametrize("ahead", [ReadAhead(), ReadAhead(entries_max=1)])
def test_an_error_ahead_is_raised_at_its_place(namespace: LogNamespace, ahead: ReadAhead) -> None:
    payloads = fill_log(namespace, LOG, 6)
    damage_segment(namespace, LOG, 2, 1555)
    with namespace.open_reader(LOG, read_ahead=ahead) as reader:
        assert [record.payload for _ in range(4) for record in reader.read(1)] == payloads[:4]
        for _ in range(2):
            with pytest.raises(DamagedEntry, match="segment 2, entry 1"):
                reader.read(1)
        assert reader.position == DLSN(2, 1, 0)


@pytest.mark.real_stores
def test_a_sealed_log_read_ahead_ends_behind_its_last_record(namespace: LogNamespace) -> None:
    with namespace.open_writer(LOG) as writer:
        for n in range(5):
            writer.write(b"%d" % n).result(120)
        writer.mark_end_of_stream()
    with namespace.open_reader(LOG, read_ahead=ReadAhead()) as reader:
        assert [record.payload for record in reader.read(10)] == [b"0", b"1", b"2", b"3", b"4"]
        for _ in range(2):
            with pytest.raises(EndOfStream):
                reader.read(1)
