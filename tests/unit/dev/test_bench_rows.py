"""The benchmarks' rows: ratios, the JSON's keys, medians of runs that take turns."""

from __future__ import annotations

import json
from pathlib import Path

from scribengin_dev.bench.dataflows.flow import rate_of_run
from scribengin_dev.bench.rows import SCALES, Row, alternating, missed_targets, write_json
from scribengin_dev.harness.standstill import SeenCommit
from scribengin_tools.logs.pacing import receive, send_paced

KEYS = ["name", "unit", "ours", "peer", "peer_name", "ratio", "guarantee"]


def test_the_json_holds_a_list_of_rows_with_the_agreed_keys(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    write_json([Row("append", "records/s", 30.0, 10.0, "the disk", "durable")], path)
    (row,) = json.loads(path.read_text())
    assert sorted(row) == sorted(KEYS)
    assert (row["name"], row["ours"], row["peer"], row["ratio"]) == ("append", 30.0, 10.0, 3.0)


def test_a_row_without_a_peer_has_no_ratio_and_says_why() -> None:
    row = Row("append", "records/s", 30.0, None, "none yet", "durable").to_json()
    assert row["peer"] is None
    assert row["ratio"] is None
    assert row["peer_name"] == "none yet"


def test_the_ratio_of_what_should_be_little_is_turned_round() -> None:
    assert Row("tail", "ms", 2.0, 10.0, "the peer", "durable").ratio == 5.0
    assert Row("memory", "MB", 400.0, 200.0, "the target", "durable").ratio == 0.5


def test_a_row_below_its_target_is_named() -> None:
    rows = [
        Row("read-100B", "records/s", 69, 100, "the limit", ""),
        Row("read-1KiB", "records/s", 70, 100, "the limit", ""),
        Row("tail", "ms", 3, 1, "one fsync", ""),
        Row("append-100B", "records/s", 1, None, "none", ""),
        Row("append-100B/kafka", "records/s", 1, 100, "a peer has no target", ""),
    ]
    assert missed_targets(rows) == ["read-100B: 0.69, the target is 0.7", "tail: 0.33, the target is 0.5"]


def test_ways_are_timed_from_the_stamp_that_a_record_carries_without_the_first_fifth() -> None:
    sent: list[bytes] = []
    send_paced(sent.append, 10, per_s=1e9, record_bytes=64)
    assert {len(record) for record in sent} == {64}
    ways = receive(lambda: [sent.pop(0)], 10)
    assert 0 < ways["p50_ms"] <= ways["p99_ms"] < 60_000
    assert sent == []


def test_a_benchmark_is_the_median_of_its_runs_on_both_sides() -> None:
    runs = iter([(1.0, 50.0), (9.0, 20.0), (2.0, 30.0)])
    assert alternating(3, lambda: next(runs)) == (2.0, 30.0)


def test_a_dataflows_rate_is_from_its_take_over_to_its_last_commit() -> None:
    changes = [
        SeenCommit(f"in/{at % 2}", "task-0", "w", round_, at)
        for round_, at in ((4, 1000), (4, 1001), (5, 2000), (5, 3000))
    ]
    assert rate_of_run(changes, 500) == 250.0


def test_the_number_of_runs_can_be_chosen() -> None:
    assert SCALES["full"].with_runs(3).runs == 3
    assert SCALES["full"].with_runs(None) == SCALES["full"]
