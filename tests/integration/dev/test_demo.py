"""The demo as a user runs it, with fewer flights: it ends well though a master and a worker die, and it cleans up."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from scribengin.launcher.local.launcher import LocalLauncher
from scribengin.testing.waiting import wait_until
from scribengin_dev.demo.flights import delays_by_hour, load_flights, sessions
from tests.integration.demo_runs import cells_of, expect_exact, processes_in, start_demo
from tests.integration.leftovers import await_none
from tests.servers.jvms import with_compiled_plans

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

RECORDS = 20_000


def running_containers(directory: Path) -> list[str]:
    """What still runs of the demo whose directory stands in `directory`."""
    names = []
    for home in directory.glob("scribengin-demo-*/home"):
        with LocalLauncher(home) as launcher:
            for dataflow in ("flight_delays", "flight_names"):
                found = launcher.all_containers(dataflow)
                names += [container.name for container in found if launcher.poll(container) is None]
    return names


@pytest.mark.parametrize(
    "launcher", ["local", *(pytest.param(name, marks=pytest.mark.full) for name in ("yarn", "skein"))]
)
def test_the_demo_loses_and_duplicates_nothing_though_master_and_worker_are_killed(
    tmp_path: Path, launcher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", with_compiled_plans(os.environ["SPARK_SUBMIT_OPTS"]))
    demo = start_demo(tmp_path, "--records", str(RECORDS), "--kill", "both", "--launcher", launcher)
    output, errors = demo.communicate(timeout=800)
    expect_exact(errors + output, RECORDS)
    assert demo.returncode == 0, output + errors
    assert re.search(r"streams taken over of flight_delays \d of 4", output), "nobody said what the start takes"
    assert len(re.findall(r"killed the (worker|master) \S+ \(pid \d+\)", output)) == 2
    assert "stood still" in output
    assert running_containers(tmp_path) == []
    await_none(lambda: processes_in(tmp_path))


@pytest.mark.full
def test_an_interrupted_demo_leaves_no_process_behind(tmp_path: Path) -> None:
    demo = start_demo(tmp_path, "--records", "2000")
    try:
        wait_until(lambda: len(running_containers(tmp_path)) >= 2, 300, "the demo's masters to run")
        demo.send_signal(signal.SIGINT)
        output, errors = demo.communicate(timeout=300)
    finally:
        demo.kill()
    assert demo.returncode == 130, output + errors
    assert errors.strip() == "demo: interrupted; everything it had started is stopped"
    assert running_containers(tmp_path) == []


@pytest.mark.full
def test_the_demo_of_state_counts_every_flight_once_though_master_and_worker_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", with_compiled_plans(os.environ["SPARK_SUBMIT_OPTS"]))
    demo = start_demo(tmp_path, "--records", str(RECORDS), "--kill", "both", "--state")
    output, errors = demo.communicate(timeout=800)
    flights = load_flights(RECORDS)
    rows = {row[0]: row[2:7] for row in map(cells_of, output.splitlines())}
    for log, expected in (
        ("hours", len(delays_by_hour(flights))),
        ("sessions", len(sessions(flights, rest_hours=12))),
        ("weathered", RECORDS),
    ):
        assert f"log {log}/*" in rows, output + errors
        assert rows[f"log {log}/*"] == [f"{expected:,}", f"{expected:,}", "0", "0", "0"], output
    assert demo.returncode == 0, output + errors
    assert len(re.findall(r"killed the (worker|master) \S+ \(pid \d+\)", output)) == 2
    await_none(lambda: processes_in(tmp_path))


@pytest.mark.full
def test_the_demo_over_dafka_loses_and_repeats_nothing_though_store_producer_and_worker_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", with_compiled_plans(os.environ["SPARK_SUBMIT_OPTS"]))
    demo = start_demo(tmp_path, "--records", str(RECORDS), "--source", "dafka")
    output, errors = demo.communicate(timeout=800)
    expect_exact(errors + output, RECORDS, source="store flights/*")
    assert demo.returncode == 0, output + errors
    assert len(re.findall(r"killed (the store|producer 0|the worker \S+) \(pid \d+\)", output)) == 3
    assert "producer 2 has published all its flights and gone; producer 3 comes" in output
    assert running_containers(tmp_path) == []
    await_none(lambda: processes_in(tmp_path))
