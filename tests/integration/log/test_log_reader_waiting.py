"""Readers that wait: for so many records, until they are closed, and for too long; and readers that have failed."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from scribengin.errors import (
    DamagedEntry,
    EndOfStream,
    LogClosed,
    LogNotFound,
    PositionTruncated,
    ReadCancelled,
    ReaderIdle,
    ScribenginError,
)
from scribengin.log import DLSN, LogConfig, LogNamespace, LogReader, ReadAhead, TransactionId
from scribengin.log.clients import recover_log
from scribengin.log.format.entry import Damage
from scribengin.log.read.catalog import LogCatalog, SegmentReader
from scribengin.log.store.contract import SegmentName, SegmentView
from scribengin.log.store.file import FileSegmentStore
from scribengin.log.store.index import EntryPlace
from scribengin.testing.chaos_proxy import ChaosProxy
from scribengin.testing.clocks import ManualClock
from scribengin.testing.log_samples import bound_namespace, damage_segment, fill_log, payloads_left, segment_path
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry, SessionState
from scribengin_registry.opening import connect
from tests.garbage import collect_garbage

LOG = "flights/0"


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    return bound_namespace(registry, tmp_path / "store", LOG, config=LogConfig(segment_bytes_max=4096))


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def is_waiting(reader: LogReader) -> bool:
    """Whether a call of another thread is under way."""
    free = reader._calling.acquire(blocking=False)
    if free:
        reader._calling.release()
    return not free


def test_reading_for_all_waits_for_all(namespace: LogNamespace, threads: ThreadPoolExecutor) -> None:
    """DistributedLog's TestAsyncReaderWriter, testBulkReadWaitingMoreRecords and ...NotWaitingMoreRecords."""
    with namespace.open_writer(LOG) as writer, namespace.open_reader(LOG) as reader:
        writer.write(b"0").result(120)
        writer.write(b"1").result(120)
        assert [record.payload for record in reader.read(20)] == [b"0", b"1"]
        assert reader.read(20, wait_for_all=True) == []
        bulk = threads.submit(reader.read, 20, 60, wait_for_all=True)
        for n in range(2, 21):
            writer.write(b"%d" % n).result(120)
            assert not bulk.done()
        for n in range(21, 25):
            writer.write(b"%d" % n).result(120)
        assert [record.payload for record in bulk.result(120)] == [b"%d" % n for n in range(2, 22)]
        assert [record.payload for record in reader.read(20)] == [b"22", b"23", b"24"]


def test_reading_for_all_ends_with_the_log_or_the_time(namespace: LogNamespace, threads: ThreadPoolExecutor) -> None:
    clock = ManualClock()
    patient = LogNamespace.open(namespace.path, registry=namespace.registry, clock=clock)
    writer = namespace.open_writer(LOG)
    with patient.open_reader(LOG) as reader:
        writer.write(b"0").result(120)
        bulk = threads.submit(reader.read, 10, 5.0, wait_for_all=True)
        wait_until(lambda: reader.position > DLSN.INITIAL, what="the first record to be read")
        assert not bulk.done()
        clock.advance_s(6)
        assert [record.payload for record in bulk.result(120)] == [b"0"]
        bulk = threads.submit(reader.read, 10, 5.0, wait_for_all=True)
        writer.write(b"1").result(120)
        writer.mark_end_of_stream()
        assert [record.payload for record in bulk.result(120)] == [b"1"]
        with pytest.raises(EndOfStream):
            reader.read(10, wait_for_all=True)


def test_closing_cancels_what_waits_and_refuses_what_comes(
    namespace: LogNamespace, threads: ThreadPoolExecutor
) -> None:
    """DistributedLog's TestAsyncReaderWriter, testCancelReadRequestOnReaderClosed."""
    fill_log(namespace, LOG, 2)
    calls: list[Callable[[LogReader], object]] = [
        lambda reader: reader.read_batch(timeout_s=60),
        lambda reader: reader.read(timeout_s=60),
        lambda reader: reader.read(5, timeout_s=60, wait_for_all=True),
        lambda reader: reader.wait(reader.position, 60),
    ]
    for call in calls:
        reader = namespace.open_reader(LOG, read_ahead=ReadAhead())
        payloads_left(reader)
        waiting = threads.submit(call, reader)
        wait_until(lambda reader=reader: is_waiting(reader), what="the call to wait")  # type: ignore[misc]
        reader.close()
        with pytest.raises(ReadCancelled, match="while it waited"):
            waiting.result(120)
        with pytest.raises(LogClosed, match="open a new one"):
            call(reader)
        assert not isinstance(_raised(reader.read), ReadCancelled)


