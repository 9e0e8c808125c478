"""When a writer completes a segment and begins the next, and what happens when it cannot."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from scribengin.base.threads import BackgroundWork
from scribengin.errors import Fenced, InconsistentLog, LogWriteFailed
from scribengin.log import DLSN, LogConfig, LogNamespace, LogWriter
from scribengin.log.metadata.segments import SegmentsHead
from scribengin.testing.chaos_proxy import ChaosProxy, any_transaction
from scribengin.testing.clocks import ManualClock
from scribengin.testing.failpoints import Action, at_failpoint
from scribengin.testing.log_samples import bound_namespace, payloads_read
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry, SessionState
from scribengin_registry.errors import OutcomeUnknown, SessionLost
from scribengin_registry.opening import connect
from tests.integration.log.clocks import HastyClock
from tests.integration.log.log_writers import handmade_writer

LOG = "a-log"
LARGE = bytes(4000)
"""One of them makes a segment of SMALL due to be rolled, two certainly do."""
SMALL = LogConfig(segment_bytes_max=4096)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path, clock: ManualClock) -> LogNamespace:
    bound_namespace(registry, tmp_path / "store", LOG, config=SMALL)
    return LogNamespace.open("/logs", registry=registry, clock=clock)


def write(writer: LogWriter, *payloads: bytes) -> list[int]:
    """Write each as a group of its own, and return the segments they stand in."""
    return [writer.write(payload).result(120).segment for payload in payloads]


def raising(error: BaseException) -> Action:
    def action(_stop: str) -> None:
        raise error

    return action


def test_a_segment_is_rolled_by_age_at_the_next_write(namespace: LogNamespace, clock: ManualClock) -> None:
    """DistributedLog's TestRollingPolicy, by time."""
    namespace.create("by-age", LogConfig(segment_bytes_max=None, segment_age_max_s=100))
    with namespace.open_writer("by-age") as writer:
        assert write(writer, b"0") == [1]
        clock.advance_s(99)
        assert write(writer, b"1") == [1]
        clock.advance_s(1)
        assert len(namespace.segments("by-age")) == 1  # age alone does nothing
        assert write(writer, b"2") == [2]
        clock.advance_s(99)
        assert write(writer, b"3") == [2]
        clock.advance_s(1)
        assert write(writer, b"4") == [3]
    assert payloads_read(namespace, "by-age") == [b"0", b"1", b"2", b"3", b"4"]


def test_a_segment_is_rolled_by_whichever_limit_comes_first(namespace: LogNamespace, clock: ManualClock) -> None:
    namespace.create("both", LogConfig(segment_bytes_max=4096, segment_age_max_s=100))
    with namespace.open_writer("both") as writer:
        assert write(writer, LARGE, b"1") == [1, 2]
        clock.advance_s(100)
        assert write(writer, b"2") == [3]


def test_a_log_may_be_one_segment_for_ever(namespace: LogNamespace, clock: ManualClock) -> None:
    """DistributedLog's testDisableRollingLogSegments."""
    namespace.create("one", LogConfig(segment_bytes_max=None))
    with namespace.open_writer("one") as writer:
        for _ in range(20):
            clock.advance_s(10**6)
            write(writer, LARGE)
    assert len(namespace.segments("one")) == 1


def test_a_segment_without_records_is_not_rolled_by_age(registry: Registry, tmp_path: Path) -> None:
    clock = HastyClock()
    bound_namespace(registry, tmp_path / "store", LOG, config=LogConfig(segment_age_max_s=1, keep_alive_ms=1000))
    namespace = LogNamespace.open("/logs", registry=registry, clock=clock)
    with namespace.open_writer(LOG) as writer:
        asked = clock.asked
        wait_until(lambda: clock.asked > asked + 100, what="many keep-alives")
        assert [segment.segment for segment in namespace.segments(LOG)] == [1]
        write(writer, b"0")
        wait_until(lambda: len(namespace.segments(LOG)) == 2, what="a keep-alive to roll it")
        asked = clock.asked
        wait_until(lambda: clock.asked > asked + 100, what="many keep-alives")
        assert [segment.records for segment in namespace.segments(LOG)] == [1, 0]
    assert payloads_read(namespace, LOG) == [b"0"]


