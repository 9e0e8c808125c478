"""A dataflow with state as processes: its worker is killed, and stalls, its master is killed, its registry is started
again. Whoever comes next goes on with what was counted. What it keeps is shown meanwhile."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scribengin.base.process.lifetime import EXIT_SESSION_LOST
from scribengin_registry.embedded import EmbeddedZooKeeper
from tests.integration.cli_runner import CommandLine
from tests.integration.cluster import Cluster, Flow, running_cluster, start
from tests.integration.counted_windows import COUNTING, COUNTS, wait_for_windows

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]
LAST = {"start": "1970-01-01T00:03:10.000Z", "end": "1970-01-01T00:03:20.000Z"}
"""The window that is open: five records are in it."""
LAST_START = "1970-01-01 00:03:10"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("registry")) as server:
        yield server


@pytest.fixture(scope="module")
def cluster(server: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(server.hosts, tmp_path_factory.mktemp("state")) as cluster:
        yield cluster


@pytest.fixture
def line(
    cluster: Cluster,
    session_of_commands: None,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> CommandLine:
    monkeypatch.setenv("SCRIBENGIN_REGISTRY", cluster.registry.hosts)
    monkeypatch.setenv("SCRIBENGIN_HOME", str(cluster.home))
    return CommandLine(cluster.registry.hosts, capfd)


def test_windows_are_counted_on_whoever_is_killed_or_stalls(
    cluster: Cluster, server: EmbeddedZooKeeper, line: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "counts.py").write_text(COUNTS)
    cluster.append("in/0", 95)
    flow = start(
        cluster,
        **COUNTING,
        package=str(tmp_path),
        round={"records_max": 30},
        state={},
        session_timeout_s=10,
    ).up()
    wait_for_windows(flow, 9, "in/0")
    os.kill(flow.view.worker(flow.ready_workers()[0]).pid, signal.SIGKILL)
    cluster.append("in/0", 100)
    wait_for_windows(flow, 19, "in/0")
    chosen = ("--operator", "aggregate", "--key", "log=in/0", "--key", f"window.start={LAST_START}")
    kept = {"task": "task-0", "key": {"window": LAST, "log": "in/0"}, "value": {"count": 5}}
    flow.wait(lambda: state(line, *chosen) == [kept], "five records in the last window, whose batch may still go on")
    assert list((cluster.home / "state" / "counting" / "task-0").iterdir()), "checkpoints are where the home is"
    a_master_is_killed(cluster, flow)
    a_worker_stalls_longer_than_its_session(cluster, flow, "in/0")
    wait_for_windows(flow, 34, "in/0")
    a_registry_is_started_again(cluster, flow, server)

    (tmp_path / "counts.py").write_text(COUNTS.replace('"log").count', '(F.col("n") % 7).alias("log")).count'))
    workers = flow.ready_workers()
    refused = line("restart", "counting", "--yes")
    assert refused.code == 2
    assert "what task-0 has kept for aggregate does not fit the transformation any more" in refused.err
    assert (flow.ready_workers(), flow.view.status().state) == (workers, "running")


def a_master_is_killed(cluster: Cluster, flow: Flow) -> None:
    leader = flow.master()
    flow.kill_master()
    cluster.append("in/0", 50)
    wait_for_windows(flow, 24, "in/0")
    flow.wait(lambda: flow.status.master not in (None, leader), "another master")


def a_registry_is_started_again(cluster: Cluster, flow: Flow, server: EmbeddedZooKeeper) -> None:
    server.stop()
    server.start()
    cluster.append("in/0", 50)
    wait_for_windows(flow, 39, "in/0")
    flow.wait_for_workers(1)
    flow.wait_for_state("running")


@pytest.mark.full
def test_two_workers_share_the_keys_and_are_killed_stalled_and_scaled_away(
    cluster: Cluster, line: CommandLine, tmp_path: Path
) -> None:
    """A record's key is its log's name, and these names belong to these logs."""
    (tmp_path / "counts.py").write_text(COUNTS)
    for number in range(2):
        cluster.append(f"src/{number}", 95)
    source = {**COUNTING["sources"]["src"], "logs": "src/*"}
    flow = start(
        cluster,
        name="sharing",
        sources={"src": {**source, "streams": 2, "partition_by": ["log"]}},
        sinks={"out": {"kind": "log", "log": "shared", "format": "json"}},
        transformation="counts:transform",
        package=str(tmp_path),
        round={"records_max": 30},
        state={},
        tasks=2,
        workers=2,
        session_timeout_s=10,
    ).up()
    wait_for_windows(flow, 9, "src/0", "src/1")
    assert sorted(len(flow.view.assignments(name, "executor-1")) for name in flow.ready_workers()) == [1, 1]
    os.kill(flow.view.worker(flow.ready_workers()[0]).pid, signal.SIGKILL)
    for number in range(2):
        cluster.append(f"src/{number}", 100)
    wait_for_windows(flow, 19, "src/0", "src/1")
    for number in range(2):
        chosen = ("--operator", "aggregate", "--key", f"log=src/{number}", "--key", f"window.start={LAST_START}")
        kept = {"task": f"task-{number}", "key": {"window": LAST, "log": f"src/{number}"}, "value": {"count": 5}}
        flow.wait(lambda chosen=chosen, kept=kept: state(line, *chosen, of="sharing") == [kept], f"task {number}")
    refused = line("config", "set", "sharing", "tasks=1")
    assert refused.code == 2
    assert "tasks stays 2: what is kept of a key cannot move" in refused.err
    a_worker_stalls_longer_than_its_session(cluster, flow, "src/0", "src/1")
    wait_for_windows(flow, 29, "src/0", "src/1")
    one_worker_has_the_tasks_of_both(cluster, flow)
    in_three_partitions_from_now_on(cluster, line, flow)
    assert line("pause", "sharing").code == 0
    flow.wait_for_state("paused")
    rewound = line("rewind", "sharing", "--to", "earliest", "--yes")
    assert rewound.code == 0, rewound.err
    assert not list((cluster.home / "state").glob("sharing/task-*/*")), "what both have kept is forgotten"


def a_worker_stalls_longer_than_its_session(cluster: Cluster, flow: Flow, *logs: str) -> None:
    """Its JVM does not, and has a batch run for it, which waits for its commit. It goes on once its session is gone,
    and not later: the master would kill it, and nobody would see what it does then. A worker for each log."""
    flow.wait_for_workers(len(logs))
    victim = flow.ready_workers()[0]
    pid = flow.view.worker(victim).pid
    [stalled] = [one for one in flow.containers() if one.name == victim]
    for log in logs:
        cluster.append(log, 50)
    os.kill(pid, signal.SIGSTOP)
    flow.wait(lambda: not flow.view.lives(victim), "the stalled worker's session to end")
    os.kill(pid, signal.SIGCONT)
    flow.wait(lambda: cluster.launcher.poll(stalled) is not None, "the stalled worker to end")
    how = cluster.launcher.poll(stalled)
    assert how is not None
    assert (how.kind, how.code) == ("exited", EXIT_SESSION_LOST), "it was not killed"
    for log in logs:
        cluster.append(log, 50)


def one_worker_has_the_tasks_of_both(cluster: Cluster, flow: Flow) -> None:
    flow.wait_for_workers(2)
    flow.edit(workers=1)
    flow.wait(lambda: len(flow.ready_workers()) == 1, "one worker")
    for number in range(2):
        cluster.append(f"src/{number}", 100)
    wait_for_windows(flow, 39, "src/0", "src/1")


def in_three_partitions_from_now_on(cluster: Cluster, line: CommandLine, flow: Flow) -> None:
    """It is paused for that, and counts on."""
    refused = line("config", "set", "sharing", "state.partitions=3")
    assert refused.code == 2
    assert "state.partitions cannot be edited while tasks run: `scribengin pause sharing`" in refused.err
    for words in (("pause", "sharing"), ("config", "set", "sharing", "state.partitions=3"), ("resume", "sharing")):
        ended = line(*words)
        assert ended.code == 0, ended.err
    for number in range(2):
        cluster.append(f"src/{number}", 100)
    wait_for_windows(flow, 49, "src/0", "src/1")
    flow.wait(lambda: partitions_of(line) == {"task-0": 3, "task-1": 3}, "the worker that was there to be replaced")


def partitions_of(line: CommandLine) -> dict[str, int]:
    listed = line("state", "sharing", "--json")
    assert listed.code == 0, listed.err
    return {one["task"]: one["partitions"] for one in json.loads(listed.out)}


def state(line: CommandLine, *options: str, of: str = "counting") -> list[Any]:
    """What `scribengin state` prints."""
    return [json.loads(one) for one in line.ok("state", of, *options, "--json").out.splitlines()]
