"""Ranges of a log for dataflows: planned within limits, read by any process, the same every time."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from scribengin.errors import (
    DamagedEntry,
)
from scribengin.log import DLSN, RECORD_SCHEMA, LogConfig, LogNamespace
from scribengin.testing.log_samples import (
    bound_namespace,
    damage_segment,
    fill_log,
    payload_batch,
    payloads_of,
    payloads_planned,
    payloads_read,
)
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry

LOG = "flights/0"


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    return bound_namespace(registry, tmp_path / "store", LOG, config=LogConfig(segment_bytes_max=4096))


def test_a_plan_ends_before_damage_and_the_next_begins_with_it(namespace: LogNamespace) -> None:
    payloads = fill_log(namespace, LOG, 6)
    damage_segment(namespace, LOG, 2, 1555)
    with namespace.open_reader(LOG) as reader:
        plan = reader.plan(DLSN.INITIAL, 100, 1 << 30)
        assert plan is not None
        assert [p for split in plan.splits for batch in split.read() for p in payloads_of(batch)] == payloads[:4]
        with pytest.raises(DamagedEntry):
            reader.plan(plan.end, 100, 1 << 30)


def test_a_split_finds_damage_that_its_plan_could_not_see(namespace: LogNamespace) -> None:
    payloads = fill_log(namespace, LOG, 3)
    with namespace.open_reader(LOG) as reader:
        plan = reader.plan(DLSN.INITIAL, 100, 1 << 30)
    assert plan is not None
    damage_segment(namespace, LOG, 1, 1536 + 64 + 700)
    batches = plan.splits[0].read()
    assert payloads_of(next(batches)) == payloads[:1]
    with pytest.raises(DamagedEntry, match="checksum of the body"):
        next(batches)


@pytest.mark.parametrize("records_max", [1, 2, 3, 4, 5, 7, 100])
def test_plans_cover_everything_once_within_their_limits(namespace: LogNamespace, records_max: int) -> None:
    payloads = fill_log(namespace, LOG, 7, 3)
    with namespace.open_reader(LOG) as reader:
        ranges = payloads_planned(reader, DLSN.INITIAL, records_max)
    assert [payload for part in ranges for payload in part] == payloads
    assert {len(part) for part in ranges[:-1]} <= {records_max}


@pytest.mark.parametrize("bytes_max", [0, 1, 1000, 1100, 2500, 5000, 20_000])
def test_plans_keep_to_their_bytes_but_give_at_least_a_record(namespace: LogNamespace, bytes_max: int) -> None:
    payloads = fill_log(namespace, LOG, 7, 3)
    with namespace.open_reader(LOG) as reader:
        ranges = payloads_planned(reader, DLSN.INITIAL, 100, bytes_max)
    assert [payload for part in ranges for payload in part] == payloads
    assert all(len(part) == 1 or sum(map(len, part)) <= bytes_max for part in ranges)


def test_a_range_reads_the_same_again_whatever_is_written_meanwhile(namespace: LogNamespace) -> None:
    payloads = fill_log(namespace, LOG, 4, 3)
    with namespace.open_reader(LOG) as reader:
        first = reader.plan(DLSN(1, 0, 1), 7, 1 << 30)
        with namespace.open_writer(LOG) as writer:
            writer.write_bulk(payload_batch([b"later"] * 100)).result(120)
        second = reader.plan(DLSN(1, 0, 1), 7, 1 << 30)
    assert first is not None
    assert first == second
    assert first.records == 7
    assert [split.records for split in first.splits] == [7]
    assert [p for split in first.splits for batch in split.read() for p in payloads_of(batch)] == payloads[1:8]


def test_a_split_is_read_in_another_process_without_a_registry(namespace: LogNamespace) -> None:
    payloads = fill_log(namespace, LOG, 7, 3)
    with namespace.open_reader(LOG) as reader:
        plan = reader.plan(DLSN.INITIAL, 20, 1 << 30)
    assert plan is not None
    program = (
        "import pickle, sys\n"
        "splits = pickle.load(sys.stdin.buffer)\n"
        "values = [v for s in splits for b in s.read() for v in b.column('payload').to_pylist()]\n"
        "assert 'kazoo' not in sys.modules\n"
        "sys.stdout.buffer.write(pickle.dumps(values))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps(plan.splits), capture_output=True, check=True, timeout=120
    )
    assert pickle.loads(done.stdout) == payloads[:20]


def test_large_ranges_are_cut_into_splits_that_together_are_the_range(namespace: LogNamespace) -> None:
    namespace.create("large")
    batch = payload_batch(b"%07d" % n + bytes(493) for n in range(2000))
    with namespace.open_writer("large") as writer:
        for _ in range(20):
            writer.write_bulk(batch)
    with namespace.open_reader("large") as reader:
        plan = reader.plan(DLSN(1, 0, 5), 39_000, 1 << 30)
    assert plan is not None
    assert len(plan.splits) > 2
    assert all(split.size_bytes >= 4 * 1024 * 1024 for split in plan.splits[:-1])
    found = [b for split in plan.splits for b in split.read()]
    assert all(b.schema == RECORD_SCHEMA for b in found)
    assert sum(b.num_rows for b in found) == plan.records == sum(split.records for split in plan.splits) == 39_000
    numbers = [int(value[:7]) for b in found for value in payloads_of(b)]
    assert numbers == [n % 2000 for n in range(5, 39_005)]


@pytest.mark.usefixtures("registry_hosts")  # one in memory counts its own calls of itself
def test_planning_asks_the_registry_only_after_a_change(namespace: LogNamespace, registry: Registry) -> None:
    fill_log(namespace, LOG, 7, 3)
    with namespace.open_reader(LOG) as reader:
        position = reader.plan(DLSN.INITIAL, 2, 1 << 30)
        asked = []
        for method in ("find", "get", "children"):
            asked.append(count_calls(registry, method))
        while position is not None:
            assert reader.lag(position.end) >= 0
            position = reader.plan(position.end, 2, 1 << 30)
    assert [calls.count for calls in asked] == [0, 0, 0]


class count_calls:  # noqa: N801  reads as what it does
    """Counts the calls of one method of one registry object."""

    def __init__(self, registry: Registry, method: str) -> None:
        self.count = 0
        call = getattr(registry, method)

        def counted(*args: object, **options: object) -> object:
            self.count += 1
            return call(*args, **options)

        setattr(registry, method, counted)


def test_lag_and_waiting_and_the_end(namespace: LogNamespace, elsewhere: LogNamespace) -> None:
    with namespace.open_reader(LOG) as reader:
        assert reader.lag(DLSN.INITIAL) == 0
        assert not reader.wait(DLSN.INITIAL, 0.05)
        assert reader.end_position() == DLSN.INITIAL
        fill_log(elsewhere, LOG, 7, 3)
        assert reader.wait(DLSN.INITIAL, 10)
        wait_until(lambda: reader.lag(DLSN.INITIAL) == 21, what="the last segment to be seen")
        end = reader.end_position()
        assert end == DLSN(3, 1, 0)
        assert [reader.lag(DLSN(1, 0, n)) for n in range(4)] == [21, 20, 19, 18]
        assert reader.lag(DLSN(2, 0, 0)) == 12
        assert reader.lag(end) == 0
        assert not reader.wait(end, 0)
        assert not reader.ended(end)
        assert reader.plan(end, 10, 1000) is None


def test_waiting_for_staged_records_waits_for_their_commit(namespace: LogNamespace) -> None:
    with (
        namespace.open_reader(LOG) as reader,
        namespace.open_writer(LOG, commit_log="/scribengin/locks/commit-log") as writer,
    ):
        writer.stage(payload_batch([b"x"]))
        staged = writer.prepare()
        assert staged is not None
        assert not reader.wait(DLSN.INITIAL, 0.05)
        assert reader.plan(DLSN.INITIAL, 10, 1000) is None
        writer.commit_staged(staged)
        assert reader.wait(DLSN.INITIAL, 10)
        assert payloads_planned(reader, DLSN.INITIAL, 10) == [[b"x"]]
        end = reader.end_position()
        assert reader.lag(end) == 0
        writer.commit_staged(staged)
        assert reader.end_position() == end


def test_a_control_record_alone_is_nothing_to_read(namespace: LogNamespace) -> None:
    with namespace.open_writer(LOG, commit_log="/scribengin/locks/commit-log") as writer:
        for n in range(3):
            writer.stage(payload_batch([b"%d" % n]))
            staged = writer.prepare()
            assert staged is not None
            writer.commit_staged(staged)
    with namespace.open_reader(LOG) as reader:
        assert payloads_planned(reader, DLSN.INITIAL, 1) == [[b"0"], [b"1"], [b"2"]]
        plan = reader.plan(DLSN.INITIAL, 3, 1 << 30)
        assert plan is not None
        assert reader.lag(plan.end) == 0
        assert reader.plan(plan.end, 1, 1) is None
    assert payloads_read(namespace, LOG) == [b"0", b"1", b"2"]
