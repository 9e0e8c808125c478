"""The end of a log: sealed, it takes nothing more, and every reader that has read it all is told so, every time."""

from __future__ import annotations

import pytest

from scribengin.errors import EndOfStream, Fenced, LogClosed
from scribengin.log import DLSN, LogConfig, LogNamespace
from scribengin.testing.log_samples import payload_batch, payloads_of
from tests.servers.memory import LogPlace

LOG = "a-log"


@pytest.fixture
def namespace(log_place: LogPlace) -> LogNamespace:
    return log_place.bound(LOG, config=LogConfig(segment_bytes_max=4096))


def read_to_the_end(namespace: LogNamespace, start: DLSN | None = None) -> list[bytes]:
    """The payloads up to the end of the stream, which must be there, and be there again."""
    payloads: list[bytes] = []
    with namespace.open_reader(LOG, start) as reader:
        while not reader.ended(reader.position):
            batch = reader.read_batch()
            assert batch is not None
            payloads += payloads_of(batch)
        for _ in range(3):
            with pytest.raises(EndOfStream):
                reader.read_batch(timeout_s=120)
            with pytest.raises(EndOfStream):
                reader.read()
    return payloads


def test_readers_get_all_records_and_then_the_end_every_time(namespace: LogNamespace) -> None:
    """DistributedLog's testMarkEndOfStream."""
    payloads = [b"%03d" % n + bytes(500) for n in range(30)]
    writer = namespace.open_writer(LOG)
    for payload in payloads:
        writer.write(payload).result(120)
    writer.mark_end_of_stream()
    assert read_to_the_end(namespace) == payloads
    assert read_to_the_end(namespace, DLSN(2, 0, 0)) == payloads[-namespace.count(LOG, DLSN(2, 0, 0)) :]


def test_a_sealed_log_keeps_its_last_transaction_id_and_takes_nothing_more(namespace: LogNamespace) -> None:
    """DistributedLog's testWriteFailsAfterMarkEndOfStream: the seal itself is no record, and has no id."""
    writer = namespace.open_writer(LOG)
    writer.write(b"0", txid=41)
    writer.mark_end_of_stream()
    for call in (
        lambda: writer.write(b"1"),
        lambda: writer.write_bulk(payload_batch([b"1"])),
        writer.mark_end_of_stream,
    ):
        with pytest.raises(LogClosed):
            call()
    with pytest.raises(EndOfStream):
        namespace.open_writer(LOG)
    info, last = namespace.info(LOG), namespace.last_record(LOG)
    assert last is not None
    assert (last.txid, info.head.last_txid, info.head.end_of_stream, info.records) == (41, 41, True, 1)


def test_an_empty_log_may_be_sealed(namespace: LogNamespace) -> None:
    """DistributedLog's testMarkEndOfStreamOnEmptyStream."""
    namespace.open_writer(LOG).mark_end_of_stream()
    assert read_to_the_end(namespace) == []
    assert namespace.segments(LOG) == ()


def test_a_log_that_was_closed_may_be_sealed_by_the_next_writer(namespace: LogNamespace) -> None:
    """DistributedLog's testMarkEndOfStreamOnClosedStream."""
    with namespace.open_writer(LOG) as writer:
        writer.write(b"0")
    with namespace.open_reader(LOG) as reader:
        assert [record.payload for record in reader.read()] == [b"0"]
        assert reader.read() == []  # closed is not sealed
    namespace.open_writer(LOG).mark_end_of_stream()
    assert read_to_the_end(namespace) == [b"0"]


def test_the_end_may_be_all_that_a_writer_adds_after_a_roll(namespace: LogNamespace) -> None:
    """DistributedLog's testMarkEndOfStreamAtBeginningOfSegment: no segment is made for it."""
    with namespace.open_writer(LOG) as writer:
        writer.write_bulk(payload_batch([bytes(5000)])).result(120)  # due to be rolled
        writer.mark_end_of_stream()
    assert read_to_the_end(namespace) == [bytes(5000)]
    assert len(namespace.segments(LOG)) == 1


@pytest.mark.real_stores
def test_a_writer_that_was_replaced_cannot_seal(namespace: LogNamespace) -> None:
    stale = namespace.open_writer(LOG)
    stale.write(b"0").result(120)
    with namespace.open_writer(LOG, steal=True) as successor:
        with pytest.raises(Fenced):
            stale.mark_end_of_stream()
        successor.write(b"1").result(120)
    stale.abort()
    namespace.open_writer(LOG).mark_end_of_stream()
    assert read_to_the_end(namespace) == [b"0", b"1"]


@pytest.mark.real_stores
def test_a_reader_that_waits_is_told_of_the_end(namespace: LogNamespace) -> None:
    writer = namespace.open_writer(LOG)
    writer.write(b"0").result(120)
    with namespace.open_reader(LOG) as reader:
        assert [record.payload for record in reader.read()] == [b"0"]
        writer.mark_end_of_stream()
        with pytest.raises(EndOfStream):
            reader.read(timeout_s=120)
