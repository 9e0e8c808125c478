"""Cold storage: completed segments go there, and readers cross the border without noticing, whatever stops half way."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from scribengin.errors import (
    DamagedEntry,
    LogWriteFailed,
    PositionTruncated,
    RangeGone,
    StoreUnreachable,
)
from scribengin.log import DLSN, LogConfig, LogNamespace, SequenceId, TransactionId
from scribengin.testing.clocks import ManualClock
from scribengin.testing.log_samples import (
    await_planned,
    bound_namespace,
    fill_log,
    payload_batch,
    payloads_left,
    payloads_planned,
    payloads_read,
)
from scribengin.testing.memory.files import MemoryFiles
from scribengin.testing.memory.registry import MemoryRegistry
from scribengin.testing.waiting import wait_until
from scribengin_dev.servers.hadoop.hdfs import HdfsServers
from tests.servers.cold import GRACE_S, HOUR_S, LOG, ColdLog
from tests.servers.memory import LogPlace


def records(namespace: LogNamespace) -> list[object]:
    with namespace.open_reader(LOG) as reader:
        return list(reader.read(1000))


@pytest.fixture(params=["memory files", "a directory", "fsspec"])
def cold_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Cold storage of several kinds."""
    if request.param == "memory files":
        with MemoryFiles("cold").opened_by("cold") as url:
            yield f"{url}kept"
    else:
        yield str(tmp_path / "cold") if request.param == "a directory" else f"memory://{tmp_path.name}"


def test_what_is_cold_is_read_as_it_was_from_every_store_and_every_kind_of_cold_storage(
    log_place: LogPlace, cold_url: str
) -> None:
    log_place.bound(LOG, config=LogConfig(segment_bytes_max=4096))
    check_that_cold_reads_as_hot(log_place.registry, cold_url)


def test_what_is_cold_on_hdfs_is_read_as_it_was(
    memory_registry: MemoryRegistry, hdfs: HdfsServers, tmp_path: Path
) -> None:
    bound_namespace(memory_registry, tmp_path, LOG, config=LogConfig(segment_bytes_max=4096))
    check_that_cold_reads_as_hot(memory_registry, f"{hdfs.url}/cold/{uuid.uuid4().hex}")


def check_that_cold_reads_as_hot(registry: MemoryRegistry, cold_url: str) -> None:
    """Of the empty log at `/logs`."""
    clock = ManualClock()
    namespace = LogNamespace.open("/logs", registry=registry, clock=clock)
    payloads = fill_log(namespace, LOG, 9, 5)
    before, bytes_before = records(namespace), namespace.info(LOG).bytes
    with namespace.open_reader(LOG) as reader:
        planned = payloads_planned(reader, DLSN(1, 1, 3), 7)
    namespace.configure(LOG, LogConfig(segment_bytes_max=4096, cold_url=cold_url, hot_bytes_max=0))
    assert namespace.offload(LOG) == 3
    assert namespace.offload(LOG) == 0
    namespace.purge(LOG)
    clock.advance_s(GRACE_S)
    assert namespace.purge(LOG).bytes == bytes_before
    directory = namespace.info(LOG).log.directory
    assert namespace._store.names(directory) == []
    assert [segment.file.place for segment in namespace.segments(LOG)] == [f"{cold_url}/{directory}"] * 3
    assert records(namespace) == before
    assert payloads_read(namespace, LOG) == payloads
    assert namespace.info(LOG).bytes == bytes_before
    assert namespace.count(LOG) == 45
    with namespace.open_reader(LOG) as reader:
        assert payloads_planned(reader, DLSN(1, 1, 3), 7) == planned
        assert reader.find(70) == DLSN(3, 1, 0)
        plan = reader.plan(DLSN.INITIAL, 1000, 1 << 30)
        assert plan is not None
        splits = pickle.loads(pickle.dumps(plan.splits))
        assert [p for split in splits for batch in split.read() for p in batch["payload"].to_pylist()] == payloads
    for start, wanted in ((TransactionId(45), 25), (SequenceId(32), 32), (DLSN(2, 2, 4), 29)):
        with namespace.open_reader(LOG, start) as reader:
            assert payloads_left(reader) == payloads[wanted:]
    assert not [finding for report in namespace.inspect(LOG).segments() for finding in report.findings]
    with namespace.open_writer(LOG) as writer:
        writer.write(b"more").result(120)
    assert payloads_read(namespace, LOG) == [*payloads, b"more"]


