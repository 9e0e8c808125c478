"""The benchmarks as a user runs them, at a scale that only shows that they work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scribengin_dev.bench.dataflows.state_memory import CONTAINER_MB, tenths

KEYS = {"name", "unit", "ours", "peer", "peer_name", "ratio", "guarantee"}
LOG_BENCHMARKS = [
    "append-100B",
    "append-1KiB",
    "append-100B-one-by-one",
    "read-100B",
    "read-1KiB",
    "log-segments-10000",
    "tail",
]
WITH_LIMIT = {"append-1KiB", "log-segments-10000", "read-100B", "read-1KiB", "tail", "tail-p99"}
COSTS = ["", "-threads", "-memory"]


def run_bench(directory: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "scribengin_dev.bench", "--scale", "small", "--dir", str(directory), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200", **environment},
        timeout=280,
        check=False,
    )


def measured(directory: Path, *arguments: str) -> dict[str, dict[str, Any]]:
    """The rows of benchmarks that all were run."""
    done = run_bench(directory, *arguments, "--json", str(directory / "rows.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    return rows_of(directory / "rows.json")


def nowhere(directory: Path) -> dict[str, str]:
    """Jars are to be had from there alone, and there are none."""
    (directory / "ivy.xml").write_text(
        '<ivysettings><settings defaultResolver="none"/><resolvers><filesystem name="none">'
        f'<artifact pattern="{directory}/[artifact].[ext]"/></filesystem></resolvers></ivysettings>'
    )
    return {"XDG_CACHE_HOME": str(directory / "cache"), "SCRIBENGIN_IVY_SETTINGS": str(directory / "ivy.xml")}


def rows_of(file: Path) -> dict[str, dict[str, Any]]:
    rows = json.loads(file.read_text())
    assert all(set(row) == KEYS for row in rows)
    return {row["name"]: row for row in rows}


def test_every_log_benchmark_gives_a_row_with_its_limit_and_its_guarantee(tmp_path: Path) -> None:
    done = run_bench(tmp_path, *LOG_BENCHMARKS, "--no-peers", "--json", str(tmp_path / "rows.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    rows = rows_of(tmp_path / "rows.json")
    assert list(rows) == [*LOG_BENCHMARKS, "tail-p99"]
    for name, row in rows.items():
        assert row["ours"] > 0
        assert (row["peer"] is not None) == (name in WITH_LIMIT)
        assert (row["ratio"] is not None) == (name in WITH_LIMIT)
        assert row["peer_name"]
        assert row["guarantee"]
        assert name in done.stdout
    assert "cores" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["rows.json"]


@pytest.mark.servers
@pytest.mark.full
def test_a_peer_of_each_kind_is_measured_beside_ours(tmp_path: Path) -> None:
    pairs = ["append-100B/kafka", "append-100B/distributedlog", "read-1KiB/kafka", "read-1KiB/distributedlog"]
    tails = ["tail/kafka", "tail/kafka-flush"]
    rows = measured(tmp_path, *pairs, *tails)
    assert set(rows) == {*pairs, *tails, "append-100B", "read-1KiB", "tail", "tail-p99"} | {
        f"tail-p99/{peer}" for peer in ("kafka", "kafka-flush")
    }
    for name in pairs:
        row = rows[name]
        assert row["ratio"] == pytest.approx(row["ours"] / row["peer"])
    for name in tails:
        row, late = rows[name], rows[name.replace("tail", "tail-p99")]
        assert row["ratio"] == pytest.approx(row["peer"] / row["ours"])
        assert 0 < row["peer"] <= late["peer"]
        assert 0 < row["ours"] <= late["ours"]
    assert rows["append-100B/kafka"]["peer_name"].startswith("Kafka 4.")
    assert rows["append-100B/distributedlog"]["peer_name"].startswith("DistributedLog 4.")
    assert rows["append-100B"]["peer"] == max(rows[pair]["peer"] for pair in pairs[:2])


@pytest.mark.full
def test_a_peer_that_cannot_be_fetched_is_an_error_when_it_was_asked_for_by_name(tmp_path: Path) -> None:
    done = run_bench(tmp_path, "append-100B/kafka", "--json", str(tmp_path / "rows.json"), **nowhere(tmp_path))
    assert done.returncode == 1
    assert "bench: kafka was asked for by name and could not be measured" in done.stderr
    row = rows_of(tmp_path / "rows.json")["append-100B/kafka"]
    assert row["peer"] is None
    assert row["ours"] > 0
    assert "cannot be had: jars could not be fetched" in row["peer_name"]


@pytest.mark.full
def test_memory_and_many_logs_are_measured_in_processes_of_their_own(tmp_path: Path) -> None:
    rows = measured(tmp_path, "memory", "logs-1", "logs-100")
    assert list(rows) == ["memory", *(f"logs-{count}{cost}" for count in (1, 100) for cost in COSTS)]
    assert 10 < rows["memory"]["ours"] < 200
    assert rows["memory"]["ratio"] == pytest.approx(200 / rows["memory"]["ours"])
    assert rows["logs-100-threads"]["ours"] == rows["logs-100-threads"]["peer"] > 0, "one thread writes for all"
    assert rows["logs-100"]["ratio"] > 0


@pytest.mark.full
def test_single_records_of_many_clients_are_measured_through_a_proxy(tmp_path: Path) -> None:
    rows = measured(tmp_path, "proxy-single-1", "proxy-single-100")
    assert list(rows) == [
        *(f"proxy-single-1{end}" for end in ("", "-core", "-p50")),
        *(f"proxy-single-100{end}" for end in ("", "-core", "-p50", "-p50-one-log")),
    ]
    assert all(row["ours"] > 0 and row["peer"] > 0 for row in rows.values())


@pytest.mark.servers
@pytest.mark.full
def test_many_readers_are_measured_with_and_without_a_proxy_beside_kafkas_consumers(tmp_path: Path) -> None:
    rows = measured(tmp_path, "fan-out-10")
    assert list(rows) == ["fan-out-10", "fan-out-10-proxy"]
    for row in rows.values():
        assert row["ratio"] == pytest.approx(row["ours"] / row["peer"])
        assert row["peer_name"].startswith("Kafka 4.")
        assert "both checksums" in row["guarantee"]


@pytest.mark.servers
@pytest.mark.full
def test_logs_on_bookies_are_measured_beside_distributedlog_on_the_same_ones_and_three_brokers(tmp_path: Path) -> None:
    rows = measured(tmp_path, "append-100B-bk", "read-100B-bk", "tail-bk")
    names = ["append-100B-bk", "read-100B-bk", "tail-bk", "tail-bk-p99"]
    assert list(rows) == [row for name in names for row in (name, f"{name}/kafka-brokers")]
    for name, row in rows.items():
        kafka = row["peer_name"].startswith("Kafka 4.") and "3 brokers, a copy on each, acks=all" in row["peer_name"]
        assert kafka if "/" in name else row["peer_name"].startswith("DistributedLog 4.")
        assert row["guarantee"].startswith("three bookies of this machine, three copies, all with an fsync")
        assert row["ours"] > 0 < row["peer"]
    assert rows["tail-bk"]["ratio"] == pytest.approx(rows["tail-bk"]["peer"] / rows["tail-bk"]["ours"])


@pytest.mark.servers
@pytest.mark.full
def test_logs_on_hdfs_are_measured_beside_hdfs_itself(tmp_path: Path) -> None:
    names = ["append-1KiB-hdfs", "read-100B-hdfs", "tail-hdfs"]
    rows = measured(tmp_path, *names)
    assert list(rows) == [*names, "tail-hdfs-p99"]
    for row in rows.values():
        assert row["peer_name"].startswith("HDFS's own client: ")
        assert row["guarantee"].startswith("HDFS on this machine, 3 copies, hsync on all of them before the ack")
        assert row["ours"] > 0 < row["peer"]


@pytest.mark.full
def test_a_store_that_is_not_to_be_had_is_said_in_its_row(tmp_path: Path) -> None:
    done = run_bench(tmp_path, "tail-hdfs", "--json", str(tmp_path / "rows.json"), **nowhere(tmp_path))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "hdfs was asked for by name and could not be measured" in done.stderr
    (row,) = rows_of(tmp_path / "rows.json").values()
    assert row["ratio"] is None
    assert "no such store here: jars could not be fetched" in row["peer_name"]


@pytest.mark.full
@pytest.mark.spark
def test_dataflows_are_measured_beside_spark_from_kafka_to_kafka(tmp_path: Path) -> None:
    rows = measured(tmp_path, "log-sql-log", "kafka-sql-kafka")
    assert list(rows) == ["log-sql-log", "kafka-sql-kafka"]
    for row in rows.values():
        assert row["ratio"] > 0
        assert row["ratio"] == pytest.approx(row["ours"] / row["peer"])
        assert row["guarantee"].startswith("exactly once")
        assert row["peer_name"].startswith("Spark Structured Streaming, Kafka connector 4.")
        assert "at least once" in row["peer_name"]
    assert rows["log-sql-log"]["peer"] == rows["kafka-sql-kafka"]["peer"]


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize("name", ["latency-1000", "latency-window-1000"])
def test_a_records_way_through_a_dataflow_is_measured_beside_sparks_micro_batches(tmp_path: Path, name: str) -> None:
    rows = measured(tmp_path, name)
    assert list(rows) == [name, f"{name}-p99"]
    for side in ("ours", "peer"):
        assert 0 < rows[name][side] <= rows[f"{name}-p99"][side]
    for row in rows.values():
        assert row["ratio"] == pytest.approx(row["peer"] / row["ours"])
        assert "exactly once" in row["guarantee"]
        assert ("windows of one record" in row["guarantee"]) == ("window" in name)
        assert "as fast as they can" in row["peer_name"]


@pytest.mark.full
@pytest.mark.spark
def test_two_tasks_with_state_are_measured_beside_one(tmp_path: Path) -> None:
    (row,) = measured(tmp_path, "state-tasks").values()
    assert row["ratio"] == pytest.approx(row["ours"] / row["peer"])
    assert row["peer_name"].startswith("the same with tasks: 1")


@pytest.mark.full
def test_the_plan_of_many_tasks_is_measured_until_all_are_with_workers(tmp_path: Path) -> None:
    rows = measured(tmp_path, "plan-100", "--no-peers")
    assert list(rows) == ["plan-100", "plan-100-requests"]
    assert rows["plan-100"]["ours"] > 0
    assert rows["plan-100-requests"]["ours"] < 100, "no round trip a task and tick"


@pytest.mark.full
@pytest.mark.spark
def test_queries_of_nexmark_are_measured_beside_spark_from_kafka_and_from_files_and_beside_flink(
    tmp_path: Path,
) -> None:
    names = ["nexmark-q0", "nexmark-q12"]
    rows = measured(tmp_path, *names, "--runs", "1")
    assert list(rows) == [row for name in names for row in (name, f"{name}/memory", f"{name}/flink")]
    for name, row in rows.items():
        assert row["ratio"] == pytest.approx(row["ours"] / row["peer"])
        assert "exactly once" in row["guarantee"]
        assert ("Parquet" in row["peer_name"]) == name.endswith("/memory")
        assert row["peer_name"].startswith("PyFlink") == name.endswith("/flink")


@pytest.mark.full
@pytest.mark.spark
def test_bad_records_are_measured_beside_good_ones_whether_the_engine_decodes_or_a_function(tmp_path: Path) -> None:
    names = ["bad-records", "bad-records-function", "bad-records-function-first"]
    rows = measured(tmp_path, *names)
    assert list(rows) == names
    for row in rows.values():
        assert row["ratio"] == pytest.approx(row["ours"] / row["peer"])
        assert row["peer_name"] == "the same without a bad record"
        assert row["guarantee"].startswith("exactly once; 1 record in 1,000 is no JSON")


@pytest.mark.full
@pytest.mark.spark
def test_a_restore_of_state_is_measured_until_the_next_output(tmp_path: Path) -> None:
    done = run_bench(tmp_path, "state-restore", "--runs", "1", "--json", str(tmp_path / "rows.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    row = rows_of(tmp_path / "rows.json")["state-restore"]
    assert (row["unit"], row["peer"]) == ("ms", None)
    assert row["ours"] > 0
    assert "256 keys of 1024 bytes" in row["guarantee"]


@pytest.mark.full
@pytest.mark.spark
def test_the_memory_of_a_worker_with_state_is_measured_beside_its_containers(tmp_path: Path) -> None:
    row = measured(tmp_path, "state-memory")["state-memory"]
    assert row["peer"] == CONTAINER_MB
    assert row["ratio"] == pytest.approx(row["peer"] / row["ours"])
    assert "860 keys of 4096 bytes" in row["guarantee"]


def test_the_rate_of_the_first_tenth_begins_with_the_first_commit() -> None:
    passed = [(0, 0), (9_000, 0), (10_000, 1), (11_000, 11), (20_000, 60), (30_000, 90), (32_000, 100)]
    assert tenths(passed, 100) == (10.0, 5.0)


@pytest.mark.full
@pytest.mark.spark
def test_recovery_is_measured_beside_the_session_timeout(tmp_path: Path) -> None:
    rows = measured(tmp_path, "recovery-local", "--runs", "1")
    assert list(rows) == ["recovery-local/worker", "recovery-local/master"]
    for row in rows.values():
        assert row["peer"] == 6000
        assert row["ours"] > 0
        assert "stood still longest did so for" in row["guarantee"]


@pytest.mark.full
@pytest.mark.spark
def test_scaling_is_measured_beside_the_gaps_before(tmp_path: Path) -> None:
    (row,) = measured(tmp_path, "scaling", "--runs", "1").values()
    assert row["peer_name"] == "twice the p99 of the gaps before"
    assert row["ours"] > 0
    assert row["ratio"] == pytest.approx(row["peer"] / row["ours"])


def test_an_unknown_peer_is_refused_with_those_that_the_benchmark_has(tmp_path: Path) -> None:
    done = run_bench(tmp_path, "read-100B/pulsar")
    assert done.returncode == 2
    assert done.stderr == "bench: read-100B has no peer 'pulsar': choose from distributedlog, kafka\n"


def test_an_unknown_benchmark_is_refused_with_the_names_there_are(tmp_path: Path) -> None:
    done = run_bench(tmp_path, "append-1GiB")
    assert done.returncode == 2
    assert done.stderr.startswith("bench: there is no benchmark 'append-1GiB': choose from append-100B, ")
    assert list(tmp_path.iterdir()) == []
