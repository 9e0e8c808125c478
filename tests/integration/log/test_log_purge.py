"""Purging: whole segments go, from the first on, when nothing in them is kept, or when they have become too old."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scribengin.errors import DamagedEntry, InconsistentLog, LogNotFound, PositionTruncated, ReaderBehind
from scribengin.log import DLSN, LogConfig, LogNamespace, TransactionId
from scribengin.log.metrics import exposition
from scribengin.testing.chaos_proxy import ChaosProxy
from scribengin.testing.clocks import ManualClock
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import (
    bound_namespace,
    damage_segment,
    fill_log,
    payload_batch,
    payloads_left,
    payloads_of,
    payloads_planned,
    payloads_read,
)
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry
from scribengin_registry.opening import connect
from tests.dying import Stopped, stop_here

LOG = "flights/0"
SMALL = LogConfig(segment_bytes_max=4096)
HOUR_S = 3600.0


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    return bound_namespace(registry, tmp_path / "store", LOG, config=SMALL)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def aging(registry: Registry, tmp_path: Path, clock: ManualClock) -> LogNamespace:
    """A namespace whose clock is moved by hand."""
    LogNamespace.bind("/aging", tmp_path / "aging", registry=registry)
    return LogNamespace.open("/aging", registry=registry, clock=clock)


def segment_files(namespace: LogNamespace, log: str = LOG) -> list[int]:
    """The numbers of the segments that have a file of any kind."""
    directory = Path(namespace.descriptor.location) / namespace.info(log).log.directory
    return sorted({int(path.name[:18]) for path in directory.iterdir() if path.is_file()})


def numbers(namespace: LogNamespace, log: str = LOG) -> list[int]:
    return [segment.segment for segment in namespace.segments(log)]


def fill_hourly(namespace: LogNamespace, clock: ManualClock, log: str, segments: int) -> list[bytes]:
    """A segment of one record an hour."""
    payloads = [b"%d" % n for n in range(segments)]
    for payload in payloads:
        with namespace.open_writer(log) as writer:
            writer.write(payload).result(120)
        clock.advance_s(HOUR_S)
    return payloads


def test_a_purge_removes_what_lies_before_the_truncation_and_stops_at_the_first_segment_that_is_kept(
    namespace: LogNamespace,
) -> None:
    payloads = fill_log(namespace, LOG, 12, 3)
    assert numbers(namespace) == [1, 2, 3, 4]
    assert namespace.purge(LOG).segments == 0
    assert namespace.truncate(LOG, DLSN(3, 1, 2))
    assert segment_files(namespace) == [1, 2, 3, 4]
    size = sum(segment.bytes for segment in namespace.segments(LOG)[:2])
    purged = namespace.purge(LOG)
    assert (purged.segments, purged.bytes) == (2, size)
    assert numbers(namespace) == segment_files(namespace) == [3, 4]
    assert namespace.first_dlsn(LOG) == DLSN(3, 1, 2)
    assert payloads_read(namespace, LOG) == payloads[23:]
    assert namespace.count(LOG) == namespace.info(LOG).records == 13
    assert namespace.purge(LOG) == type(purged)(0, 0)
    with namespace.open_reader(LOG, TransactionId(0)) as reader:
        assert payloads_left(reader) == payloads[23:]


def test_a_truncation_to_the_end_lets_everything_be_purged_and_the_log_goes_on(namespace: LogNamespace) -> None:
    payloads = fill_log(namespace, LOG, 7)
    end = namespace.end_dlsn(LOG)
    assert namespace.truncate(LOG, end)
    assert namespace.purge(LOG).segments == 3
    assert numbers(namespace) == segment_files(namespace) == []
    assert payloads_read(namespace, LOG) == []
    assert namespace.last_record(LOG) is None
    assert (namespace.count(LOG), namespace.first_dlsn(LOG)) == (0, DLSN(4, 0, 0))
    with namespace.open_reader(LOG, end) as reader, namespace.open_writer(LOG) as writer:
        writer.write(b"next").result(120)
        (record,) = reader.read(10, 10)
    assert (record.payload, record.dlsn, record.sequence_id) == (b"next", DLSN(4, 0, 0), len(payloads))


def test_a_position_in_a_purged_segment_is_truncated_and_one_at_its_end_is_not(namespace: LogNamespace) -> None:
    payloads = fill_log(namespace, LOG, 7, 2)
    assert namespace.truncate(LOG, DLSN(3, 0, 0))
    namespace.purge(LOG)
    with namespace.open_reader(LOG) as reader:
        for position in (DLSN(1, 0, 1), DLSN(1, 3, 0), DLSN(2, 0, 0), DLSN(2, 2, 1)):
            for call in (
                lambda: namespace.open_reader(LOG, position),  # noqa: B023  called at once
                lambda: reader.lag(position),  # noqa: B023
                lambda: reader.plan(position, 1, 1),  # noqa: B023
            ):
                with pytest.raises(PositionTruncated, match=r"the first record kept is DLSN\{logSegmentSequenceNo=3"):
                    call()
    with namespace.open_reader(LOG) as reader:
        for position in (DLSN(2, 2, 2), DLSN(2, 3, 0), DLSN(3, 0, 0)):
            assert reader.lag(position) == 2
            assert payloads_planned(reader, position, 100) == [payloads[12:]]
            with namespace.open_reader(LOG, position) as there:
                assert payloads_left(there) == payloads[12:]


def test_a_reader_that_has_read_all_of_what_is_purged_reads_on(
    namespace: LogNamespace, elsewhere: LogNamespace
) -> None:
    fill_log(namespace, LOG, 3)
    with namespace.open_reader(LOG) as idle, namespace.open_reader(LOG) as behind:
        assert len(payloads_left(idle)) == 3
        behind.read(1)
        elsewhere.truncate(LOG, elsewhere.end_dlsn(LOG))
        elsewhere.purge(LOG)
        with elsewhere.open_writer(LOG) as writer:
            writer.write(b"next").result(120)
        assert [record.payload for record in idle.read(10, 10)] == [b"next"]
        wait_until(lambda: behind.end_position() == idle.position, what="the other reader to know")
        with pytest.raises(PositionTruncated):
            behind.read(10, 10)


def test_hidden_entries_behind_the_last_record_make_no_reader_miss_anything(
    registry: Registry, namespace: LogNamespace
) -> None:
    registry.create("/scribengin/locks/commit-log", b"never looked at", parents=True)
    with namespace.open_writer(LOG, commit_log="/scribengin/locks/commit-log") as writer:
        writer.stage(payload_batch([b"one", b"two"]))
        staged = writer.prepare()
        assert staged is not None
        writer.commit_staged(staged)
    with namespace.open_reader(LOG) as reader:
        plan = reader.plan(DLSN.INITIAL, 2, 1 << 20)
    assert plan is not None
    assert plan.end == DLSN(1, 1, 0), "the control record stands there"
    namespace.truncate(LOG, DLSN(2, 0, 0))
    namespace.purge(LOG)
    with namespace.open_writer(LOG) as writer:
        writer.write(b"three").result(120)
    with namespace.open_reader(LOG) as reader:
        assert reader.lag(plan.end) == 1
        assert payloads_planned(reader, plan.end, 100) == [[b"three"]]
    with pytest.raises(PositionTruncated):
        namespace.open_reader(LOG, DLSN(1, 0, 1))
    assert namespace.count(LOG) == 1


def test_the_first_position_is_exact_after_a_truncation_and_after_a_purge(namespace: LogNamespace) -> None:
    """DistributedLog's TestBKLogReadHandler gives the segment's beginning after a partial truncation; ours is exact."""
    fill_log(namespace, LOG, 9, 2)
    for before in (DLSN(2, 0, 0), DLSN(2, 1, 1)):
        namespace.truncate(LOG, before)
        assert namespace.first_dlsn(LOG) == before
        namespace.purge(LOG)
        assert namespace.first_dlsn(LOG) == before
        with namespace.open_reader(LOG) as reader:
            assert reader.read(1)[0].dlsn == before
    assert numbers(namespace) == [2, 3]


def test_what_an_open_reader_has_mapped_stays_valid(namespace: LogNamespace) -> None:
    payloads = fill_log(namespace, LOG, 9)
    with namespace.open_reader(LOG) as reader:
        batch = reader.read_batch()
        plan = reader.plan(DLSN.INITIAL, 100, 1 << 30)
        assert plan is not None
        reading = plan.splits[0].read()
        first = next(reading)
        namespace.truncate(LOG, DLSN(3, 0, 0))
        namespace.purge(LOG)
        assert batch is not None
        assert payloads_of(batch) == payloads[:1]
        assert payloads_of(first) + [p for rest in reading for p in payloads_of(rest)] == payloads[:3]


@pytest.mark.parametrize("where", ["log.metadata:before", "log.metadata:after", "log.segment_remove:before"])
def test_a_purge_that_is_interrupted_is_finished_by_the_next(namespace: LogNamespace, where: str) -> None:
    payloads = fill_log(namespace, LOG, 9)
    namespace.truncate(LOG, DLSN(3, 0, 0))
    with at_failpoint(where, stop_here), pytest.raises(Stopped):
        namespace.purge(LOG)
    assert payloads_read(namespace, LOG) == payloads[6:]
    assert segment_files(namespace) == [1, 2, 3]
    namespace.purge(LOG)
    assert numbers(namespace) == segment_files(namespace) == [3]
    assert payloads_read(namespace, LOG) == payloads[6:]


@pytest.mark.parametrize("reply", ["lost", "never sent"])
def test_a_purge_whose_reply_was_lost_is_settled(registry_hosts: str, tmp_path: Path, reply: str) -> None:
    address, _slash, chroot = registry_hosts.partition("/")
    with ChaosProxy(address) as proxy, connect(f"{proxy.address}/{chroot}") as registry:
        namespace = bound_namespace(registry, tmp_path, LOG, config=SMALL)
        payloads = fill_log(namespace, LOG, 9)
        namespace.truncate(LOG, DLSN(2, 1, 0))
        lose = proxy.drop_next_reply if reply == "lost" else proxy.drop_next_request
        with at_failpoint("log.metadata:before", lambda _stop: lose()):
            assert namespace.purge(LOG).segments == 1
        assert payloads_read(namespace, LOG) == payloads[4:]
        assert segment_files(namespace) == [2, 3]


def test_damage_does_not_stand_in_the_way_of_a_purge(namespace: LogNamespace) -> None:
    payloads = fill_log(namespace, LOG, 9)
    damage_segment(namespace, LOG, 2, 10)
    with pytest.raises(DamagedEntry):
        payloads_read(namespace, LOG)
    namespace.truncate(LOG, DLSN(3, 0, 0))
    assert namespace.purge(LOG).segments == 2
    assert payloads_read(namespace, LOG) == payloads[6:]


def test_segments_are_removed_when_they_are_older_than_the_log_keeps_them(
    aging: LogNamespace, clock: ManualClock
) -> None:
    aging.create(LOG, LogConfig(retention_hours=3.5))
    payloads = fill_hourly(aging, clock, LOG, 11)
    assert aging.purge(LOG).segments == 8
    assert payloads_read(aging, LOG) == payloads[8:]
    assert aging.first_dlsn(LOG) == DLSN(9, 0, 0)
    with pytest.raises(PositionTruncated):
        aging.open_reader(LOG, DLSN(8, 0, 0))
    aging.configure(LOG, LogConfig(retention_hours=1.5))
    assert aging.purge(LOG).segments == 2
    clock.advance_s(100 * HOUR_S)
    with aging.open_writer(LOG) as writer:
        writer.write(b"in progress").result(120)
        clock.advance_s(100 * HOUR_S)
        assert aging.purge(LOG).segments == 1
        assert payloads_read(aging, LOG) == [b"in progress"]


@pytest.mark.parametrize("config", [LogConfig(), LogConfig(retention_hours=1, explicit_truncation=True)])
def test_without_retention_or_with_explicit_truncation_age_removes_nothing(
    aging: LogNamespace, clock: ManualClock, config: LogConfig
) -> None:
    aging.create(LOG, config)
    payloads = fill_hourly(aging, clock, LOG, 5)
    clock.advance_s(10_000 * HOUR_S)
    assert aging.purge(LOG).segments == 0
    assert payloads_read(aging, LOG) == payloads
    aging.truncate(LOG, DLSN(3, 0, 0))
    assert aging.purge(LOG).segments == 2
    assert payloads_read(aging, LOG) == payloads[2:]


def test_retention_keeps_what_a_registered_reader_has_not_read(aging: LogNamespace, clock: ManualClock) -> None:
    aging.create(LOG, LogConfig(retention_hours=1))
    payloads = fill_hourly(aging, clock, LOG, 5)
    clock.advance_s(10 * HOUR_S)
    aging.register_reader(LOG, "slow", DLSN(3, 0, 0))
    aging.register_reader(LOG, "fast", DLSN(5, 0, 0))
    assert aging.purge(LOG).segments == 2
    assert payloads_read(aging, LOG) == payloads[2:]
    aging.register_reader(LOG, "slow", DLSN(3, 1, 0))
    assert aging.purge(LOG).segments == 1
    aging.unregister_reader(LOG, "slow")
    assert aging.purge(LOG).segments == 1
    assert payloads_read(aging, LOG) == payloads[4:]


def test_files_that_a_reader_comes_to_want_while_a_purge_looks_stay(aging: LogNamespace, clock: ManualClock) -> None:
    aging.create("words", LogConfig(retention_hours=1))
    payloads = fill_hourly(aging, clock, "words", 3)
    with at_failpoint("log.metadata:before", lambda _: aging.register_reader("words", "late")):
        assert aging.purge("words").segments == 0
    assert segment_files(aging, "words") == [1, 2, 3]
    assert payloads_read(aging, "words") == payloads


def test_a_writer_purges_after_every_roll(aging: LogNamespace, clock: ManualClock) -> None:
    aging.create(LOG, LogConfig(segment_bytes_max=4096, retention_hours=1))
    with aging.open_writer(LOG) as writer:
        for _ in range(2):
            writer.write(bytes(5000)).result(120)
        clock.advance_s(2 * HOUR_S)
        for _ in range(2):
            writer.write(bytes(5000)).result(120)
        wait_until(lambda: numbers(aging)[0] == 2 and segment_files(aging)[0] == 2, what="segment 1 to be removed")
        assert writer.maintenance_failure is None


def test_a_purge_that_fails_is_told_of_and_does_not_fail_the_writer(
    namespace: LogNamespace,
) -> None:
    with namespace.open_writer(LOG) as writer:
        for _ in range(2):
            writer.write(bytes(5000)).result(120)

        def refuse(name: str) -> None:
            raise OSError(5, f"Input/output error at {name}")

        before = failures()
        with at_failpoint("log.segment_remove:before", refuse):
            namespace.truncate(LOG, DLSN(2, 0, 0))  # the purge after the last roll may see it, or that after the next
            writer.write(bytes(5000)).result(120)
            wait_until(lambda: failures() > before, what="the failure")
        writer.write(bytes(5000)).result(120)
        wait_until(lambda: segment_files(namespace)[0] == 2, what="the next purge")
        wait_until(lambda: writer.maintenance_failure is None, what="its end")


def failures() -> float:
    """How often this process has failed to purge logs of that name."""
    found = re.search(
        r'^scribengin_log_maintenance_failed_total\{log="flights/0",.*\} (.+)$', exposition().decode(), re.M
    )
    return float(found[1]) if found else 0.0


def test_a_purge_under_a_writer_does_not_disturb_it(namespace: LogNamespace, elsewhere: LogNamespace) -> None:
    with namespace.open_writer(LOG) as writer:
        for n in range(12):
            writer.write(b"%06d" % n + bytes(1000)).result(120)
            if n == 7:
                elsewhere.truncate(LOG, DLSN(2, 2, 0))
                assert elsewhere.purge(LOG).segments <= 1
    assert len(payloads_read(namespace, LOG)) == 12 - 3 - 2
    assert numbers(namespace)[0] == 2


def test_what_is_still_to_be_written_cannot_be_given_up(namespace: LogNamespace) -> None:
    with namespace.open_writer(LOG) as writer:
        for payload in (b"one", b"two"):
            writer.write(payload).result(120)
        for call in (namespace.truncate, lambda log, before: namespace.register_reader(log, "a", before)):
            with pytest.raises(InconsistentLog, match="lies behind its end"):
                call(LOG, DLSN(1, 3, 0))
        assert namespace.truncate(LOG, DLSN(1, 2, 0))
        writer.write(b"three").result(120)
    assert payloads_read(namespace, LOG) == [b"three"]


def test_truncation_does_not_go_past_a_registered_reader_unless_forced(namespace: LogNamespace) -> None:
    payloads = fill_log(namespace, LOG, 9)
    namespace.register_reader(LOG, "billing", DLSN(1, 2, 0))
    assert namespace.truncate(LOG, DLSN(1, 2, 0))
    with pytest.raises(ReaderBehind, match=r"reader 'billing' stands at .*entryId=2.*by force"):
        namespace.truncate(LOG, DLSN(2, 0, 0))
    assert payloads_read(namespace, LOG) == payloads[2:]
    namespace.register_reader(LOG, "billing", DLSN(1, 3, 0))
    assert namespace.truncate(LOG, DLSN(2, 0, 0)), "it has read all that was before"
    assert namespace.truncate(LOG, DLSN(2, 1, 0), force=True)
    assert payloads_read(namespace, LOG) == payloads[4:]
    assert namespace.info(LOG).readers == {"billing": 5}


def test_a_reader_that_registers_while_a_truncation_looks_is_waited_for(namespace: LogNamespace) -> None:
    payloads = fill_log(namespace, LOG, 6)
    with (
        at_failpoint("log.metadata:before", lambda _stop: namespace.register_reader(LOG, "new", DLSN.INITIAL)),
        pytest.raises(ReaderBehind, match="'new'"),
    ):
        namespace.truncate(LOG, DLSN(2, 0, 0))
    assert payloads_read(namespace, LOG) == payloads


def test_a_truncation_while_a_reader_registers_is_seen(namespace: LogNamespace) -> None:
    fill_log(namespace, LOG, 6)
    with (
        at_failpoint("log.metadata:before", lambda _stop: namespace.truncate(LOG, DLSN(2, 0, 0)) and None),
        pytest.raises(PositionTruncated),
    ):
        namespace.register_reader(LOG, "new", DLSN.INITIAL)
    assert namespace.registered_readers(LOG) == {}


def test_a_log_that_is_not_there_cannot_be_purged_or_truncated(namespace: LogNamespace) -> None:
    for call in (
        lambda: namespace.purge("none"),
        lambda: namespace.truncate("none", DLSN(2, 0, 0)),
        lambda: namespace.registered_readers("none"),
        lambda: namespace.register_reader("none", "a"),
    ):
        with pytest.raises(LogNotFound):
            call()
    with pytest.raises(InconsistentLog):
        namespace.register_reader(LOG, "a", DLSN(9, 0, 0))