def test_a_writer_copies_what_it_completes_and_what_was_left_in_the_store(cold_log: ColdLog) -> None:
    fill_log(cold_log.namespace, LOG, 3)
    cold_log.namespace.configure(LOG, cold_log.config())
    with cold_log.namespace.open_writer(LOG) as writer:
        wait_until(lambda: cold_log.cold() == [1], what="the copy of what was there")
        for _ in range(3):
            writer.write(bytes(5000)).result(120)
        wait_until(lambda: cold_log.cold() == [1, 2, 3], what="the copies")
        assert writer.maintenance_failure is None
    assert cold_log.hot() == [1, 2, 3, 4]
    left = {1, 2, 3, 4} - set(cold_log.cold())
    assert left <= {4}, "that was completed when the writer was closed: its maintenance may have been as quick"
    assert cold_log.namespace.offload(LOG) == len(left)
    assert cold_log.cold() == [1, 2, 3, 4]


def test_a_reader_crosses_the_border_while_segments_go_and_a_planned_range_is_planned_again(cold_log: ColdLog) -> None:
    payloads = cold_log.offloaded()
    namespace = cold_log.namespace
    with namespace.open_reader(LOG) as reader, namespace.open_reader(LOG) as planner:
        assert [record.payload for record in reader.read(2)] == payloads[:2]
        plan = planner.plan(DLSN.INITIAL, 1000, 1 << 30)
        assert plan is not None
        cold_log.drop_hot()
        assert cold_log.hot() == []
        with pytest.raises(RangeGone, match="plan the range again"):
            list(plan.splits[1].read())
        assert payloads_left(reader) == payloads[2:]
        await_planned(planner, payloads, "the planner to see the border")


def test_a_look_that_does_not_follow_the_log_finds_what_has_moved_since_it_began(cold_log: ColdLog) -> None:
    payloads = cold_log.offloaded()
    with closing(cold_log.namespace._catalog(LOG)) as catalog:
        assert [segment.segment for segment in catalog.kept()] == [1, 2, 3]
        cold_log.drop_hot()
        assert catalog.position_of(7) == DLSN(3, 1, 0)
    assert payloads_read(cold_log.namespace, LOG) == payloads


def test_files_stay_in_the_store_until_readers_have_had_time_to_see_that_they_go(cold_log: ColdLog) -> None:
    payloads = cold_log.offloaded()
    cold_log.clock.advance_s(0.9 * HOUR_S)
    cold_log.namespace.purge(LOG)
    assert all(segment.hot_dropped_ms is None for segment in cold_log.namespace.segments(LOG))
    cold_log.clock.advance_s(0.2 * HOUR_S)
    cold_log.namespace.purge(LOG)
    assert all(segment.hot_dropped_ms is not None for segment in cold_log.namespace.segments(LOG))
    cold_log.clock.advance_s(0.9 * GRACE_S)
    cold_log.namespace.purge(LOG)
    assert cold_log.hot() == cold_log.cold() == [1, 2, 3]
    cold_log.clock.advance_s(0.2 * GRACE_S)
    assert cold_log.namespace.purge(LOG).bytes > 0
    assert cold_log.hot() == []
    assert payloads_read(cold_log.namespace, LOG) == payloads


def test_the_last_segments_stay_as_far_as_their_bytes_may(cold_log: ColdLog) -> None:
    payloads = cold_log.offloaded(hot_hours=None, hot_bytes_max=10_000)
    assert sum(segment.bytes for segment in cold_log.namespace.segments(LOG)[1:]) <= 10_000
    cold_log.drop_hot()
    assert (cold_log.hot(), cold_log.cold()) == ([2, 3], [1, 2, 3])
    assert payloads_read(cold_log.namespace, LOG) == payloads
    cold_log.namespace.configure(LOG, cold_log.config(hot_hours=None, hot_bytes_max=None))
    cold_log.drop_hot()
    assert cold_log.hot() == [2, 3]


def test_a_compressed_copy_goes_cold_in_place_of_the_raw_file(cold_log: ColdLog) -> None:
    payloads = fill_log(cold_log.namespace, LOG, 6, 5)
    cold_log.namespace.configure(LOG, cold_log.config(copy_codec="zstd", raw_retention_hours=0))
    assert cold_log.namespace.compress(LOG) == 2
    assert cold_log.namespace.offload(LOG) == 2
    first = cold_log.namespace.segments(LOG)[0]
    assert first.cold is not None
    assert first.compressed is not None
    assert first.cold.bytes == first.compressed.bytes < first.bytes
    cold_log.drop_hot()
    assert cold_log.hot() == []
    assert payloads_read(cold_log.namespace, LOG) == payloads
    assert cold_log.namespace.compress(LOG) == 0
    assert cold_log.findings() == []


def test_a_raw_file_that_would_go_later_than_its_segment_is_not_missed(cold_log: ColdLog) -> None:
    payloads = fill_log(cold_log.namespace, LOG, 6, 5)
    cold_log.namespace.configure(LOG, cold_log.config(copy_codec="zstd", raw_retention_hours=5))
    cold_log.namespace.compress(LOG)
    cold_log.namespace.offload(LOG)
    cold_log.drop_hot()
    assert cold_log.hot() == []
    cold_log.clock.advance_s(10 * HOUR_S)
    cold_log.namespace.purge(LOG)
    assert payloads_read(cold_log.namespace, LOG) == payloads
    assert cold_log.findings() == []


