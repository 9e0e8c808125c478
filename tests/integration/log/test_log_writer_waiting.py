"""What a writer lets wait, and for how long: transmission, durability, outstanding limits, signs of life."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.errors import EndOfStream, Fenced, LogClosed, LogWriteFailed, OverCapacity
from scribengin.log import DLSN, LogConfig, LogNamespace, LogWriter, WriteLimiter
from scribengin.log.format.entry import EntryHeader, EntryType, read_header
from scribengin.log.write.group_commit import GroupCommit
from scribengin.testing.clocks import ManualClock
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import bound_namespace, payload_batch, payloads_read, segment_path
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry
from tests.integration.log.clocks import HastyClock
from tests.integration.log.log_writers import handmade_writer

LOG = "a-log"
HOUR_MS = 3_600_000
_MOMENT_S = 0.05
"""Long enough for what must not happen to happen mostly; nothing waits for it that must happen."""


def open_namespace(registry: Registry, directory: Path, clock: Clock = SYSTEM_CLOCK, **config: object) -> LogNamespace:
    bound_namespace(registry, directory / "store", LOG, config=LogConfig.model_validate(config))
    return LogNamespace.open("/logs", registry=registry, clock=clock)


@contextmanager
def disk_held() -> Iterator[threading.Event]:
    """The next sync waits for the event; leaving the block sets it."""
    go = threading.Event()

    def hold(_stop: str) -> None:
        assert go.wait(120)

    with at_failpoint("log.segment_sync:before", hold):
        try:
            yield go
        finally:
            go.set()


def types_written(namespace: LogNamespace, number: int = 1) -> list[EntryType]:
    """The types of the entries of a segment, in order."""
    data = memoryview(segment_path(namespace, LOG, number).read_bytes())
    found, at = [], 0
    while at < len(data) and isinstance(header := read_header(data, at), EntryHeader):
        found.append(EntryType(header.type))
        at += header.size
    return found


class LookedAtClock(ManualClock):
    """Counts how often the time was asked for."""

    looks = 0

    def monotonic_s(self) -> float:
        self.looks += 1
        return super().monotonic_s()


def test_records_wait_until_they_are_old_enough(registry: Registry, tmp_path: Path) -> None:
    clock = LookedAtClock()
    namespace = open_namespace(registry, tmp_path, clock, transmit_interval_ms=HOUR_MS)
    with namespace.open_writer(LOG) as writer:
        before = clock.looks
        first = writer.write(b"0")
        clock.advance_s(1800)
        second = writer.write(b"1")
        wait_until(lambda: clock.looks >= before + 4, what="the writer to look at the time")
        assert not first.done()
        clock.advance_s(1800)
        third = writer.write(b"2")  # whatever happens, the writer looks again
        assert [future.result(120) for future in (first, second, third)] == [DLSN(1, 0, slot) for slot in range(3)]


def test_time_alone_sends_what_waits(registry: Registry, tmp_path: Path) -> None:
    namespace = open_namespace(registry, tmp_path, transmit_interval_ms=20)
    with namespace.open_writer(LOG) as writer:
        assert writer.write(b"0").result(120) == DLSN(1, 0, 0)
        assert writer.write_bulk(payload_batch([b"1"])).result(120).first == DLSN(1, 1, 0)


def test_records_wait_until_they_are_enough(registry: Registry, tmp_path: Path) -> None:
    namespace = open_namespace(registry, tmp_path, transmit_bytes=3000)
    with namespace.open_writer(LOG) as writer:
        futures = [writer.write(bytes(900)) for _ in range(3)]
        assert not any(future.done() for future in futures)
        futures.append(writer.write(bytes(900)))
        assert [future.result(120) for future in futures] == [DLSN(1, 0, slot) for slot in range(4)]


@pytest.mark.parametrize("end", ["flush", "close"])
def test_flush_and_close_send_what_waits_at_once(registry: Registry, tmp_path: Path, end: str) -> None:
    namespace = open_namespace(registry, tmp_path, transmit_bytes=1 << 30, transmit_interval_ms=HOUR_MS)
    writer = namespace.open_writer(LOG)
    future = writer.write(b"0")
    assert not future.done()
    getattr(writer, end)()
    assert future.result(0) == DLSN(1, 0, 0)
    writer.close()


def test_a_full_queue_is_sent_whatever_the_policy(registry: Registry, tmp_path: Path) -> None:
    namespace = open_namespace(registry, tmp_path, transmit_bytes=1 << 30, pending_bytes_max=4096)
    with namespace.open_writer(LOG) as writer:
        futures = [writer.write(bytes(2000)) for _ in range(10)]  # would wait for room for ever
        assert futures[0].result(120) == DLSN(1, 0, 0)


def test_a_write_that_is_not_durable_has_no_position_and_flush_makes_it_durable(
    registry: Registry, tmp_path: Path
) -> None:
    """DistributedLog's testNondurable*."""
    namespace = open_namespace(registry, tmp_path, durable_writes=False)
    with namespace.open_writer(LOG) as writer:
        with disk_held() as go:
            assert writer.write(b"0").result(0) == DLSN.INVALID
            assert writer.write_bulk(payload_batch([b"1", b"2"])).result(0).last == DLSN.INVALID
            assert writer.write_atomic(payload_batch([b"3"])).result(0).first == DLSN.INVALID
            result = writer.write_bulk(payload_batch([b"4"]), partial=True).result(0)
            assert result.dlsns().column("segment").to_pylist() == [DLSN.INVALID.segment]
            assert payloads_read(namespace, LOG) == []  # readers see what is durable, and nothing else
            go.set()
            assert writer.flush().slot >= 0
        assert payloads_read(namespace, LOG) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_write_that_is_not_durable_fails_after_the_log_was_sealed_or_closed(
    registry: Registry, tmp_path: Path
) -> None:
    namespace = open_namespace(registry, tmp_path, durable_writes=False)
    closed = namespace.open_writer(LOG)
    closed.close()
    sealed = namespace.open_writer(LOG)
    sealed.mark_end_of_stream()
    for writer in (closed, sealed):
        with pytest.raises(LogClosed):
            writer.write(b"late")
    with pytest.raises(EndOfStream):
        namespace.open_writer(LOG)