def _raised(call: Callable[[], object]) -> ScribenginError:
    with pytest.raises(ScribenginError) as raised:
        call()
    return raised.value


def truncate_under(namespace: LogNamespace, reader: LogReader) -> None:
    assert reader.position == DLSN(1, 1, 0)
    namespace.truncate(LOG, DLSN(2, 1, 0))
    wait_until(lambda: is_truncated(reader, DLSN(1, 1, 0)), what="the reader to know")


def is_truncated(reader: LogReader, position: DLSN) -> bool:
    try:
        reader.lag(position)
    except PositionTruncated:
        return True
    return False


def damage_ahead(namespace: LogNamespace, _reader: LogReader) -> None:
    damage_segment(namespace, LOG, 1, 1555)


def delete(namespace: LogNamespace, _reader: LogReader) -> None:
    namespace.delete(LOG)


def lose_the_file(namespace: LogNamespace, _reader: LogReader) -> None:
    segment_path(namespace, LOG, 2).unlink()


@pytest.mark.parametrize(
    ("harm", "error"),
    [
        (damage_ahead, DamagedEntry),
        (truncate_under, PositionTruncated),
        (delete, LogNotFound),
        (lose_the_file, LogNotFound),
    ],
)
def test_a_reader_that_failed_fails_until_it_is_opened_again(
    namespace: LogNamespace,
    elsewhere: LogNamespace,
    harm: Callable[[LogNamespace, LogReader], None],
    error: type[ScribenginError],
) -> None:
    fill_log(namespace, LOG, 7)
    with namespace.open_reader(LOG, DLSN(1, 0, 0)) as reader:
        reader.read(1)
        harm(elsewhere, reader)

        failures: list[ScribenginError] = []

        def fails() -> bool:
            try:
                reader.read_batch(1)
            except ScribenginError as failure:
                failures.append(failure)
            return bool(failures)

        wait_until(fails, what="the reader to fail")
        assert isinstance(failures[0], error)
        position = reader.position
        if harm is not delete:
            namespace.delete(LOG)
            namespace.create(LOG)
            fill_log(namespace, LOG, 7)  # everything would be fine again
        for call in (reader.read, reader.read_batch, lambda: reader.read(3, 1, wait_for_all=True)):
            assert _raised(call) is failures[0]
        assert reader.position == position


def test_a_failure_waits_until_what_came_before_it_was_read(namespace: LogNamespace) -> None:
    payloads = fill_log(namespace, LOG, 6)
    damage_segment(namespace, LOG, 2, 1555)
    with namespace.open_reader(LOG) as reader:
        assert [record.payload for record in reader.read(100)] == payloads[:4]
        with pytest.raises(DamagedEntry):
            reader.read(100)


@pytest.mark.parametrize("ahead", [None, ReadAhead()])
@pytest.mark.parametrize("error", [MemoryError("no room"), KeyboardInterrupt()])
def test_nothing_is_lost_when_a_read_is_interrupted(
    namespace: LogNamespace, monkeypatch: pytest.MonkeyPatch, ahead: ReadAhead | None, error: BaseException
) -> None:
    payloads = fill_log(namespace, LOG, 7)
    verify = SegmentReader.decoded
    verified: list[int] = []

    def interrupted(self: SegmentReader, place: EntryPlace, stored: pa.Buffer) -> pa.RecordBatch | Damage:
        verified.append(place.header.entry)
        if len(verified) == 4:
            raise error
        return verify(self, place, stored)

    monkeypatch.setattr(SegmentReader, "decoded", interrupted)
    with namespace.open_reader(LOG, read_ahead=ahead) as reader:
        found = [record.payload for record in reader.read(2)]
        with pytest.raises(type(error)):
            reader.read(100)
        with pytest.raises((MemoryError, LogClosed)):
            reader.read(100)
        position = reader.position
    with namespace.open_reader(LOG, position, read_ahead=ahead) as reader:
        assert found + payloads_left(reader) == payloads


def test_a_reader_beyond_the_last_transaction_id_waits(namespace: LogNamespace, threads: ThreadPoolExecutor) -> None:
    payloads = fill_log(namespace, LOG, 4)
    with namespace.open_reader(LOG, TransactionId(35)) as reader, namespace.open_writer(LOG) as writer:
        waiting = threads.submit(reader.read, 1, 60)
        wait_until(lambda: is_waiting(reader), what="the reader to wait")
        writer.write(b"less", txid=34).result(120)
        writer.write(b"equal", txid=35).result(120)
        assert [record.payload for record in waiting.result(120)] == [b"equal"]
    assert len(payloads) == 4


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def watched(namespace: LogNamespace, registry: Registry, clock: ManualClock) -> LogNamespace:
    """The namespace as a reader sees it whose clock is moved by hand."""
    return LogNamespace.open(namespace.path, registry=registry, clock=clock)