def test_a_cold_segment_that_is_missing_is_an_error_that_names_it(cold_log: ColdLog) -> None:
    payloads = cold_log.offloaded()
    cold_log.drop_hot()
    path = cold_log.path(2)
    content = cold_log.files.read(path, 0, 1 << 20)
    cold_log.files.remove(path)
    wanted = rf"log '{LOG}', segment 2: the cold segment cold:/{path} is missing.*bring the file back.*or truncate"
    with cold_log.namespace.open_reader(LOG) as reader:
        assert [record.payload for record in reader.read(3)] == payloads[:3]
        with pytest.raises(DamagedEntry, match=wanted) as raised:
            reader.read(1)
        assert raised.value.position == str(DLSN(2, 0, 0))
    with cold_log.namespace.open_reader(LOG) as reader, pytest.raises(DamagedEntry, match=wanted):
        reader.plan(DLSN(2, 0, 0), 10, 1000)
    assert any("segment 2: its file" in one and "is missing" in one for one in cold_log.findings())
    file = cold_log.files.create(path)
    file.append(content)
    file.close()
    assert payloads_read(cold_log.namespace, LOG) == payloads


@pytest.mark.parametrize("truncated", [True, False])
def test_a_cold_segment_that_goes_while_it_is_read_is_told_by_its_reason(cold_log: ColdLog, truncated: bool) -> None:
    payloads = [b"%d" % number + bytes(900_000) for number in range(4)]
    with cold_log.namespace.open_writer(LOG) as writer:
        writer.write_bulk(payload_batch(payloads)).result(120)
        writer.write(bytes(5000)).result(120)
        writer.write(b"last").result(120)
    cold_log.namespace.configure(LOG, cold_log.config())
    cold_log.namespace.offload(LOG)
    cold_log.drop_hot()
    with cold_log.namespace.open_reader(LOG) as reader:
        assert [record.payload for record in reader.read(1)] == payloads[:1]
        if truncated:
            cold_log.namespace.truncate(LOG, DLSN(2, 0, 0))
            cold_log.namespace.purge(LOG)
            reader._catalog._stale.clear()  # nobody has told it yet
            with pytest.raises(PositionTruncated):
                reader.read(10)
        else:
            path = cold_log.path(1)
            cold_log.files.remove(path)
            with pytest.raises(
                DamagedEntry, match=rf"log '{LOG}', segment 1: the cold segment cold:/{path} is missing"
            ):
                reader.read(10)


def test_a_cold_segment_that_is_damaged_or_cut_is_an_error_that_names_it(cold_log: ColdLog) -> None:
    cold_log.offloaded()
    cold_log.drop_hot()
    cold_log.damage(2, 200)
    wanted = (
        rf"log '{LOG}': the entry at segment 2, entry 0 .* is damaged.*restore cold:/{cold_log.path(2)} from a copy"
    )
    with cold_log.namespace.open_reader(LOG, DLSN(2, 0, 0)) as reader, pytest.raises(DamagedEntry, match=wanted):
        reader.read(1)
    with cold_log.namespace.open_reader(LOG) as reader:
        plan = reader.plan(DLSN(2, 0, 0), 10, 1000)
        assert plan is not None
        with pytest.raises(DamagedEntry, match=wanted):
            list(plan.splits[0].read())
    del cold_log.files._inode(cold_log.path(3)).content[1000:]
    with cold_log.namespace.open_reader(LOG, DLSN(3, 0, 0)) as reader, pytest.raises(DamagedEntry, match="segment 3"):
        reader.read(1)
    found = " ".join(cold_log.findings())
    assert "segment 2, entry 0" in found
    assert "segment 3" in found


def test_while_cold_storage_is_away_reads_say_so_and_what_is_in_the_store_stays(cold_log: ColdLog) -> None:
    payloads = cold_log.offloaded()
    cold_log.files.away = True
    cold_log.clock.advance_s(2 * HOUR_S)
    for work in (cold_log.namespace.purge, cold_log.namespace.purge):
        with pytest.raises(StoreUnreachable, match=r"cold storage cold://kept.* does not answer"):
            work(LOG)
    assert cold_log.hot() == [1, 2, 3]
    assert payloads_read(cold_log.namespace, LOG) == payloads
    with cold_log.namespace.open_writer(LOG) as writer:
        writer.write(b"more").result(120)
    payloads.append(b"more")
    with pytest.raises(StoreUnreachable):
        cold_log.namespace.offload(LOG)
    cold_log.files.away = False
    assert cold_log.namespace.offload(LOG) == 1
    cold_log.drop_hot()
    assert (cold_log.hot(), cold_log.cold()) == ([], [1, 2, 3, 4])
    cold_log.files.away = True
    with cold_log.namespace.open_reader(LOG) as reader, pytest.raises(StoreUnreachable, match="does not answer"):
        reader.read(1)
    found = list(cold_log.namespace.inspect(LOG).segments())
    assert all("cannot be read just now" in str(report.findings[0]) for report in found)
    with pytest.raises(StoreUnreachable):
        cold_log.namespace.recover(LOG)
    cold_log.files.away = False
    assert payloads_read(cold_log.namespace, LOG) == payloads