def write_and_flush(writer: LogWriter, payload: bytes) -> None:
    """The one or the other raises what ended the writer."""
    writer.write(payload)
    writer.flush()


def test_a_write_that_is_not_durable_fails_once_the_writer_was_fenced(registry: Registry, tmp_path: Path) -> None:
    namespace = open_namespace(registry, tmp_path, durable_writes=False)
    stale = namespace.open_writer(LOG)
    stale.write(b"0")
    stale.flush()
    with namespace.open_writer(LOG, steal=True):
        with pytest.raises(Fenced):
            write_and_flush(stale, b"promised to nobody")
        with pytest.raises(Fenced):
            stale.write(b"late")
        stale.abort()
    assert payloads_read(namespace, LOG) == [b"0"]


def test_a_failure_that_no_future_tells_is_raised_by_close(registry: Registry, tmp_path: Path) -> None:
    namespace = open_namespace(registry, tmp_path, durable_writes=False)

    def refuse(_stop: str) -> None:
        raise OSError(5, "Input/output error")

    writer = namespace.open_writer(LOG)
    with at_failpoint("log.segment_sync:before", refuse):
        writer.write(b"0")
        with pytest.raises(LogWriteFailed):
            writer.close()


def test_a_limit_of_zero_refuses_every_write(registry: Registry, tmp_path: Path) -> None:
    """DistributedLog's testOutstandingWriteLimit."""
    namespace = open_namespace(registry, tmp_path, outstanding_writes_max=0, outstanding_dark_mode=False)
    with namespace.open_writer(LOG) as writer:
        with pytest.raises(OverCapacity, match="the writer of log 'a-log'"):
            writer.write(b"0")
        with pytest.raises(OverCapacity):
            writer.write_bulk(payload_batch([b"1"]))
        with pytest.raises(OverCapacity):
            writer.write_bulk(payload_batch([b"1"]), partial=True)
        assert writer.flush() == DLSN.INVALID
    assert payloads_read(namespace, LOG) == []


def test_what_is_acknowledged_makes_room(registry: Registry, tmp_path: Path) -> None:
    namespace = open_namespace(registry, tmp_path, outstanding_writes_max=3, outstanding_dark_mode=False)
    with namespace.open_writer(LOG) as writer:
        with disk_held():
            writer.write(b"0")
            writer.write_bulk(payload_batch([b"1", b"2"]))
            with pytest.raises(OverCapacity, match="1 more records over 3"):
                writer.write(b"3")
        writer.flush()
        writer.write_bulk(payload_batch([b"3", b"4", b"5"]))
    assert payloads_read(namespace, LOG) == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_in_dark_mode_everything_is_written(registry: Registry, tmp_path: Path) -> None:
    """DistributedLog's testOutstandingWriteLimitDarkmode."""
    namespace = open_namespace(registry, tmp_path, outstanding_writes_max=0, outstanding_dark_mode=True)
    with namespace.open_writer(LOG) as writer:
        writer.write(b"0")
        writer.write_bulk(payload_batch([b"1"]))
    assert payloads_read(namespace, LOG) == [b"0", b"1"]


@pytest.mark.parametrize("end", ["abort", "failure"])
def test_what_will_never_be_acknowledged_makes_room_too(registry: Registry, tmp_path: Path, end: str) -> None:
    namespace = open_namespace(registry, tmp_path, entry_bytes_max=1024, transmit_bytes=1 << 30)
    shared = WriteLimiter(5000, what="the namespace")
    writer = handmade_writer(registry, namespace, LOG, limiter=shared)
    written = writer.write_bulk(payload_batch([bytes(600)] * 400))  # two groups
    writer.write(b"alone")
    assert shared.outstanding == 401
    if end == "failure":

        def refuse(_stop: str) -> None:
            raise OSError(5, "Input/output error")

        with at_failpoint("log.segment_sync:before", refuse), pytest.raises(LogWriteFailed):
            writer.flush()
    writer.abort()
    assert isinstance(written.exception(10), LogClosed if end == "abort" else LogWriteFailed)
    for _ in range(10):
        with pytest.raises(LogClosed):
            writer.write(b"1")
    assert shared.outstanding == 0