def test_an_open_log_from_which_nothing_comes_is_idle(
    namespace: LogNamespace, watched: LogNamespace, clock: ManualClock
) -> None:
    with (
        namespace.open_writer(LOG) as writer,
        watched.open_reader(LOG, idle_warn_s=20, idle_error_s=60) as reader,
        watched.open_reader(LOG) as patient,
    ):
        for _ in range(5):
            clock.advance_s(59)
            assert reader.is_idle
            writer.write(b"here").result(120)
            assert [record.payload for record in reader.read()] == [b"here"]
            assert not reader.is_idle
        clock.advance_s(59)
        assert reader.read() == []
        clock.advance_s(1)
        writer.write(b"too late?").result(120)
        assert [record.payload for record in reader.read()] == [b"too late?"], "what is there is not idle"
        clock.advance_s(60)
        for _ in range(2):
            with pytest.raises(ReaderIdle, match="60 s, not even a keep-alive"):
                reader.read()
        assert len(payloads_left(patient)) == 6
        clock.advance_s(1_000_000)
        assert patient.read() == []
        assert patient.is_idle


def test_a_keep_alive_is_a_sign_of_life(
    namespace: LogNamespace, watched: LogNamespace, clock: ManualClock, registry: Registry
) -> None:
    alive = ManualClock()
    namespace.create("alive", LogConfig(keep_alive_ms=1_000))
    writing = LogNamespace.open(namespace.path, registry=registry, clock=alive)
    with writing.open_writer("alive") as writer, watched.open_reader("alive", idle_error_s=60) as reader:
        writer.write(b"one").result(120)
        assert [record.payload for record in reader.read(1, timeout_s=120)] == [b"one"], "it learns of the segment"
        for _ in range(3):
            clock.advance_s(59)
            before = reader.end_position()
            alive.advance_s(2)
            wait_until(lambda before=before: reader.end_position() > before, what="a keep-alive")  # type: ignore[misc]
            assert reader.read() == []
            assert not reader.is_idle
        assert reader.position == reader.end_position()


def test_a_log_that_nobody_writes_is_at_rest_and_not_idle(
    namespace: LogNamespace, watched: LogNamespace, clock: ManualClock
) -> None:
    fill_log(namespace, LOG, 2)
    with watched.open_reader(LOG, idle_error_s=60) as reader:
        payloads_left(reader)
        clock.advance_s(600)
        assert reader.read() == []
        with namespace.open_writer(LOG):
            clock.advance_s(59)
            assert reader.read() == []
            clock.advance_s(2)
            with pytest.raises(ReaderIdle):
                reader.read()


def test_a_log_whose_writer_has_died_is_idle_until_somebody_recovers_it(
    namespace: LogNamespace, watched: LogNamespace, clock: ManualClock, registry_hosts: str
) -> None:
    with connect(registry_hosts, session_timeout_s=4.0) as session:
        dying = LogNamespace.open(namespace.path, registry=session).open_writer(LOG)
        dying.write(b"last words").result(120)
    with watched.open_reader(LOG, idle_error_s=60) as reader, watched.open_reader(LOG, idle_error_s=60) as later:
        assert [record.payload for record in reader.read()] == [b"last words"]
        assert later.read()
        clock.advance_s(61)
        with pytest.raises(ReaderIdle, match=r"its writer has died and left a segment unfinished.*log recover"):
            reader.read()
        assert recover_log(namespace, LOG) is not None
        assert later.read() == [], "it is at rest"
        with namespace.open_writer(LOG) as writer:
            writer.write(b"next").result(120)
        assert [record.payload for record in later.read(timeout_s=120)] == [b"next"]


