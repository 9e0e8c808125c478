"""Readers that were told to pass over damage: everything that holds is read once, the rest is counted."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from scribengin.errors import DamagedEntry, EndOfStream
from scribengin.log import (
    DLSN,
    LogConfig,
    LogNamespace,
    LogReader,
    LogRecord,
    ReadAhead,
    SequenceId,
    Start,
    TransactionId,
)
from scribengin.testing.log_samples import (
    bound_namespace,
    damage_segment,
    fill_log,
    payloads_left,
    segment_path,
)
from scribengin_registry.contract import Registry

LOG = "flights/0"
AHEAD = [None, ReadAhead(), ReadAhead(entries_max=1)]
ENTRY_BYTES = 1536
HEADER, BODY = 20, 64 + 700
"""Where to hit an entry of `fill_log`."""


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    return bound_namespace(registry, tmp_path / "store", LOG, config=LogConfig(segment_bytes_max=4096))


def skipping(namespace: LogNamespace, start: Start = None, ahead: ReadAhead | None = None) -> LogReader:
    return namespace.open_reader(LOG, start, skip_damaged=True, read_ahead=ahead)


@pytest.mark.parametrize("at", [HEADER, BODY], ids=["header", "body"])
@pytest.mark.parametrize("entry", [0, 1, 2])
@pytest.mark.parametrize("ahead", AHEAD)
def test_a_broken_entry_is_skipped_when_enabled_and_an_error_when_not(
    namespace: LogNamespace, at: int, entry: int, ahead: ReadAhead | None
) -> None:
    """DistributedLog's TestAsyncReaderWriter, testReadBrokenEntries and testReadBrokenEntriesWithGapDetection."""
    payloads = fill_log(namespace, LOG, 7)
    damage_segment(namespace, LOG, 2, entry * ENTRY_BYTES + at)
    lost = 3 + entry
    with skipping(namespace, ahead=ahead) as reader:
        assert payloads_left(reader) == payloads[:lost] + payloads[lost + 1 :]
        assert (reader.damaged_entries, reader.damaged_bytes) == (1, ENTRY_BYTES)
        assert reader.position == reader.end_position()
    with namespace.open_reader(LOG, read_ahead=ahead) as reader:
        assert [record.payload for record in reader.read(100)] == payloads[:lost]
        with pytest.raises(DamagedEntry, match=f"segment 2, entry {entry} "):
            reader.read(100)
        assert (reader.damaged_entries, reader.position) == (0, DLSN(2, entry, 0))


@pytest.mark.parametrize("ahead", AHEAD)
def test_many_broken_entries_are_skipped_each_once(namespace: LogNamespace, ahead: ReadAhead | None) -> None:
    config = LogConfig(segment_bytes_max=100_000)
    namespace.create("long", config)
    payloads = [b"%06d" % n + bytes(1000) for n in range(200)]
    with namespace.open_writer("long") as writer:
        for payload in payloads:
            writer.write(payload).result(120)
    with namespace.open_reader("long") as reader:
        places = [record.dlsn for _ in range(200) for record in reader.read(1)]
    chosen = random.Random(4)
    lost = sorted(chosen.sample(range(200), 60))
    for n in lost:
        damage_segment(namespace, "long", places[n].segment, places[n].entry * ENTRY_BYTES + chosen.randrange(1100))
    with namespace.open_reader("long", skip_damaged=True, read_ahead=ahead) as reader:
        found: list[LogRecord] = []
        while records := reader.read(7):
            found += records
        assert reader.damaged_entries == 60
        assert reader.damaged_bytes == 60 * ENTRY_BYTES
    kept = [n for n in range(200) if n not in lost]
    assert [record.payload for record in found] == [payloads[n] for n in kept]
    assert [(record.dlsn, record.sequence_id) for record in found] == [(places[n], n) for n in kept]


