"""Compressed copies: the same records from the raw segment and from its copy, whatever stops half way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scribengin.base.commit_log import CommitLog
from scribengin.errors import ConfigInvalid, DamagedEntry, PositionTruncated, RangeGone
from scribengin.log import DLSN, LogConfig, LogNamespace, SequenceId, TransactionId, migrate_namespace
from scribengin.log.metadata.segments import LogMetadata
from scribengin.log.retention.compression import RAW_GRACE_MS
from scribengin.testing.clocks import ManualClock
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import (
    await_planned,
    damage_segment,
    fill_log,
    payload_batch,
    payloads_left,
    payloads_planned,
    payloads_read,
)
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry
from tests.dying import Stopped, stop_here

LOG = "flights/0"
COPYING = LogConfig(segment_bytes_max=4096, copy_codec="zstd", raw_retention_hours=1)
HOUR_S = 3600.0
GRACE_S = RAW_GRACE_MS / 1000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path, clock: ManualClock) -> LogNamespace:
    LogNamespace.bind("/logs", tmp_path / "store", registry=registry)
    namespace = LogNamespace.open("/logs", registry=registry, clock=clock)
    namespace.create(LOG, LogConfig(segment_bytes_max=4096))
    return namespace


def files(namespace: LogNamespace, kind: str) -> list[int]:
    """The numbers of segments that have a raw file, or a copy."""
    directory = Path(namespace.descriptor.location) / namespace.info(LOG).log.directory
    return sorted(int(path.name[:18]) for path in directory.glob("*.log") if (kind == "copy") == ("zstd" in path.name))


def drop_raw(namespace: LogNamespace, clock: ManualClock) -> None:
    """Copy everything, and wait until the raw files are gone."""
    namespace.configure(LOG, COPYING)
    namespace.compress(LOG)
    clock.advance_s(2 * HOUR_S)
    namespace.purge(LOG)
    clock.advance_s(GRACE_S)
    namespace.purge(LOG)


def records(namespace: LogNamespace) -> list[object]:
    with namespace.open_reader(LOG) as reader:
        return list(reader.read(1000))


def test_raw_and_copy_hold_the_same_records_under_the_same_numbers(namespace: LogNamespace, clock: ManualClock) -> None:
    payloads = fill_log(namespace, LOG, 9, 5)
    raw, raw_bytes = records(namespace), namespace.info(LOG).bytes
    with namespace.open_reader(LOG) as reader:
        planned = payloads_planned(reader, DLSN(1, 1, 3), 7)
    drop_raw(namespace, clock)
    assert files(namespace, "raw") == []
    assert files(namespace, "copy") == [1, 2, 3]
    assert records(namespace) == raw
    assert payloads_read(namespace, LOG) == payloads
    assert namespace.info(LOG).bytes < raw_bytes / 2
    assert namespace.count(LOG) == 45
    last = namespace.last_record(LOG)
    assert last is not None
    assert last.payload == payloads[-1]
    with namespace.open_reader(LOG) as reader:
        assert payloads_planned(reader, DLSN(1, 1, 3), 7) == planned
        assert reader.find(70) == DLSN(3, 1, 0)
    for start, wanted in ((TransactionId(45), 25), (SequenceId(32), 32), (DLSN(2, 2, 4), 29)):
        with namespace.open_reader(LOG, start) as reader:
            assert payloads_left(reader) == payloads[wanted:]
    assert not [finding for report in namespace.inspect(LOG).segments() for finding in report.findings]


def test_rounds_and_keep_alives_are_copied_as_they_stand(
    namespace: LogNamespace, registry: Registry, clock: ManualClock
) -> None:
    commit_log = CommitLog(dataflow="d", task="t", owner="o", generation=1, epoch=1, round=1)
    registry.create("/scribengin/locks/commit-log", commit_log.to_bytes(), parents=True)
    with namespace.open_writer(LOG, commit_log="/scribengin/locks/commit-log") as writer:
        writer.write(b"plain").result(120)
        writer.stage(payload_batch([b"staged", b"too"]))
        staged = writer.prepare()
        assert staged is not None
        writer.commit_staged(staged)
        writer.write(b"after").result(120)
    drop_raw(namespace, clock)
    assert payloads_read(namespace, LOG) == [b"plain", b"staged", b"too", b"after"]
    with namespace.open_writer(LOG, commit_log="/scribengin/locks/commit-log") as writer:
        writer.commit_staged(staged)
        writer.write(b"more").result(120)
    assert payloads_read(namespace, LOG)[-1] == b"more"
    assert not [finding for report in namespace.inspect(LOG).segments() for finding in report.findings]


def test_a_writer_copies_what_it_completes_and_what_was_left_without_a_copy(
    registry: Registry, namespace: LogNamespace
) -> None:
    fill_log(namespace, LOG, 3)
    namespace.configure(LOG, LogConfig(segment_bytes_max=4096, copy_codec="zstd"))
    with namespace.open_writer(LOG) as writer:
        wait_until(lambda: files(namespace, "copy") == [1], what="the copy of what was there")
        for _ in range(3):
            writer.write(bytes(5000)).result(120)
        wait_until(lambda: files(namespace, "copy") == [1, 2, 3], what="the copies")
        assert writer.maintenance_failure is None
    assert files(namespace, "raw") == [1, 2, 3, 4]
    assert namespace.compress(LOG) <= 1, "the writer may have come to the last one itself, as it closed"
    assert files(namespace, "copy") == [1, 2, 3, 4]
    assert namespace.compress(LOG) == 0


def test_what_is_open_stays_readable_and_a_planned_range_is_planned_again(
    namespace: LogNamespace, clock: ManualClock
) -> None:
    payloads = fill_log(namespace, LOG, 9)
    with namespace.open_reader(LOG) as reader, namespace.open_reader(LOG) as planner:
        assert [record.payload for record in reader.read(2)] == payloads[:2]
        plan = planner.plan(DLSN.INITIAL, 1000, 1 << 30)
        assert plan is not None
        opened = plan.splits[0].read()
        first = next(opened).column("payload").to_pylist()
        drop_raw(namespace, clock)
        assert first + [p for batch in opened for p in batch.column("payload").to_pylist()] == payloads[:3]
        with pytest.raises(RangeGone, match="plan the range again"):
            list(plan.splits[1].read())
        assert payloads_left(reader) == payloads[2:]
        await_planned(planner, payloads, "the planner to see the copies")


def test_a_raw_file_stays_until_readers_have_had_time_to_see_that_it_goes(
    namespace: LogNamespace, clock: ManualClock
) -> None:
    payloads = fill_log(namespace, LOG, 6)
    namespace.configure(LOG, COPYING)
    namespace.compress(LOG)
    clock.advance_s(0.9 * HOUR_S)
    namespace.purge(LOG)
    assert all(segment.raw_dropped_ms is None for segment in namespace.segments(LOG))
    clock.advance_s(0.2 * HOUR_S)
    namespace.purge(LOG)
    assert all(segment.raw_dropped_ms is not None for segment in namespace.segments(LOG))
    assert files(namespace, "raw") == files(namespace, "copy") == [1, 2]
    clock.advance_s(GRACE_S)
    assert namespace.purge(LOG).bytes > 0
    assert files(namespace, "raw") == []
    assert payloads_read(namespace, LOG) == payloads


@pytest.mark.parametrize(
    "where",
    [
        "log.segment_create:before",
        "log.segment_create:after",
        "log.segment_write:before",
        "log.segment_sync:before",
        "log.segment_sync:after",
        "log.metadata:before",
        "log.metadata:after",
    ],
)
def test_a_copy_that_is_interrupted_is_made_again(namespace: LogNamespace, clock: ManualClock, where: str) -> None:
    payloads = fill_log(namespace, LOG, 6)
    namespace.configure(LOG, COPYING)
    left: dict[Path, bytes] = {}

    def die(name: str) -> None:
        directory = Path(namespace.descriptor.location) / namespace.info(LOG).log.directory
        left.update({path: path.read_bytes() for path in directory.iterdir() if path.is_file()})
        stop_here(name)

    with at_failpoint(where, die), pytest.raises(Stopped):
        namespace.compress(LOG)
    for path, data in left.items():  # a process that dies tidies nothing up
        path.write_bytes(data)
    assert payloads_read(namespace, LOG) == payloads
    drop_raw(namespace, clock)
    assert (files(namespace, "raw"), files(namespace, "copy")) == ([], [1, 2])
    assert payloads_read(namespace, LOG) == payloads


@pytest.mark.parametrize("where", ["log.metadata:before", "log.metadata:after", "log.segment_remove:before"])
def test_dropping_raw_files_that_is_interrupted_is_finished(
    namespace: LogNamespace, clock: ManualClock, where: str
) -> None:
    payloads = fill_log(namespace, LOG, 6)
    namespace.configure(LOG, COPYING)
    namespace.compress(LOG)
    clock.advance_s(2 * HOUR_S)
    if where.startswith("log.segment_remove"):
        namespace.purge(LOG)
        clock.advance_s(GRACE_S)
    with at_failpoint(where, stop_here), pytest.raises(Stopped):
        namespace.purge(LOG)
    assert payloads_read(namespace, LOG) == payloads
    drop_raw(namespace, clock)
    assert (files(namespace, "raw"), files(namespace, "copy")) == ([], [1, 2])
    assert payloads_read(namespace, LOG) == payloads


def test_of_two_copies_made_at_once_one_is_named_and_the_other_goes(
    namespace: LogNamespace, clock: ManualClock
) -> None:
    payloads = fill_log(namespace, LOG, 3)
    namespace.configure(LOG, COPYING)
    with at_failpoint("log.segment_sync:before", lambda _stop: namespace.compress(LOG) and None):
        assert namespace.compress(LOG) == 0
    assert files(namespace, "copy") == [1]
    drop_raw(namespace, clock)
    assert payloads_read(namespace, LOG) == payloads


@pytest.mark.parametrize("cold", [False, True])
def test_segments_that_somebody_else_has_copied_and_dropped_meanwhile_are_passed_over(
    namespace: LogNamespace, clock: ManualClock, tmp_path: Path, cold: bool
) -> None:
    payloads = fill_log(namespace, LOG, 9, 5)

    def all_go(_stop: str) -> None:
        if cold:
            wanted = {"cold_url": str(tmp_path / "cold"), "hot_bytes_max": 0}
            namespace.configure(
                LOG, COPYING.model_copy(update={"copy_codec": None, "raw_retention_hours": None} | wanted)
            )
            namespace.offload(LOG)
            namespace.purge(LOG)
            clock.advance_s(GRACE_S)
            namespace.purge(LOG)
        else:
            drop_raw(namespace, clock)
        assert files(namespace, "raw") == []

    with at_failpoint("log.segment_create:before", all_go):
        assert namespace.compress(LOG, "zstd") == 0
    assert payloads_read(namespace, LOG) == payloads


@pytest.mark.parametrize("moved", [False, True])
def test_a_log_whose_raw_files_go_while_it_is_copied_or_moved_is_copied_from_what_is_there(
    namespace: LogNamespace, registry: Registry, clock: ManualClock, tmp_path: Path, moved: bool
) -> None:
    payloads = fill_log(namespace, LOG, 9, 5)
    with at_failpoint("log.segment_create:before", lambda _stop: drop_raw(namespace, clock)):
        if moved:
            migrate_namespace("/logs", tmp_path / "new", registry=registry)
        else:
            namespace.copy(LOG, namespace, "copied")
    with LogNamespace.open("/logs", registry=registry) as again:
        assert payloads_read(again, LOG if moved else "copied") == payloads


def test_a_segment_that_is_revised_between_the_list_and_the_look_is_found(
    namespace: LogNamespace, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_log(namespace, LOG, 3)
    namespace.configure(LOG, COPYING)
    metadata = LogMetadata(registry, namespace.path, LOG)
    find, revised = registry.find, []

    def find_late(path: str, *watch: Any) -> Any:
        if "logrecs" in path and not revised:
            revised.append(path)
            namespace.compress(LOG)  # names the copy: the node that was listed is gone
        return find(path, *watch)

    monkeypatch.setattr(registry, "find", find_late)
    found = metadata.completed_segment(1)
    assert revised
    assert found is not None
    assert found.compressed is not None


def test_a_damaged_copy_keeps_its_raw_file_and_says_so(namespace: LogNamespace, clock: ManualClock) -> None:
    payloads = fill_log(namespace, LOG, 6)
    namespace.configure(LOG, COPYING)
    namespace.compress(LOG)
    copy = namespace.segments(LOG)[0].copy_file
    path = Path(namespace.descriptor.location) / f"{copy}.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 0xFF
    path.write_bytes(data)
    clock.advance_s(2 * HOUR_S)
    with pytest.raises(DamagedEntry, match=r"copy of segment 1 does not hold.*raw file is kept"):
        namespace.purge(LOG)
    clock.advance_s(GRACE_S)
    with pytest.raises(DamagedEntry):
        namespace.purge(LOG)
    assert files(namespace, "raw") == [1]
    assert payloads_read(namespace, LOG) == payloads


def test_damage_is_not_copied(namespace: LogNamespace) -> None:
    fill_log(namespace, LOG, 3)
    damage_segment(namespace, LOG, 1, 200)
    namespace.configure(LOG, COPYING)
    with pytest.raises(DamagedEntry):
        namespace.compress(LOG)
    assert files(namespace, "copy") == []


def test_purge_and_deletion_take_copies_along(namespace: LogNamespace, clock: ManualClock) -> None:
    payloads = fill_log(namespace, LOG, 9)
    drop_raw(namespace, clock)
    namespace.truncate(LOG, DLSN(3, 1, 0))
    assert namespace.purge(LOG).segments == 2
    assert files(namespace, "copy") == [3]
    assert payloads_read(namespace, LOG) == payloads[7:]
    with pytest.raises(PositionTruncated):
        namespace.open_reader(LOG, DLSN(2, 1, 0))
    namespace.delete(LOG)
    assert [path for path in Path(namespace.descriptor.location).iterdir() if path.is_dir()] == []


def test_copying_stops_when_it_is_told_to(namespace: LogNamespace) -> None:
    fill_log(namespace, LOG, 6)
    assert namespace.compress(LOG, "zstd", stopping=lambda: True) == 0
    assert files(namespace, "copy") == []
    assert namespace.compress(LOG, "zstd") == 2


@pytest.mark.parametrize("wrong", [{"copy_codec": "zstd", "codec": "lz4"}, {"raw_retention_hours": 1}])
def test_a_configuration_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigInvalid, match="copy_codec"):
        LogConfig.parse(wrong, source="test")


def test_a_registered_reader_misses_nothing_while_everything_behind_it_is_copied_dropped_and_purged(
    registry: Registry, tmp_path: Path
) -> None:
    LogNamespace.bind("/busy", tmp_path / "busy", registry=registry)
    namespace = LogNamespace.open("/busy", registry=registry)
    config = LogConfig(segment_bytes_max=4096, retention_hours=0, copy_codec="lz4", raw_retention_hours=0)
    namespace.create(LOG, config)
    position = namespace.register_reader(LOG, "follower")
    seen: list[bytes] = []
    payloads = [b"%06d" % n + bytes(500) for n in range(200)]
    with namespace.open_writer(LOG) as writer:
        for at in range(0, len(payloads), 10):
            for payload in payloads[at : at + 10]:
                writer.write(payload).result(120)
            with namespace.open_reader(LOG, position) as reader:
                while len(seen) < at + 5:
                    seen += [record.payload for record in reader.read(3, 10)]
                position = namespace.register_reader(LOG, "follower", reader.position)
        with namespace.open_reader(LOG, position) as reader:
            seen += payloads_left(reader)
        namespace.register_reader(LOG, "follower", namespace.end_dlsn(LOG))
        assert writer.maintenance_failure is None
    assert seen == payloads
    namespace.purge(LOG)
    assert namespace.count(LOG) == 0
    assert namespace.segments(LOG) == ()
