"""A dataflow that runs, watched from outside: its metrics, its health, and how it looks when it stalls."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scribengin.base.diagnostics import FORMAT_VARIABLE
from scribengin.monitoring.stalled import SILENT_S
from scribengin.testing.standstill import standing_still
from scribengin_registry.embedded import EmbeddedZooKeeper
from scribengin_tools.web.server import WebConfig, WebServer
from tests.integration.cli_runner import CommandLine
from tests.integration.cluster import Cluster, Flow, running_cluster, start
from tests.integration.web_client import Client

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600), pytest.mark.usefixtures("verdicts")]

CONFIG = {
    "name": "watched",
    "sources": {"src": {"kind": "log", "logs": "in/*"}},
    "sinks": {"out": {"kind": "log", "log": "out"}},
    "sql": "SELECT payload FROM src",
    "metrics_port": 0,
    "stalled_after_s": 3,
    "session_timeout_s": 120,
}


@pytest.fixture
def cluster(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> Iterator[Cluster]:
    with running_cluster(zookeeper.hosts, tmp_path) as cluster:
        cluster.append("in/0", 1000)
        yield cluster


@pytest.fixture
def line(cluster: Cluster, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.setenv("SCRIBENGIN_REGISTRY", cluster.registry.hosts)
    return CommandLine(cluster.registry.hosts, capfd)


def series(url: str) -> dict[str, float]:
    """What Prometheus scrapes: values by name and labels."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=120) as answer:
        lines = answer.read().decode().splitlines()
    return {key: float(value) for key, _, value in (x.rpartition(" ") for x in lines if not x.startswith("#"))}


def health(url: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=120) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def shown(line: CommandLine) -> str:
    """The state that `list` shows."""
    (found,) = line.ok("list", "--json").json
    return str(found["state"])


def test_a_dataflow_is_watched_while_it_runs_while_it_stalls_and_when_it_runs_again(
    cluster: Cluster, line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FORMAT_VARIABLE, "json")  # its processes inherit it
    flow = start(cluster, **CONFIG)
    flow.wait_until_delivered("in/0")
    (worker,) = (flow.view.worker(name) for name in flow.ready_workers())
    flow.wait(lambda: flow.status.metrics and flow.status.tasks, "the master to say where its metrics are")
    master = str(flow.status.metrics)

    the_worker_shows_what_it_did(flow, str(worker.metrics))
    the_master_shows_what_there_is(flow, master)

    the_monitor_shows_it_in_one_look(line)
    the_web_page_shows_it_and_edits_it(flow)

    with standing_still(worker.pid):
        cluster.append("in/0", 1000)
        flow.wait(lambda: shown(line) == "stalled", f"the silence to be noticed, after {SILENT_S} s")
        assert "task-0 (nothing committed for" in line.ok("status", "watched").out
        code, words = health(master)
        assert (code, words["status"], words["stalled"][0]["task"]) == (503, "stalled", "task-0")
        with WebServer(cluster.registry, WebConfig(port=0)) as page, Client(page.url).login(page).events() as events:
            assert next(told["flows"] for told in events if told["flows"])[0]["state"] == "stalled"
    flow.wait_until_delivered("in/0")
    flow.wait(lambda: shown(line) == "running" and health(master)[0] == 200, "it to be running again")
    the_processes_have_said_what_happened(flow)


def the_worker_shows_what_it_did(flow: Flow, url: str) -> None:
    task = '{dataflow="watched",task="task-0"}'
    flow.wait(lambda: series(url)[f"scribengin_records_in_total{task}"] == 1000, "all records to be counted")
    found = series(url)
    assert found[f"scribengin_records_out_total{task}"] == 1000
    assert found[f"scribengin_task_failures_total{task}"] == 0
    assert found[f"scribengin_last_commit_timestamp_seconds{task}"] > 1.7e9
    assert found['scribengin_lag_records{dataflow="watched",source="src",stream="in/0",task="task-0"}'] == 0
    rounds = found[f"scribengin_rounds_total{task}"]
    for phase in ("plan", "run", "prepare", "commit", "complete"):
        assert found[f'scribengin_round_seconds_count{{dataflow="watched",phase="{phase}"}}'] == rounds
    code, words = health(url)
    assert (code, words["status"], words["stalled"]) == (200, "ok", [])