def test_a_writer_whose_cold_storage_is_away_goes_on_and_says_so(cold_log: ColdLog) -> None:
    cold_log.namespace.configure(LOG, cold_log.config())
    cold_log.files.away = True
    with cold_log.namespace.open_writer(LOG) as writer:
        for _ in range(3):
            writer.write(bytes(5000)).result(120)
        wait_until(lambda: isinstance(writer.maintenance_failure, StoreUnreachable), what="the failure")
        assert cold_log.hot() == [1, 2, 3]
        cold_log.namespace.truncate(LOG, DLSN(3, 0, 0))
        writer.write(bytes(5000)).result(120)
        wait_until(lambda: cold_log.hot() == [3, 4], what="the purge, which goes on")
        cold_log.files.away = False
        writer.write(bytes(5000)).result(120)
        wait_until(lambda: writer.maintenance_failure is None, what="the maintenance after it is back")


def test_cold_storage_that_is_full_takes_no_half_segment(cold_log: ColdLog) -> None:
    payloads = fill_log(cold_log.namespace, LOG, 6)
    cold_log.namespace.configure(LOG, cold_log.config())
    cold_log.files.room_bytes = 5000
    with pytest.raises(LogWriteFailed, match="has no room"):
        cold_log.namespace.offload(LOG)
    assert [segment.cold is not None for segment in cold_log.namespace.segments(LOG)] == [True, False]
    cold_log.files.room_bytes = None
    assert cold_log.namespace.offload(LOG) == 1
    cold_log.drop_hot()
    assert cold_log.cold() == [1, 2]
    assert payloads_read(cold_log.namespace, LOG) == payloads


def test_a_cold_copy_that_does_not_hold_is_made_again_before_anything_is_dropped(cold_log: ColdLog) -> None:
    payloads = cold_log.offloaded()
    cold_log.damage(1, 100)
    cold_log.clock.advance_s(2 * HOUR_S)
    with pytest.raises(DamagedEntry, match=r"cold copy of segment 1 does not hold.*in the store is kept"):
        cold_log.namespace.purge(LOG)
    assert [segment.cold is None for segment in cold_log.namespace.segments(LOG)] == [True, False, False]
    cold_log.clock.advance_s(GRACE_S)
    cold_log.namespace.purge(LOG)
    assert cold_log.hot() == [1]
    assert cold_log.namespace.offload(LOG) == 1
    cold_log.drop_hot()
    assert (cold_log.hot(), cold_log.cold()) == ([], [1, 2, 3])
    assert payloads_read(cold_log.namespace, LOG) == payloads
    assert cold_log.findings() == []


def test_what_cold_storage_wrote_wrongly_is_not_named(cold_log: ColdLog, monkeypatch: pytest.MonkeyPatch) -> None:
    payloads = fill_log(cold_log.namespace, LOG, 3)
    cold_log.namespace.configure(LOG, cold_log.config())
    sync = cold_log.files.sync

    def spoiled(path: str, inode: object, boot: int) -> None:
        if path.endswith(".log"):
            inode.content[500] ^= 1  # type: ignore[attr-defined]
        sync(path, inode, boot)  # type: ignore[arg-type]

    monkeypatch.setattr(cold_log.files, "sync", spoiled)
    with pytest.raises(LogWriteFailed, match="does not hold what its segment does"):
        cold_log.namespace.offload(LOG)
    assert cold_log.cold() == []
    assert cold_log.namespace.segments(LOG)[0].cold is None
    assert payloads_read(cold_log.namespace, LOG) == payloads


def test_damage_is_not_copied_and_keeps_nothing_else_from_being(cold_log: ColdLog) -> None:
    fill_log(cold_log.namespace, LOG, 9)
    cold_log.disk.damage(f"{cold_log.namespace.segments(LOG)[1].file}.log", 200)
    cold_log.namespace.configure(LOG, cold_log.config())
    with pytest.raises(DamagedEntry, match=r"segment 2 does not hold.*is not copied"):
        cold_log.namespace.offload(LOG)
    assert cold_log.cold() == [1, 3]
    cold_log.drop_hot()
    assert cold_log.hot() == [2]