def test_writers_may_share_a_limit(registry: Registry, tmp_path: Path) -> None:
    namespace = open_namespace(registry, tmp_path, transmit_bytes=1 << 30)
    namespace.create("another", LogConfig())
    shared = WriteLimiter(3, what="the namespace")
    with (
        handmade_writer(registry, namespace, LOG, limiter=shared) as one,
        handmade_writer(registry, namespace, "another", limiter=shared) as other,
    ):
        one.write_bulk(payload_batch([b"0", b"1", b"2"]))
        with pytest.raises(OverCapacity, match="the namespace: 1 more records over 3"):
            other.write(b"refused")
        one.flush()
        other.write(b"taken")
    assert (namespace.count(LOG), namespace.count("another")) == (3, 1)


def test_an_idle_writer_says_that_it_is_there_and_readers_see_no_record(registry: Registry, tmp_path: Path) -> None:
    namespace = open_namespace(registry, tmp_path, keep_alive_ms=5)
    with namespace.open_writer(LOG) as writer:
        wait_until(lambda: namespace.segments(LOG) and types_written(namespace), what="a first keep-alive")
        first = writer.write(b"0", txid=7).result(120)
        wait_until(lambda: types_written(namespace)[-3:] == [EntryType.KEEP_ALIVE] * 3, what="more of them")
        with namespace.open_reader(LOG) as reader:
            assert [(record.payload, record.sequence_id, record.txid) for record in reader.read()] == [(b"0", 0, 7)]
            assert reader.read() == []
        writer.write(b"1", txid=7).result(120)
        assert writer.flush() > first
    last = namespace.last_record(LOG)
    assert last is not None
    assert (last.payload, last.sequence_id, last.txid, namespace.count(LOG)) == (b"1", 1, 7, 2)
    (segment,) = namespace.segments(LOG)
    assert (segment.records, segment.last_txid) == (2, 7)
    assert types_written(namespace).count(EntryType.RECORDS) == 2


def test_keep_alives_survive_recovery_as_the_nothing_they_are(registry: Registry, tmp_path: Path) -> None:
    namespace = open_namespace(registry, tmp_path, keep_alive_ms=5)
    writer = namespace.open_writer(LOG)
    writer.write(b"0").result(120)
    wait_until(lambda: EntryType.KEEP_ALIVE in types_written(namespace), what="a keep-alive")
    writer.abort()
    with namespace.open_writer(LOG) as successor:
        successor.write(b"1").result(120)
    assert payloads_read(namespace, LOG) == [b"0", b"1"]


def test_an_idle_writer_that_was_fenced_finds_out(registry: Registry, tmp_path: Path) -> None:
    namespace = open_namespace(registry, tmp_path, keep_alive_ms=5)
    stale = namespace.open_writer(LOG)
    stale.write(b"0").result(120)
    with namespace.open_writer(LOG, steal=True):
        wait_until(lambda: stale.failed, what="the fenced writer to notice")
        with pytest.raises(Fenced):
            stale.close()


def test_no_sign_of_life_disturbs_a_staged_round(registry: Registry, tmp_path: Path) -> None:
    namespace = open_namespace(registry, tmp_path, HastyClock(), keep_alive_ms=60_000)
    registry.create("/scribengin/locks/commit-log", b"", parents=True)
    with namespace.open_writer(LOG, commit_log="/scribengin/locks/commit-log") as writer:
        for n in range(20):
            writer.stage(payload_batch([b"%d" % n]))
            stay_idle(writer)
            writer.stage(payload_batch([b"%d again" % n]))
            staged = writer.prepare()
            assert staged is not None
            assert staged.last_entry - staged.first_entry == 1
            writer.commit_staged(staged)
    assert len(payloads_read(namespace, LOG)) == 40
    types = [kind for kind in types_written(namespace) if kind != EntryType.KEEP_ALIVE]
    assert types == [EntryType.STAGED, EntryType.STAGED, EntryType.CONTROL] * 20


def stay_idle(writer: LogWriter) -> None:
    """Give the writer's thread every opportunity to do something."""
    for _ in range(20):
        writer.flush()


@pytest.mark.parametrize("end", [LogWriter.mark_end_of_stream, LogWriter.close])
def test_no_keep_alive_follows_the_end_of_a_writer(
    registry: Registry, tmp_path: Path, end: Callable[[LogWriter], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the last transaction and the end of the writer's thread there is time for another sign of life."""
    clock = ManualClock()
    namespace = open_namespace(registry, tmp_path, clock, keep_alive_ms=1)
    writer = namespace.open_writer(LOG)
    writer.write(b"x").result(120)
    stop, never = GroupCommit.stop, threading.Event()

    def late(group: GroupCommit) -> None:
        clock.advance_s(1)
        group.flush()  # which wakes the thread
        never.wait(_MOMENT_S)
        stop(group)

    monkeypatch.setattr(GroupCommit, "stop", late)
    end(writer)
    segments = namespace.segments(LOG)
    assert len(segments) == 1
    assert not segments[0].in_progress