def the_monitor_shows_it_in_one_look(line: CommandLine) -> None:
    (found,) = line.ok("monitor", "watched", "--once", "--json").json
    assert (found["state"], found["records_in"], found["lag_records"], found["failures"]) == ("running", 1000, 0, 0)
    assert found["in_per_s"] > 0
    (source,) = found["sources"]
    assert source.pop("lag_age_s") < 10
    assert found["sources"] == [
        {
            "source": "src",
            "in_per_s": found["in_per_s"],
            "lag_records": 0,
            "lag_about": False,
            "streams": [{"source": "src", "stream": "in/0", "records": 0, "paused": False}],
        }
    ]
    assert found["sinks"] == [{"sink": "out", "out_per_s": found["out_per_s"]}]
    assert found["round_ms"]["run"] > 0
    assert [task["worker"] for task in found["tasks"]] == ["worker-1"]
    shown = line.ok("monitor", "watched", "--once").out
    assert "1/1" in shown
    assert "lag     src 0" in shown


def the_web_page_shows_it_and_edits_it(flow: Flow) -> None:
    with WebServer(flow.cluster.registry, WebConfig(port=0, write=True)) as page:
        client = Client(page.url).login(page, "ada")
        with client.events() as events:
            (found,) = next(told["flows"] for told in events if told["flows"])
        assert (found["state"], found["records_in"], found["lag"], found["ready"]) == ("running", 1000, 0, 1)
        assert found["round"]["run"] > 0
        assert client.get("/api/flows/watched/tasks").json["tasks"][0]["worker"] == "worker-1"
        config = client.get("/api/flows/watched/config").json
        text = config["text"].replace("stalled_after_s: 3.0", "stalled_after_s: 4.0")
        saved = client.post("/api/flows/watched/config", {"text": text, "version": config["version"]}).json
        assert saved["changes"] == ["stalled_after_s: 3.0 -> 4.0"]
        verdict = client.get(f"/api/flows/watched/verdict/{saved['version']}").json
        assert verdict["seen"] is True, "the master has accepted it"
        newest = client.get("/api/flows/watched/history").json["edits"][0]
        assert (newest["author"], newest["outcome"]) == ("web:ada", "accepted")


def the_master_shows_what_there_is(flow: Flow, url: str) -> None:
    flow.wait(lambda: series(url).get('scribengin_tasks{dataflow="watched",state="idle"}') == 1, "the task to be idle")
    found = series(url)
    assert found['scribengin_leader{dataflow="watched"}'] == 1
    assert found['scribengin_workers{dataflow="watched"}'] == 1
    assert health(url)[0] == 200


def the_processes_have_said_what_happened(flow: Flow) -> None:
    taken_over = {"dataflow": "watched", "worker": "worker-1", "task": "task-0", "round": 1}
    assert any(taken_over.items() <= found.items() for found in said(flow, "task_taken_over")), flow.words()
    (registered,) = said(flow, "worker_registered")
    assert (registered["dataflow"], registered["message"]) == ("watched", "worker_registered: worker-1")
    assert str(registered["master"]).startswith("master-")


def said(flow: Flow, event: str) -> list[dict[str, Any]]:
    """What the dataflow's processes have said of that."""
    launcher = flow.cluster.launcher
    outputs = [launcher.logs(container).stdout for container in launcher.all_containers(flow.config.name)]
    lines = [line for output in outputs for line in output.read_text().splitlines() if line.startswith("{")]
    return [found for found in map(json.loads, lines) if found["event"] == event]