def test_a_reader_that_starts_behind_damage_is_not_kept_from_it(namespace: LogNamespace) -> None:
    payloads = fill_log(namespace, LOG, 7)
    damage_segment(namespace, LOG, 2, HEADER)
    for start in (DLSN(2, 1, 0), TransactionId(40), SequenceId(4)):
        with skipping(namespace, start) as reader:
            assert payloads_left(reader) == payloads[4:]
    with skipping(namespace, DLSN(2, 2, 0)) as reader:
        assert payloads_left(reader) == payloads[5:]
        assert reader.damaged_entries == 0, "what lies before the start is not its business"
    with skipping(namespace, DLSN(2, 0, 0)) as reader:
        assert payloads_left(reader) == payloads[4:]
        assert reader.damaged_entries == 1


def test_a_segment_that_was_cut_loses_its_end_only(namespace: LogNamespace) -> None:
    payloads = fill_log(namespace, LOG, 7)
    path = segment_path(namespace, LOG, 2)
    path.write_bytes(path.read_bytes()[: ENTRY_BYTES + 100])
    with skipping(namespace) as reader:
        assert payloads_left(reader) == payloads[:4] + payloads[6:]
        assert (reader.damaged_entries, reader.damaged_bytes) == (2, 2 * ENTRY_BYTES)


def test_a_segment_that_lost_a_piece_in_the_middle(namespace: LogNamespace) -> None:
    payloads = fill_log(namespace, LOG, 7)
    path = segment_path(namespace, LOG, 2)
    data = path.read_bytes()
    path.write_bytes(data[:ENTRY_BYTES] + data[2 * ENTRY_BYTES :])
    with namespace.open_reader(LOG, DLSN(2, 1, 0)) as reader, pytest.raises(DamagedEntry):
        reader.read()
    with skipping(namespace) as reader:
        assert payloads_left(reader) == payloads[:4] + payloads[5:]


def test_a_log_that_is_being_written_goes_on_behind_damage(namespace: LogNamespace) -> None:
    with namespace.open_writer(LOG) as writer, skipping(namespace) as reader:
        found: list[bytes] = []
        for n in range(12):
            payload = b"%06d" % n + bytes(1000)
            writer.write(payload).result(120)
            if n % 3 == 1:
                segment = namespace.segments(LOG)[-1].segment
                damage_segment(namespace, LOG, segment, n % 3 * ENTRY_BYTES + (HEADER if n % 2 else BODY))
                assert reader.read() == []
            else:
                found += [record.payload for record in reader.read()]
        assert [int(payload[:6]) for payload in found] == [n for n in range(12) if n % 3 != 1]
        assert reader.damaged_entries == 4


def test_a_sealed_log_ends_behind_damage(namespace: LogNamespace) -> None:
    with namespace.open_writer(LOG) as writer:
        for n in range(3):
            writer.write(b"%d" % n + bytes(1005)).result(120)
        writer.mark_end_of_stream()
    damage_segment(namespace, LOG, 1, 2 * ENTRY_BYTES + HEADER)
    with skipping(namespace) as reader:
        assert [record.payload[:1] for record in reader.read(10)] == [b"0", b"1"]
        with pytest.raises(EndOfStream):
            reader.read()
        assert reader.damaged_entries == 1


def test_a_log_that_carries_pieces_of_another_is_not_taken_for_it(namespace: LogNamespace) -> None:
    namespace.create("other")
    with namespace.open_writer("other") as writer:
        for n in range(20):
            writer.write(b"of the other %d" % n).result(120)
    piece = segment_path(namespace, "other", 1).read_bytes()
    namespace.create("big")
    with namespace.open_writer("big") as writer:
        writer.write(b"0").result(120)
        second = segment_path(namespace, "big", 1).stat().st_size
        writer.write(b"".join(bytes(1) + piece for _ in range(64))).result(120)  # one copy falls on a multiple of 64
        writer.write(b"2").result(120)
    damage_segment(namespace, "big", 1, second + HEADER)
    with namespace.open_reader("big", skip_damaged=True) as reader:
        assert payloads_left(reader) == [b"0", b"2"]
        assert reader.damaged_entries == 1
