"""`scribengin web` without a browser: who is let in, what is told, what it refuses, what it changes in the registry."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.dataflow.registry.edit_log import edits, write_edit
from scribengin.dataflow.registry.view import DataflowView
from scribengin.launcher.contract import ContainerRequest
from scribengin.launcher.local.launcher import LocalLauncher
from scribengin.operations.chain.registry import path_of
from scribengin.operations.editing import as_yaml
from scribengin.operations.lifecycle import kill_dataflow, masters
from scribengin.testing.memory.registry import MemoryRegistry
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry
from scribengin_tools.web import connections
from scribengin_tools.web.actions import WebActions
from scribengin_tools.web.app import WAITING_MAX
from scribengin_tools.web.connections import CONNECTIONS_MAX
from scribengin_tools.web.server import WebConfig, WebServer
from tests.integration import watched
from tests.integration.tools.web_page import serving
from tests.integration.web_client import Client

PATIENCE_S = 60.0


@pytest.fixture
def page(registry: Registry) -> Iterator[WebServer]:
    """Read-only, of three dataflows."""
    clock = watched.StandingWallClock()
    watched.put_three(registry, clock.now_ms())
    with WebServer(registry, WebConfig(port=0), clock) as server:
        wait_until(lambda: server.watcher.snapshot.flows, PATIENCE_S, "the first look")
        yield server


@pytest.fixture
def editor(registry: Registry) -> Iterator[WebServer]:
    """The same with --write."""
    clock = watched.StandingWallClock()
    watched.put_three(registry, clock.now_ms())
    with WebServer(registry, WebConfig(port=0, write=True), clock) as server:
        wait_until(lambda: server.watcher.snapshot.flows, PATIENCE_S, "the first look")
        yield server


READING = (
    "/api/session", "/api/events", "/api/flows/heat_alarm", "/api/flows/heat_alarm/tasks",
    "/api/flows/heat_alarm/config", "/api/flows/heat_alarm/history", "/api/flows/heat_alarm/versions/0",
    "/api/flows/heat_alarm/verdict/0", "/api/flows/heat_alarm/logs",
)  # fmt: skip
CHANGING = {
    "config": {"text": "{}", "version": 0},
    "scale": {"workers": 3},
    "pause": {},
    "resume": {},
    "stop": {},
    "start": {},
    "rollback": {"version": 0},
    "check": {"text": "{}", "version": 0},
}


def test_without_the_token_nothing_is_told(page: WebServer) -> None:
    nobody = Client(page.url)
    for path in READING:
        answer = nobody.get(path)
        assert (answer.status, answer.json) == (401, {"error": "log in first"}), path
    for action, body in CHANGING.items():
        assert nobody.post(f"/api/flows/heat_alarm/{action}", body).status == 401
    assert (nobody.get("/").status, nobody.get("/").headers["location"]) == (303, "/login")
    assert nobody.get("/login").status == 200


@pytest.mark.parametrize("token", ["", "wrong", "ä" * 43, "x" * 500_000])
def test_a_wrong_token_is_refused(page: WebServer, token: str) -> None:
    answer = Client(page.url).post("/login", {"token": token})
    assert (answer.status, answer.headers["set-cookie"]) == (401, None)
    assert "that is not the token" in answer.json["error"]


def test_the_token_gets_a_cookie_that_scripts_and_other_sites_cannot_use(page: WebServer) -> None:
    answer = Client(page.url).post("/login", {"token": page.token, "user": "ada"})
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert page.token not in cookie
    assert f"scribengin-web-{page.port}=" in cookie


def test_who_logs_out_is_out_and_their_stream_ends(page: WebServer) -> None:
    client = Client(page.url).login(page)
    with client.events() as events:
        next(events)
        assert client.post("/logout").status == 200
        list(events)  # ends
    assert client.get("/api/session").status == 401


def test_a_request_by_another_name_is_refused(page: WebServer) -> None:
    client = Client(page.url).login(page)
    assert client.get("/api/session", Host=f"evil.example:{page.port}").status == 421
    assert client.get("/login", Host="evil.example").status == 421
    assert client.get("/api/session", Host="localhost:9999").status == 200, "through a tunnel the port is another one"


def test_a_change_needs_the_secret_of_the_page_and_its_origin(editor: WebServer, registry: Registry) -> None:
    client = Client(editor.url).login(editor)
    pause = "/api/flows/heat_alarm/pause"
    assert client.post(pause, X_Scribengin_Csrf="").status == 403
    assert client.post(pause, X_Scribengin_Csrf="other").status == 403
    assert client.post(pause, Origin="http://evil.example").status == 403
    assert client.post(pause, Origin="null").status == 403
    assert client.post(pause, Origin="http://[").status == 403
    assert client.post("/api/flows/heat_alarm/scale", {"workers": 9}, Content_Type="text/plain").status == 422
    assert client.post("/login", {"token": editor.token}, Origin="http://evil.example").status == 403
    assert DataflowView(registry, "heat_alarm").config().version == 0
    assert client.post(pause, Origin=editor.url).status == 200
    assert DataflowView(registry, "heat_alarm").config().version == 1


def test_read_only_is_the_default_and_changes_nothing(page: WebServer, registry: Registry) -> None:
    client = Client(page.url).login(page)
    assert client.get("/api/session").json["write"] is False
    for action, body in CHANGING.items():
        answer = client.post(f"/api/flows/heat_alarm/{action}", body)
        assert answer.status == 403
        assert "read-only: `scribengin web --write`" in answer.json["error"]
    assert DataflowView(registry, "heat_alarm").config().version == 0


def test_browsers_may_load_nothing_from_elsewhere(page: WebServer) -> None:
    for path in ("/login", "/static/app.js", "/nowhere"):
        headers = Client(page.url).get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in headers["content-security-policy"]
        assert (headers["x-frame-options"], headers["x-content-type-options"]) == ("DENY", "nosniff")
    assert Client(page.url).get("/static/../app.py").status == 404


def test_the_stream_begins_with_everything_and_goes_on_with_what_changes(page: WebServer, registry: Registry) -> None:
    with Client(page.url).login(page).events() as events:
        first = next(events)
        assert first["names"] == ["flight_delays", "flight_names", "heat_alarm"]
        flows = {flow["name"]: flow for flow in first["flows"]}
        assert {name: flow["state"] for name, flow in flows.items()} == {
            "flight_delays": "running",
            "flight_names": "stalled",
            "heat_alarm": "paused",
        }
        assert flows["flight_delays"]["in_per_s"] == 16_000.0
        assert flows["flight_names"]["sources"] == {"flights": [4_000.0, 84_300, False]}
        assert {edge["direction"] for edge in first["graph"]["edges"]} == {"reads", "writes"}
        assert first["sparks"].keys() == set(first["names"])
        view = DataflowView(registry, "heat_alarm")
        view.set_status(view.status().model_copy(update={"state": "running"}))
        changed = next(event for event in events if event["flows"])
        while changed["flows"][0]["name"] != "heat_alarm":  # what the others do by time alone may come first
            changed = next(event for event in events if event["flows"])
        assert changed["flows"][0]["state"] == "running"
        assert "graph" not in changed
        watched.put(registry, "a_new_one", [watched.task(0)], reads="late-heat_alarm")
        new = next(event for event in events if "names" in event)
        assert new["names"] == ["a_new_one", "flight_delays", "flight_names", "heat_alarm"]
        joined = [(e["from"], e["to"]) for e in new["graph"]["edges"] if "late-heat_alarm" in e["from"] + e["to"]]
        assert {start for start, _ in joined} & {end for _, end in joined}, "both hang on one place"


def test_time_lines_outlive_a_reload(page: WebServer) -> None:
    client = Client(page.url).login(page)
    with client.events() as events:
        seen = 0
        while seen < 3:
            seen += bool(next(events).get("rows"))
    rows = client.get("/api/flows/flight_delays").json["rows"]
    assert len(rows) >= 3
    assert [at for at, *_ in rows] == sorted({at for at, *_ in rows})
    assert rows[0][1:3] == [16_000.0, 15_680.0]


def test_who_comes_is_shown_a_new_look_and_who_leaves_is_forgotten(page: WebServer) -> None:
    client = Client(page.url).login(page)
    assert page.watcher.watched == 0
    with client.events() as events:
        wait_until(lambda: page.watcher.watched == 1, PATIENCE_S, "a watcher")
        before = page.watcher.looks
        while page.watcher.looks < before + 3:
            next(events)
    wait_until(lambda: page.watcher.watched == 0, PATIENCE_S, "nobody to be left")


def test_one_look_serves_all_browsers(page: WebServer) -> None:
    client = Client(page.url).login(page)
    with client.events() as one, client.events() as two, client.events() as three:
        wait_until(lambda: page.watcher.watched == 3, PATIENCE_S, "three watchers")
        latest = page.watcher.snapshot.seq + 3
        seqs = [_seqs_up_to(stream, latest) for stream in (one, two, three)]
        assert seqs[0] & seqs[1] & seqs[2], "they are sent the same looks"
        assert max(set.union(*seqs)) <= page.watcher.looks


def _seqs_up_to(events: Iterator[Any], latest: int) -> set[int]:
    found: set[int] = set()
    for event in events:
        found.add(event["seq"])
        if event["seq"] >= latest:
            break
    return found


def test_tasks_come_in_pages_in_any_order(registry: Registry) -> None:
    now_ms = SYSTEM_CLOCK.now_ms()
    watched.put(registry, "many", [watched.task(n, lag=n, now_ms=now_ms) for n in range(2_000)], now_ms=now_ms)
    with WebServer(registry, WebConfig(port=0)) as server:
        wait_until(lambda: server.watcher.snapshot.flows, PATIENCE_S, "the first look")
        client = Client(server.url).login(server)
        page = client.get("/api/flows/many/tasks?order=lag_records&descending=1&limit=50").json
        assert [(task["task"], task["lag_records"]) for task in page["tasks"][:2]] == [
            ("task-1999", 1999),
            ("task-1998", 1998),
        ]
        assert (page["total"], page["found"], len(page["tasks"])) == (2_000, 2_000, 50)
        last = client.get("/api/flows/many/tasks?offset=99999&limit=150").json
        assert (last["offset"], last["tasks"][-1]["task"]) == (1_950, "task-1999")
        named = client.get("/api/flows/many/tasks?words=task-77%20worker-2").json
        assert [task["task"] for task in named["tasks"]] == ["task-77", *(f"task-77{n}" for n in (1, 3, 5, 7, 9))]
        assert client.get("/api/flows/many/tasks?order=secret").status == 422
        assert client.get("/api/flows/nobody/tasks").status == 404


def test_an_edit_is_tried_out_before_it_is_written(editor: WebServer, registry: Registry) -> None:
    client = Client(editor.url).login(editor)
    config = client.get("/api/flows/flight_delays/config").json
    assert (config["version"], config["in_force"], config["error"]) == (0, 0, None)
    check = "/api/flows/flight_delays/check"
    good = client.post(check, {"text": config["text"].replace("workers: 2", "workers: 5"), "version": 0}).json
    assert (good["error"], good["changes"], good["actions"]) == (None, ["workers: 2 -> 5"], ["3 workers more"])
    assert {"-workers: 2", "+workers: 5"} <= set(good["difference"])
    for wrong, words in {
        config["text"] + "wrokers: 3\n": "unknown key 'wrokers'",
        "a: [": "this is no YAML",
        config["text"].replace("log: late-flight_delays", "log: other"): "sinks.late.log cannot be edited",
    }.items():
        assert words in client.post(check, {"text": wrong, "version": 0}).json["error"]
    assert DataflowView(registry, "flight_delays").config().version == 0


def test_a_secret_is_neither_shown_nor_lost(editor: WebServer, registry: Registry) -> None:
    client, view = Client(editor.url).login(editor), DataflowView(registry, "flight_delays")
    found = view.config()
    spark = found.value.spark.model_copy(update={"conf": {"spark.x.password": "hunter2", "spark.y": "${env:USER}"}})
    write_edit(view, found.value.model_copy(update={"spark": spark}), 0, author="ada", at_ms=1)
    flow = "/api/flows/flight_delays"
    config = client.get(f"{flow}/config").json
    assert "spark.x.password: '******'" in config["text"]
    assert "spark.y: ${env:USER}" in config["text"], "a reference is no secret"
    edited = {"text": config["text"].replace("workers: 2", "workers: 5"), "version": 1}
    checked = client.post(f"{flow}/check", edited)
    assert {"-workers: 2", "+workers: 5"} <= set(checked.json["difference"]), checked.text
    saved = client.post(f"{flow}/config", edited)
    assert saved.json["changes"][-1] == "workers: 2 -> 5"
    assert view.config().value.spark.conf["spark.x.password"] == "hunter2"
    moved = {"text": config["text"].replace("spark.x.password", "spark.x.passwd"), "version": 2}
    assert "is not shown" in client.post(f"{flow}/check", moved).json["error"]
    told = [client.get(f"{flow}/{what}").text for what in ("config", "history", "versions/1", "versions/2")]
    told += [answer.text for answer in (checked, saved)]
    told += [client.post(f"{flow}/config", {"text": config["text"], "version": 0}).text]
    assert not [text for text in told if "hunter2" in text]
    assert not [edit.changes for edit in edits(view) if "hunter2" in str(edit.changes)]


def test_an_edit_is_written_with_its_author(editor: WebServer, registry: Registry) -> None:
    client, view = Client(editor.url).login(editor, "ada"), DataflowView(registry, "flight_delays")
    text = as_yaml(watched.config("flight_delays", writes="late-flight_delays", workers=5))
    saved = client.post("/api/flows/flight_delays/config", {"text": text, "version": 0}).json
    assert (saved["version"], saved["changes"], saved["written"]) == (1, ["workers: 2 -> 5"], True)
    assert view.config().value.workers == 5
    assert edits(view)[-1].author == "web:ada"
    history = client.get("/api/flows/flight_delays/history").json
    newest = history["edits"][0]
    assert (newest["version"], newest["author"], newest["changes"]) == (1, "web:ada", ["workers: 2 -> 5"])


def test_the_second_of_two_is_told_what_the_first_did(editor: WebServer, registry: Registry) -> None:
    client, view = Client(editor.url).login(editor), DataflowView(registry, "flight_delays")
    read = client.get("/api/flows/flight_delays/config").json
    found = view.config()
    theirs = found.value.model_copy(update={"tasks": 3})
    write_edit(view, theirs, found.version, author="bob@desk", at_ms=1)
    mine = {"text": read["text"].replace("workers: 2", "workers: 4"), "version": read["version"]}
    assert "by bob@desk: tasks: default -> 3" in client.post("/api/flows/flight_delays/check", mine).json["meanwhile"]
    refused = client.post("/api/flows/flight_delays/config", mine)
    assert refused.status == 409
    assert "by bob@desk: tasks: default -> 3" in refused.json["error"]
    assert (view.config().value.tasks, view.config().value.workers) == (3, 2)


def test_pause_resume_scale_and_rollback(editor: WebServer, registry: Registry) -> None:
    client, view = Client(editor.url).login(editor, "ada"), DataflowView(registry, "flight_delays")
    flow = "/api/flows/flight_delays"
    assert client.post(f"{flow}/pause").json == {"changed": True}
    assert view.config().value.desired_state == "paused"
    assert client.post(f"{flow}/resume").json == {"changed": True}
    assert client.post(f"{flow}/scale", {"workers": 3, "tasks": 2}).json["version"] == 3
    assert (view.config().value.workers, view.config().value.tasks) == (3, 2)
    assert client.post(f"{flow}/rollback", {"version": 0}).json["changes"] == ["tasks: 2 -> default", "workers: 3 -> 2"]
    assert view.config().value.workers == 2
    assert {edit.author for edit in edits(view)[1:]} == {"web:ada"}
    assert "workers: 3" in client.get(f"{flow}/versions/3").json["text"]
    for body in ({}, {"workers": -1}, {"workers": "3"}, {"tasks": 0}, {"workers": True}):
        assert client.post(f"{flow}/scale", body).status == 422, body
    assert client.post(f"{flow}/rollback", {"version": 99}).status == 422
    assert client.post("/api/flows/nobody/pause").status == 404
    assert client.post(f"{flow}/scale", "no object").status == 422


@pytest.mark.usefixtures("no_standbys", "registry_hosts")  # for the master, which is a process
def test_stop_and_start(editor: WebServer, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRIBENGIN_HOME", str(tmp_path))
    client, view = Client(editor.url).login(editor, "ada"), DataflowView(registry, "flight_delays")
    flow = "/api/flows/flight_delays"
    running = client.post(f"{flow}/start")
    assert running.status == 409
    assert "there is nothing to start" in running.json["error"]
    assert client.post(f"{flow}/stop").json == {"changed": True}
    assert view.config().value.desired_state == "stopped"
    for candidate in registry.children(view.paths.master):
        registry.delete(f"{view.paths.master}/{candidate}")
    view.set_status(view.status().model_copy(update={"state": "stopped"}))
    try:
        assert client.post(f"{flow}/start").json == {"changed": True}
        assert view.config_to_edit().value.desired_state == "running"
        assert {edit.author for edit in edits(view)[1:]} == {"web:ada"}
        wait_until(lambda: masters(view), PATIENCE_S, "a master")
    finally:
        kill_dataflow(registry, "flight_delays", tmp_path)


def test_what_processes_have_said_is_shown_without_secrets(
    page: WebServer, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRIBENGIN_HOME", str(tmp_path))
    view = DataflowView(registry, "heat_alarm")
    view.set_status(view.status().model_copy(update={"submitted_ms": 1}))
    client = Client(page.url).login(page)
    assert client.get("/api/flows/heat_alarm/logs").json == {"outputs": []}
    says = "print('Gr\\u00fc\\u00dfe <b>', 'password=hunter2', '\\x1b[2J')"
    with LocalLauncher(tmp_path) as launcher:
        request = ContainerRequest(registry.hosts, "heat_alarm", "worker-1", [sys.executable, "-c", says], 256)
        worker = launcher.launch(request)
        wait_until(lambda: launcher.poll(worker) is not None, PATIENCE_S, "its end")
        (output,) = client.get("/api/flows/heat_alarm/logs").json["outputs"]
        assert output["heading"].startswith("worker-1, launched ")
        assert "Grüße <b> password=" in output["text"]
        assert "hunter2" not in output["text"]
        assert "\x1b" not in output["text"]
    assert client.get("/api/flows/nobody/logs").status == 404


def test_a_small_text_that_stands_for_a_large_one_is_refused(editor: WebServer) -> None:
    client = Client(editor.url).login(editor)
    laughing = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9))
    assert len(laughing) < 500
    for text, words in {
        laughing: "is an alias",
        "a: &a 1\nb: *a": "is an alias",
        "name: " + "x" * 256 * 1024: "more than 262,144 bytes",
        "[" * 100_000: "nested too deeply",
        "a: " + "1" * 5_000: "is no YAML",
        "a: 2001-99-99": "is no YAML",
    }.items():
        checked = client.post("/api/flows/flight_delays/check", {"text": text, "version": 0})
        assert (checked.status, words in checked.json["error"]) == (200, True), checked.text[:500]
        assert client.post("/api/flows/flight_delays/config", {"text": text, "version": 0}).status == 422
    assert client.post("/api/flows/flight_delays/check", {"text": "[" * 200_000}).status == 422


def test_half_a_request_takes_nobodys_place(page: WebServer) -> None:
    client = Client(page.url).login(page)
    with client.events() as events, ExitStack() as opened:
        beginnings = (b"", b"GET /login HTTP/1.1\r\nHost:", b"POST /login HTTP/1.1\r\nHost: localhost\r\n"
                      b"Content-Type: application/json\r\nContent-Length: 900\r\n\r\n{")  # fmt: skip
        idle = []
        for n in range(CONNECTIONS_MAX + 40):
            idle.append(opened.enter_context(socket.create_connection(("127.0.0.1", page.port), timeout=PATIENCE_S)))
            idle[-1].sendall(beginnings[n % 3])
        assert ended(idle[0]), "who waits longest goes first"
        assert client.get("/api/session").status == 200
        assert Client(page.url).login(page).get("/").status == 200
        assert next(events), "who is answered stays"


def test_a_request_has_a_deadline(page: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", 0.2)
    for beginning in (b"", b"GET /login HTTP/1.1\r\nHost:"):
        with socket.create_connection(("127.0.0.1", page.port), timeout=PATIENCE_S) as idle:
            idle.sendall(beginning)
            assert ended(idle)
    with Client(page.url).login(page).events() as events:
        seen = [next(events) for _ in range(3)]
        assert len(seen) == 3, "a stream has none"


def ended(connection: socket.socket) -> bool:
    """Whether the server closes it, without a word or with one."""
    with suppress(ConnectionError):
        while connection.recv(4096):
            pass
    return True


def test_a_dataflow_without_a_master_is_not_paused(editor: WebServer, registry: Registry) -> None:
    view = DataflowView(registry, "flight_delays")
    for candidate in registry.children(view.paths.master):
        registry.delete(f"{view.paths.master}/{candidate}")
    answer = Client(editor.url).login(editor).post("/api/flows/flight_delays/pause")
    assert answer.status == 409
    assert "has no master any more" in answer.json["error"]
    assert view.config().version == 0


def test_a_dataflow_whose_nodes_are_damaged_hides_no_other(page: WebServer, registry: Registry) -> None:
    view = DataflowView(registry, "heat_alarm")
    with Client(page.url).login(page).events() as events:
        registry.set(view.paths.status, b"{")
        told = next(flow for event in events for flow in event["flows"] if flow["state"] == "unreadable")
        assert told["name"] == "heat_alarm"
        assert "does not hold a DataflowStatus" in told["error"]
        assert page.watcher.snapshot.trouble is None
        assert "flight_delays" in page.watcher.snapshot.look.overviews


def test_a_chain_whose_node_is_damaged_hides_nothing(page: WebServer, registry: Registry) -> None:
    with Client(page.url).login(page).events() as events:
        registry.create(path_of("broken"), b"{", parents=True)
        told = next(flow for event in events for flow in event["flows"] if flow["state"] == "unreadable")
        assert told["name"] == "chain broken"
        assert "does not hold a ChainDescriptor" in told["error"]
        assert page.watcher.snapshot.trouble is None
        assert "flight_delays" in page.watcher.snapshot.look.overviews


@pytest.mark.parametrize(("action", "line"), [("verdict", "GET"), ("start", "POST")])
def test_whoever_waits_for_a_master_holds_up_nobody_else(
    memory_registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch, action: str, line: str
) -> None:
    watched.put_three(memory_registry, SYSTEM_CLOCK.now_ms())
    path = "/api/flows/heat_alarm"
    waiting: list[int] = []
    over = threading.Event()

    def slow(*_arguments: object) -> dict[str, Any]:
        waiting.append(1)
        over.wait(PATIENCE_S)
        return {}

    monkeypatch.setattr(WebActions, action, slow)
    with serving(memory_registry, write=True) as server, ThreadPoolExecutor(60) as asking:
        client = Client(server.url).login(server)
        ask = partial(client.get, f"{path}/verdict/0") if line == "GET" else partial(client.post, f"{path}/start")
        asked = [asking.submit(ask) for _ in range(60)]
        try:
            wait_until(lambda: len(waiting) >= WAITING_MAX, PATIENCE_S, "them to wait")
            assert client.get(f"{path}/config").status == 200
            assert client.get(f"{path}/history").status == 200
            assert len(waiting) == WAITING_MAX
        finally:
            over.set()
        assert {one.result().status for one in asked} == {200}
