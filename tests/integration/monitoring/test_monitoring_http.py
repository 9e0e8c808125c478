"""Metrics and health over HTTP, as masters and workers serve them."""

from __future__ import annotations

import json
import socket
import threading
import urllib.error
import urllib.request
from contextlib import ExitStack
from typing import Any

import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry.descriptors import StreamLag, TaskReport, WorkerReport
from scribengin.dataflow.registry.view import DataflowView
from scribengin.errors import ConfigInvalid
from scribengin.master import monitoring as of_masters
from scribengin.monitoring import server as serving
from scribengin.monitoring.server import CONNECTIONS_MAX, Health, MonitoringServer
from scribengin.testing.waiting import wait_until
from scribengin.worker import monitoring as of_workers
from scribengin_registry.contract import Registry
from scribengin_registry.opening import connect

HOST = "127.0.0.1"


def config(port: int | None = 0) -> DataflowConfig:
    return DataflowConfig.parse(
        {
            "name": "served",
            "sources": {"in": {"kind": "log", "logs": "in/*"}},
            "sinks": {"out": {"kind": "log", "log": "out"}},
            "sql": "SELECT payload FROM in",
            "metrics_port": port,
        },
        source="the test",
    )


def fetched(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=120) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def health(url: str | None) -> tuple[int, Any]:
    code, text = fetched(f"{url}/health")
    assert text.endswith("\n")
    return code, json.loads(text)


def lines_of(url: str | None, name: str) -> list[str]:
    return [line for line in fetched(f"{url}/metrics")[1].splitlines() if line.startswith(name) and "served" in line]


def report(**fields: Any) -> TaskReport:
    return TaskReport.model_validate({"task": "task-0", "generation": 1, "state": "running", **fields})


def test_without_a_port_nothing_is_served() -> None:
    with of_workers.monitored(config(None), "worker-1", list) as url:
        assert url is None


def test_a_port_that_is_taken_is_no_reason_to_fail_the_next_one_is_as_good() -> None:
    first = MonitoringServer(HOST, 0, lambda: Health(well=True))
    second = MonitoringServer(HOST, first.port, lambda: Health(well=True))
    try:
        assert second.port > first.port
        assert fetched(f"{second.url}/health")[0] == 200
    finally:
        first.close()
        second.close()


def test_it_can_be_bound_to_every_address_and_says_a_name_that_others_can_use() -> None:
    server = MonitoringServer("0.0.0.0", 0, lambda: Health(well=True, words={"status": "ok"}))
    try:
        assert server.url == f"http://{socket.gethostname()}:{server.port}"
        assert fetched(f"http://127.0.0.1:{server.port}/health") == (200, '{"status": "ok"}\n')
    finally:
        server.close()


def test_an_address_that_is_none_of_this_machine_is_refused_in_one_line() -> None:
    with pytest.raises(ConfigInvalid, match=r"metrics_host 192\.0\.2\.1"):
        MonitoringServer("192.0.2.1", 0, lambda: Health(well=True))


@pytest.mark.parametrize("host", ["a..b", "\u00e9..b", "a\0b", "a" * 64 + ".de"], ids=ascii)
def test_an_address_that_can_be_none_is_refused_as_well(host: str) -> None:
    with pytest.raises(ConfigInvalid, match=f"^metrics_host {host}: .*name an address of this machine$"):
        MonitoringServer(host, 0, lambda: Health(well=True))


def test_who_only_connects_takes_no_place_from_who_asks() -> None:
    server = MonitoringServer(HOST, 0, lambda: Health(well=True))
    try:
        with ExitStack() as opened:
            idle = []
            for n in range(3 * CONNECTIONS_MAX):
                idle.append(opened.enter_context(socket.create_connection((HOST, server.port), timeout=120)))
                idle[-1].sendall((b"", b"GET /health HTTP/1.1\r\nHo")[n % 2])
            assert idle[0].recv(100) == b"", "who waits longest goes first"
            assert fetched(f"{server.url}/health")[0] == 200
            wait_until(lambda: threads_answering() <= CONNECTIONS_MAX, 120, "the threads of the others to end")
        wait_until(lambda: threads_answering() == 0, 120, "all of them to end")
        assert fetched(f"{server.url}/health")[0] == 200
    finally:
        server.close()


def test_a_request_has_a_deadline_however_slowly_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "ANSWERED_S", 0.1)
    server = MonitoringServer(HOST, 0, lambda: Health(well=True))
    try:
        with socket.create_connection((HOST, server.port), timeout=120) as idle:
            idle.sendall(b"GET /he")
            assert idle.recv(100) == b""
    finally:
        server.close()


def threads_answering() -> int:
    return sum("process_request_thread" in thread.name for thread in threading.enumerate())


def test_other_paths_are_not_there() -> None:
    with of_workers.monitored(config(), "worker-1", list) as url:
        assert fetched(f"{url}/")[0] == 404