@pytest.mark.parametrize("read_ahead", [False, True])
def test_readers_outlive_an_outage_of_the_registry_and_read_on_meanwhile(
    namespace: LogNamespace, registry: Registry, registry_hosts: str, clock: ManualClock, read_ahead: bool
) -> None:
    namespace.create("rolling", LogConfig(segment_bytes_max=4096))
    address, _, chroot = registry_hosts.partition("/")
    with ChaosProxy(address) as proxy, connect(f"{proxy.address}/{chroot}", session_timeout_s=4.0) as session:
        tailing = LogNamespace.open(namespace.path, registry=session, clock=clock)
        options = {"read_ahead": ReadAhead()} if read_ahead else {}
        with (
            namespace.open_writer("rolling") as writer,
            tailing.open_reader("rolling", idle_error_s=1000, **options) as reader,
        ):
            writer.write(b"before").result(120)
            assert [record.payload for record in reader.read(timeout_s=120)] == [b"before"]
            registry.create("/expires")
            session.create("/expires/too", ephemeral=True)
            proxy.cut()
            wait_until(lambda: session.state is not SessionState.CONNECTED, 120, what="the connection to be missed")
            clock.advance_s(61)  # time to ask the registry, which does not answer
            writer.write(b"during").result(120)
            assert [record.payload for record in reader.read(timeout_s=120)] == [b"during"]
            clock.advance_s(3600)
            assert reader.read() == [], "nobody can tell whether it has a writer"
            for n in range(3):
                writer.write(b"%d" % n + bytes(5000)).result(120)
            wait_until(lambda: registry.find("/expires/too") is None, 120, what="the session to expire")
            proxy.heal()
            found: list[bytes] = []
            while len(found) < 3:
                found += [record.payload[:1] for record in reader.read(timeout_s=120)]
            assert found == [b"0", b"1", b"2"]


def test_a_reader_beside_a_purge_is_told_that_its_place_was_truncated(
    namespace: LogNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows of a segment whose file has just gone, and has not heard of that yet: the log exists."""
    namespace.create("long", LogConfig(segment_bytes_max=4096))
    fill_log(namespace, "long", 12)
    opened, third = FileSegmentStore.open, namespace.segments("long")[2].file

    purged: list[SegmentName] = []

    def purged_before(store: FileSegmentStore, name: SegmentName, **options: bool) -> SegmentView:
        if name == third and not purged:
            purged.append(name)
            namespace.truncate("long", DLSN(4, 0, 0))
            namespace.purge("long")
        return opened(store, name, **options)

    with namespace.open_reader("long") as reader:
        assert len(reader.read(3)) == 3
        monkeypatch.setattr(FileSegmentStore, "open", purged_before)
        with pytest.raises(PositionTruncated, match=r"SequenceNo=3.* was truncated, .*SequenceNo=4"):
            payloads_left(reader)
        assert reader.position == DLSN(2, 3, 0)


def test_a_sealed_log_ends_and_is_not_idle(namespace: LogNamespace, watched: LogNamespace, clock: ManualClock) -> None:
    with watched.open_reader(LOG, idle_error_s=60) as reader:
        namespace.open_writer(LOG).mark_end_of_stream()
        clock.advance_s(600)
        with pytest.raises(EndOfStream):
            wait_until(lambda: reader.read(), what="the end")


def test_a_waiting_reader_becomes_idle_by_itself(
    namespace: LogNamespace, watched: LogNamespace, clock: ManualClock, threads: ThreadPoolExecutor
) -> None:
    with namespace.open_writer(LOG), watched.open_reader(LOG, idle_error_s=60) as reader:
        waiting = threads.submit(reader.read, 1, 1_000)
        wait_until(lambda: is_waiting(reader), what="the reader to wait")
        clock.advance_s(61)
        with pytest.raises(ReaderIdle):
            waiting.result(120)


def test_closing_while_other_threads_read_is_safe(namespace: LogNamespace, threads: ThreadPoolExecutor) -> None:
    fill_log(namespace, LOG, 30, 3)
    for n in range(20):
        reader = namespace.open_reader(LOG, read_ahead=ReadAhead() if n % 2 else None)
        begun = threading.Event()

        def read_all(reader: LogReader = reader, begun: threading.Event = begun) -> int:
            begun.set()
            found = 0
            while (batch := reader.read_batch(1, timeout_s=60)) is not None:
                found += batch.num_rows
            return found

        reading = threads.submit(read_all)
        assert begun.wait(120)
        reader.close()
        with pytest.raises(LogClosed):
            reading.result(120)


def test_a_closed_reader_of_a_quiet_log_is_forgotten(namespace: LogNamespace) -> None:
    """Its watch stays with the session until the log changes, which may be never."""
    namespace.create("quiet")
    for _ in range(5):
        with namespace.open_reader("quiet") as reader:
            assert reader.read() == []
        del reader
    collect_garbage()
    assert [kept for kept in gc.get_objects() if isinstance(kept, LogCatalog) and kept.log.name == "quiet"] == []
