"""The benchmarks as a user runs them, at a scale that only shows that they work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

KEYS = {"name", "unit", "ours", "peer", "peer_name", "ratio", "guarantee"}
LOG_BENCHMARKS = ["append-100B", "append-1KiB", "append-100B-one-by-one", "read-100B", "read-1KiB"]
WITH_PEER = {"append-1KiB", "read-100B", "read-1KiB"}


def run_bench(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "scribengin_tools.bench", "--scale", "small", "--dir", str(directory), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
        timeout=280,
        check=False,
    )


def test_every_log_benchmark_gives_a_row_with_its_peer_and_its_guarantee(tmp_path: Path) -> None:
    done = run_bench(tmp_path, *LOG_BENCHMARKS, "--json", str(tmp_path / "rows.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [row["name"] for row in rows] == LOG_BENCHMARKS
    for row in rows:
        assert set(row) == KEYS
        assert row["ours"] > 0
        assert (row["peer"] is not None) == (row["name"] in WITH_PEER)
        assert (row["ratio"] is not None) == (row["name"] in WITH_PEER)
        assert row["peer_name"]
        assert row["guarantee"]
        assert row["name"] in done.stdout
    assert "cores" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["rows.json"]


@pytest.mark.spark
def test_the_dataflow_benchmark_gives_a_row(tmp_path: Path) -> None:
    done = run_bench(tmp_path, "log-sql-log", "--json", str(tmp_path / "rows.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads((tmp_path / "rows.json").read_text())
    assert row["name"] == "log-sql-log"
    assert row["ours"] > 0


def test_an_unknown_benchmark_is_refused_with_the_names_there_are(tmp_path: Path) -> None:
    done = run_bench(tmp_path, "append-1GiB")
    assert done.returncode == 2
    assert done.stderr.startswith("bench: there is no benchmark 'append-1GiB': choose from append-100B, ")
    assert list(tmp_path.iterdir()) == []