def test_a_worker_shows_its_tasks_and_nothing_of_them_once_it_has_none() -> None:
    tasks = [report(records_in=12, records_out=11, failures=1, last_commit_ms=5_500)]
    with of_workers.monitored(config(), "worker-1", lambda: tasks) as url:
        assert lines_of(url, "scribengin_records_in_total") == [
            'scribengin_records_in_total{dataflow="served",task="task-0"} 12.0'
        ]
        assert lines_of(url, "scribengin_task_failures_total")[0].endswith(" 1.0")
        assert lines_of(url, "scribengin_last_commit_timestamp_seconds")[0].endswith(" 5.5")
        tasks.clear()
        assert lines_of(url, "scribengin_records_in_total") == []


def test_a_task_of_very_many_streams_has_few_series_whose_sum_is_its_lag() -> None:
    streams = tuple(StreamLag(source="in", stream=f"in/{n}", records=100) for n in range(8))
    tasks = [report(lag=streams, lag_records=5000)]
    with of_workers.monitored(config(), "worker-1", lambda: tasks) as url:
        found = lines_of(url, "scribengin_lag_records{")
    assert len(found) == 9
    assert sum(float(line.rpartition(" ")[2]) for line in found) == 5000


def test_a_worker_that_lives_but_makes_no_progress_is_not_well() -> None:
    tasks = [report(behind_s=59.0)]
    with of_workers.monitored(config(), "worker-1", lambda: tasks) as url:
        assert health(url)[0] == 200
        tasks[0] = report(behind_s=61.0, error="the broker is away")
        code, words = health(url)
    assert code == 503
    assert words["stalled"] == [{"task": "task-0", "behind_s": 61.0, "error": "the broker is away"}]
    assert (words["dataflow"], words["worker"]) == ("served", "worker-1")


def submitted(registry: Registry) -> DataflowView:
    view = DataflowView(registry, "served")
    view.submit(config(), ["log:/logs/out"], SYSTEM_CLOCK.now_ms())
    return view


def test_a_master_that_waits_behind_another_is_well_and_shows_only_that(registry: Registry) -> None:
    with of_masters.monitored(submitted(registry), "master-2", lambda: False, SYSTEM_CLOCK) as url:
        assert health(url) == (200, {"status": "standby", "dataflow": "served", "master": "master-2"})
        assert lines_of(url, "scribengin_leader") == ['scribengin_leader{dataflow="served"} 0.0']
        assert lines_of(url, "scribengin_workers") == []


def test_the_master_that_leads_answers_for_the_whole_dataflow(registry: Registry) -> None:
    view = submitted(registry)
    task = report(lag_records=9, last_commit_ms=1)
    waiting = view.status().model_copy(
        update={"state": "running", "tasks": (task,), "tasks_total": 3, "tasks_unassigned": ("task-1",)}
    )
    view.set_status(waiting)
    with of_masters.monitored(view, "master-1", lambda: True, SYSTEM_CLOCK) as url:
        assert health(url)[0] == 200, "it was submitted just now"
        view.set_status(waiting.model_copy(update={"submitted_ms": 1}))
        code, words = health(url)
        assert (code, words["status"], words["stalled"][0]["task"]) == (503, "stalled", "task-0")
        states = {line.partition("state=")[2] for line in lines_of(url, "scribengin_tasks{")}
    assert states == {'"running"} 1.0', '"unassigned"} 1.0', '"untold"} 1.0'}


def test_a_master_that_cannot_ask_the_registry_is_not_well_and_shows_that_it_leads(
    registry: Registry, registry_hosts: str
) -> None:
    submitted(registry)
    own = connect(registry_hosts)
    with of_masters.monitored(DataflowView(own, "served"), "master-1", lambda: True, SYSTEM_CLOCK) as url:
        own.close()
        code, words = health(url)
        assert (code, words["status"]) == (503, "unknown")
        assert lines_of(url, "scribengin_leader") == ['scribengin_leader{dataflow="served"} 1.0']
        assert lines_of(url, "scribengin_workers") == []


def test_a_silent_worker_is_seen_by_the_master(registry: Registry) -> None:
    view = submitted(registry)
    now_ms = SYSTEM_CLOCK.now_ms()
    view.registry.create(view.paths.worker("worker-1"))
    said = WorkerReport(worker="worker-1", written_ms=now_ms - 90_000, tasks=(report(state="idle"),))
    view.registry.create(view.paths.report("worker-1"), said.to_bytes())
    view.set_status(view.status().model_copy(update={"state": "running", "workers": ("worker-1",)}))
    with of_masters.monitored(view, "master-1", lambda: True, SYSTEM_CLOCK) as url:
        code, words = health(url)
    assert (code, words["stalled"][0]["worker"]) == (503, "worker-1")