def test_a_completed_segment_ends_with_its_last_acknowledged_record(namespace: LogNamespace) -> None:
    """DistributedLog's testLastDLSNInRollingLogSegments: writers that write while segments are rolled."""
    acknowledged: list[DLSN] = []
    with namespace.open_writer(LOG) as writer:

        def write_many() -> None:
            for _ in range(50):
                acknowledged.append(writer.write(bytes(500)).result(120))

        threads = [threading.Thread(target=write_many) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    segments = namespace.segments(LOG)
    assert len(segments) > 2
    for segment in segments:
        mine = [dlsn for dlsn in acknowledged if dlsn.segment == segment.segment]
        assert (segment.entries - 1, segment.records) == (max(mine).entry, len(mine))
    assert len(set(acknowledged)) == 200


NO_ROOM = OSError(28, "No space left on device")


def test_without_room_for_a_new_file_the_old_segment_is_written_on(namespace: LogNamespace, clock: ManualClock) -> None:
    """DistributedLog's disableRollingOnLogSegmentError, false as there: an error while rolling does not end it."""
    with namespace.open_writer(LOG) as writer:
        write(writer, LARGE)
        for _ in range(2):
            with at_failpoint("log.segment_create:before", raising(NO_ROOM)):
                assert write(writer, b"1") == [1]
            assert isinstance(writer.roll_failure, LogWriteFailed)
            assert write(writer, b"2") == [1]  # it is left alone for a while
            clock.advance_s(5)
        assert len(namespace.segments(LOG)) == 1
        assert write(writer, b"3") == [2]
        assert writer.roll_failure is None
    assert payloads_read(namespace, LOG) == [LARGE, b"1", b"2", b"1", b"2", b"3"]
    assert [segment.records for segment in namespace.segments(LOG)] == [5, 1]


def test_a_new_file_whose_directory_cannot_be_synced_is_in_nobodys_way(
    namespace: LogNamespace, clock: ManualClock
) -> None:
    with namespace.open_writer(LOG) as writer:
        write(writer, LARGE)
        with at_failpoint("log.directory_sync:before", raising(OSError(5, "Input/output error"))):
            assert write(writer, b"1") == [1]
        clock.advance_s(5)
        assert write(writer, b"2") == [2]
    assert payloads_read(namespace, LOG) == [LARGE, b"1", b"2"]


def test_a_failed_sync_of_the_old_segment_is_no_roll_to_be_tried_again(registry: Registry, tmp_path: Path) -> None:
    """Without fsync a segment is made durable when it is completed: if that fails nobody may write it again."""
    config = LogConfig(segment_bytes_max=4096, fsync=False)
    namespace = bound_namespace(registry, tmp_path / "store", "unsynced", config=config)
    writer = namespace.open_writer("unsynced")
    write(writer, LARGE)
    with (
        at_failpoint("log.segment_settle:before", raising(OSError(5, "Input/output error"))),
        pytest.raises(LogWriteFailed),
    ):
        write(writer, b"1")
    with pytest.raises(LogWriteFailed):
        writer.write(b"2")
    writer.abort()


@dataclass
class Behind:
    """A namespace whose registry can be taken away."""

    proxy: ChaosProxy
    session: Registry
    namespace: LogNamespace


@pytest.fixture
def proxied(registry_hosts: str, tmp_path: Path, clock: ManualClock) -> Iterator[Behind]:
    address, _, chroot = registry_hosts.partition("/")
    with ChaosProxy(address) as proxy, connect(f"{proxy.address}/{chroot}", session_timeout_s=20.0) as session:
        bound_namespace(session, tmp_path / "store", LOG, config=SMALL)
        yield Behind(proxy, session, LogNamespace.open("/logs", registry=session, clock=clock))
        proxy.heal()


def test_without_a_registry_the_old_segment_is_written_on(
    proxied: Behind, registry: Registry, clock: ManualClock
) -> None:
    proxy, session = proxied.proxy, proxied.session
    with proxied.namespace.open_writer(LOG) as writer:
        write(writer, LARGE)
        proxy.cut()
        wait_until(lambda: session.state is SessionState.SUSPENDED, what="the session to notice")
        assert write(writer, b"1", b"2") == [1, 1]
        assert writer.roll_failure is not None
        proxy.heal()
        wait_until(lambda: session.state is SessionState.CONNECTED, what="the session to come back")
        assert write(writer, b"3") == [1]
        clock.advance_s(5)
        assert write(writer, b"4") == [2]
    with LogNamespace.open("/logs", registry=registry) as others:
        assert payloads_read(others, LOG) == [LARGE, b"1", b"2", b"3", b"4"]


def test_a_roll_whose_reply_is_lost_is_found_to_be_done(proxied: Behind, registry: Registry) -> None:
    with proxied.namespace.open_writer(LOG) as writer:
        write(writer, LARGE)
        proxied.proxy.drop_next_reply(any_transaction)
        assert write(writer, b"1", b"2") == [2, 2]
    with LogNamespace.open("/logs", registry=registry) as others:
        assert payloads_read(others, LOG) == [LARGE, b"1", b"2"]
        assert [segment.records for segment in others.segments(LOG)] == [1, 2]


def test_a_roll_whose_outcome_cannot_be_learnt_ends_the_writer(
    registry_hosts: str, registry: Registry, tmp_path: Path
) -> None:
    """The old segment is completed: what would be appended to it, nobody would ever read."""
    namespace = bound_namespace(registry, tmp_path / "store", LOG, config=SMALL)
    address, _, chroot = registry_hosts.partition("/")
    with ChaosProxy(address) as proxy, connect(f"{proxy.address}/{chroot}", session_timeout_s=5.0) as session:

        def lose_the_reply_and_the_registry(_stop: str) -> None:
            proxy.cut()
            raise OutcomeUnknown("the connection broke")

        writer = LogNamespace.open("/logs", registry=session).open_writer(LOG)
        write(writer, LARGE)
        with at_failpoint("log.metadata:after", lose_the_reply_and_the_registry), pytest.raises(OutcomeUnknown):
            write(writer, b"not acknowledged")
        with pytest.raises(OutcomeUnknown):
            writer.write(b"later")
        proxy.heal()
        writer.abort()
    with namespace.open_writer(LOG, steal=True) as successor:
        write(successor, b"1")
    assert payloads_read(namespace, LOG) == [LARGE, b"1"]


def test_a_writer_that_was_replaced_does_not_roll(namespace: LogNamespace) -> None:
    stale = namespace.open_writer(LOG)
    write(stale, LARGE)
    with namespace.open_writer(LOG, steal=True) as successor:
        with pytest.raises(Fenced):
            write(stale, b"stale")
        stale.abort()
        write(successor, b"1")
    assert payloads_read(namespace, LOG) == [LARGE, b"1"]


def test_a_segment_that_somebody_else_completed_is_not_completed_again(
    namespace: LogNamespace, registry: Registry
) -> None:
    """DistributedLog's completion conflict: what stands in the registry stays as it is, and the writer refuses."""
    writer = namespace.open_writer(LOG)
    write(writer, LARGE)
    node = f"/logs/logs/{LOG}/segments/logrecs_{1:018d}"
    registry.create(node, b"somebody else's")
    with pytest.raises(InconsistentLog, match="nobody else changed it meanwhile"):
        write(writer, b"1")
    assert registry.get(node).data == b"somebody else's"
    assert f"inprogress_{1:018d}" in registry.children(f"/logs/logs/{LOG}/segments")
    writer.abort()


def renumber(registry: Registry, number: int) -> None:
    """Let the head name another segment as the last."""
    path = f"/logs/logs/{LOG}/segments"
    head = SegmentsHead.from_bytes(registry.get(path).data, path=path)
    registry.set(path, head.model_copy(update={"max_segment": number}).to_bytes())


@pytest.mark.parametrize("number", [0, 1, 3, 7])
def test_a_head_whose_last_segment_is_not_there_keeps_every_writer_out(
    namespace: LogNamespace, registry: Registry, number: int
) -> None:
    """DistributedLog's TestLogSegmentsZK: nothing is changed before somebody has explained it."""
    with namespace.open_writer(LOG) as writer:
        write(writer, LARGE, b"1")
    renumber(registry, number)
    before = registry.children(f"/logs/logs/{LOG}/segments")
    for _ in range(2):
        with pytest.raises(InconsistentLog, match=rf"the head says segments 1 to {number}"):
            namespace.open_writer(LOG, timeout_s=0)
    assert registry.children(f"/logs/logs/{LOG}/segments") == before
    renumber(registry, 2)
    assert payloads_read(namespace, LOG) == [LARGE, b"1"]


@pytest.mark.parametrize("first", [True, False])
def test_a_writer_whose_segments_were_renumbered_begins_none(
    namespace: LogNamespace, registry: Registry, first: bool
) -> None:
    writer = namespace.open_writer(LOG)
    if not first:
        write(writer, LARGE)
    renumber(registry, 7)
    with pytest.raises(InconsistentLog, match="its last segment is 7"):
        write(writer, b"1")
    writer.abort()


def test_a_crash_between_the_new_file_and_its_registration_leaves_nothing(namespace: LogNamespace) -> None:
    class Crash(BaseException):
        pass

    writer = namespace.open_writer(LOG)
    write(writer, LARGE)
    with at_failpoint("log.segment_roll:before", raising(Crash())):
        assert isinstance(writer.write(b"1").exception(10), Crash)
    writer.abort()
    (directory,) = (path for path in Path(namespace.descriptor.location).iterdir() if path.is_dir())
    assert len(list(directory.glob("*.log"))) == 2
    with namespace.open_writer(LOG) as successor:
        assert len(list(directory.glob("*.log"))) == 1
        write(successor, b"2")
    assert payloads_read(namespace, LOG) == [LARGE, b"2"]


def test_a_failed_roll_lets_the_writer_close_and_the_next_one_sweep(namespace: LogNamespace) -> None:
    with namespace.open_writer(LOG) as writer:
        write(writer, LARGE)
        with at_failpoint("log.metadata:before", raising(SessionLost("gone"))):
            assert write(writer, b"1") == [1]
    with namespace.open_writer(LOG) as writer:
        assert write(writer, b"2") == [2]
    assert payloads_read(namespace, LOG) == [LARGE, b"1", b"2"]
    assert not any(segment.in_progress for segment in namespace.segments(LOG))


def test_a_completed_segment_is_told_to_whoever_wants_to_know(
    namespace: LogNamespace, registry: Registry, clock: ManualClock
) -> None:
    told: list[int] = []
    failed: list[int] = []
    maintenance = BackgroundWork(lambda _ended: told.append(len(namespace.segments(LOG))), lambda: failed.append(1))
    writer = handmade_writer(registry, namespace, LOG, clock=clock, maintenance=maintenance)
    write(writer, LARGE)
    assert told == []
    write(writer, b"1")
    wait_until(lambda: told == [2], what="the call")
    writer.close()
    assert told == [2]  # nothing follows: the writer's end is nobody's business here
    assert not failed
