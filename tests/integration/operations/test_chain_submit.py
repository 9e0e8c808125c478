"""Chains as they are submitted and operated, on real masters, without workers: `submit`, `status`, `stop`, `delete`,
what a crash half way leaves, and what is refused."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.dataflow.registry.descriptors import FINAL_STATES
from scribengin.dataflow.registry.view import DataflowView, dataflow_names
from scribengin.errors import ChainExists
from scribengin.log import LogNamespace, RetentionHold
from scribengin.operations.chain import lifecycle as chains
from scribengin.operations.chain import submit as submitting
from scribengin.operations.chain.config import ChainConfig
from scribengin.operations.chain.registry import create_chain, descriptor_of, find_chain
from scribengin.operations.chain.submit import begun_before, submit_chain
from scribengin.operations.lifecycle import masters
from scribengin.operations.restart import next_version
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry
from tests.integration import watched
from tests.integration.cli_runner import CommandLine, whole_tree

pytestmark = pytest.mark.usefixtures("home", "no_standbys", "verdicts")
FLOW = {"sql": "SELECT payload FROM src", "workers": 0, "session_timeout_s": 30}


@pytest.fixture
def namespace(registry: Registry, line: CommandLine) -> Iterator[LogNamespace]:
    with LogNamespace.open("/logs", registry=registry) as opened:
        yield opened


def dataflow(logs: str, log: str, **more: Any) -> dict[str, Any]:
    return (
        {"sources": {"src": {"kind": "log", "logs": logs}}, "sinks": {"out": {"kind": "log", "log": log}}} | FLOW | more
    )


CHAIN: dict[str, Any] = {
    "name": "orders",
    "logs": {"in": {"streams": 2}, "mid": {"streams": 2, "config": {"retention_hours": 1}}},
    "dataflows": {"last": dataflow("mid/*", "out"), "first": dataflow("in/*", "mid")},
}


@pytest.fixture
def chain_file(tmp_path: Path, line: CommandLine) -> Iterator[str]:
    path = tmp_path / "package" / "orders.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(CHAIN, sort_keys=False))
    yield str(path)
    line("kill", "orders")


@pytest.fixture
def submitted(chain_file: str, line: CommandLine, registry: Registry) -> str:
    """The chain, all of it with masters."""
    line.ok("submit", chain_file, "--no-check")
    for name in ("orders-first", "orders-last"):
        await_master(DataflowView(registry, name))
    return "orders"


def await_master(view: DataflowView) -> None:
    wait_until(lambda: masters(view) and view.status().master, timeout_s=120, what=f"a master of {view.dataflow}")


def test_a_chain_is_submitted_as_one_thing_writers_first(
    line: CommandLine, chain_file: str, registry: Registry, namespace: LogNamespace
) -> None:
    done = line.ok("submit", chain_file, "--no-check")
    assert done.out == "submitted chain 'orders' (first, last)\n"
    assert done.err.index("starting 'orders-first'") < done.err.index("starting 'orders-last'")
    assert namespace.names() == ["in/0", "in/1", "mid/0", "mid/1", "out/0", "out/1"]
    assert namespace.info("mid/1").log.config.retention_hours == 1
    assert {log: list(namespace.retention_holds(log)) for log in ("in/0", "mid/1")} == {
        "in/0": [RetentionHold(dataflow="orders-first", source="src", pattern="in/*")],
        "mid/1": [RetentionHold(dataflow="orders-last", source="src", pattern="mid/*")],
    }
    told = line.ok("status", "orders", "--json").json
    assert [(one["name"], one["fed_by"]) for one in told["dataflows"]] == [("first", []), ("last", ["first"])]
    shown = line.ok("status", "orders").out
    assert "orders/last" in shown
    listed = line.ok("list", "--json").json
    assert {one["dataflow"]: one["chain"] for one in listed} == {
        "orders-first": "orders/first",
        "orders-last": "orders/last",
    }
    refused = line("submit", chain_file, "--no-check")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "chain 'orders' exists already" in refused.err


KILLED_HALF_WAY = """
import os, signal, sys
from scribengin.operations.chain import submit
from scribengin_tools.cli import main as cli

start = submit._start

def start_and_die(*arguments, **options):
    start(*arguments, **options)
    os.kill(os.getpid(), signal.SIGKILL)

submit._start = start_and_die
sys.exit(cli.run(sys.argv[1:]))
"""
"""The command line, killed as soon as the first dataflow of a chain has started: no signal from outside hits that."""


def test_a_submission_that_was_killed_half_way_is_completed_by_the_same_command(
    line: CommandLine, chain_file: str, registry: Registry
) -> None:
    command = [sys.executable, "-c", KILLED_HALF_WAY, "submit", chain_file, "--no-check"]
    killed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert dataflow_names(registry) == ["orders-first"]
    found = find_chain(registry, "orders")
    assert found is not None
    assert found.state == "submitting"
    paused = line("pause", "orders")
    assert (paused.code, paused.err.count("\n")) == (2, 1)
    before = DataflowView(registry, "orders-first").status().submitted_ms
    other = Path(chain_file).with_name("other.yaml")
    other.write_text(Path(chain_file).read_text().replace("streams: 2", "streams: 3"))
    refused = line("submit", str(other), "--no-check")
    assert (refused.code, refused.err.count("half way with another content")) == (2, 1)
    line.ok("submit", chain_file, "--no-check")
    found = find_chain(registry, "orders")
    assert found is not None
    assert found.state == "submitted"
    assert DataflowView(registry, "orders-first").status().submitted_ms == before
    for name in dataflow_names(registry):
        await_master(DataflowView(registry, name))


def parsed_chain() -> ChainConfig:
    flows = {key: {"name": f"orders-{key}", **flow} for key, flow in CHAIN["dataflows"].items()}
    return ChainConfig.parse({**CHAIN, "dataflows": flows}, source="the test")


def test_what_a_cluster_needs_beside_the_file_makes_no_other_chain_of_it(
    line: CommandLine, registry: Registry, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On YARN, a dataflow gets its Python environment before it starts; the second submission comes from the file."""
    chain = parsed_chain()
    ready = {key: flow.model_copy(update={"settings": {"packed": 1}}) for key, flow in chain.dataflows.items()}
    with monkeypatch.context() as patched:
        patched.setattr(submitting, "complete_chain", die)
        with pytest.raises(SystemExit):
            submit_chain(registry, chain, home, ready=ready, standbys=0)
    assert begun_before(registry, chain) is not None
    assert submit_chain(registry, chain, home, ready=ready, standbys=0).name == "orders"
    assert DataflowView(registry, "orders-first").config_in_force().value.settings == {"packed": 1}
    with pytest.raises(ChainExists):
        begun_before(registry, chain)
    line.ok("kill", "orders")


def die(*_: object) -> None:
    raise SystemExit


def test_the_names_of_a_chain_that_is_not_all_there_are_kept_for_it(
    line: CommandLine, registry: Registry, namespace: LogNamespace, tmp_path: Path
) -> None:
    create_chain(registry, descriptor_of(parsed_chain(), 1))
    namespace.create("in/0")
    path = tmp_path / "taken.yaml"
    path.write_text(yaml.safe_dump({"name": "orders-first", **dataflow("in/*", "elsewhere")}))
    before = whole_tree(registry)
    done = line("submit", str(path), "--no-check")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "'orders-first' is the name of orders/first" in done.err
    path.write_text(yaml.safe_dump({"name": "orders-first", "dataflows": {"a": dataflow("in/*", "elsewhere")}}))
    assert "is the name of orders/first" in line("submit", str(path), "--no-check").err
    assert whole_tree(registry) == before


def test_a_chain_and_each_of_its_dataflows_are_operated_by_name(
    line: CommandLine, submitted: str, registry: Registry
) -> None:
    assert line.ok("pause", "orders").out == "chain 'orders' is paused\n"
    assert line.ok("status", "orders", "--json").json["state"] == "paused"
    assert line.ok("resume", "orders").out == "chain 'orders' goes on (last, first)\n"
    assert line.ok("resume", "orders").out == "chain 'orders' is not paused\n"
    line.ok("scale", "orders/last", "--tasks", "1")
    assert line.ok("config", "get", "orders/last", "tasks").out == "1\n"
    assert line.ok("config", "get", "orders-first", "tasks").out == "\n"
    busy = line("delete", "orders")
    assert (busy.code, busy.err.count("\n")) == (2, 1)
    assert "`scribengin stop orders` first" in busy.err
    assert line.ok("stop", "orders").out == "chain 'orders' is stopped\n"
    assert line.ok("status", "orders", "--json").json["state"] == "stopped"
    assert line.ok("start", "orders").out == "started chain 'orders' (first, last)\n"
    for name in ("orders-first", "orders-last"):
        await_master(DataflowView(registry, name))
    again = line("start", "orders")
    assert (again.code, again.err.count("\n")) == (2, 1)
    assert "all dataflows of chain 'orders' run" in again.err
    killed = line.ok("kill", "orders").out
    assert killed.count("killed dataflow") == 2


def test_a_dataflow_that_somebody_deleted_comes_back_with_its_chain_which_leaves_its_logs_when_it_is_deleted(
    line: CommandLine, submitted: str, chain_file: str, registry: Registry, namespace: LogNamespace
) -> None:
    line.ok("stop", "orders")
    line.ok("delete", "orders/last")
    assert line.ok("submit", chain_file, "--no-check").err.count("starting") == 1
    assert "orders-last" in dataflow_names(registry)
    await_master(DataflowView(registry, "orders-last"))
    line.ok("stop", "orders")
    assert line.ok("delete", "orders").out == "chain 'orders' is deleted\n"
    assert dataflow_names(registry) == []
    assert namespace.names() == ["in/0", "in/1", "mid/0", "mid/1", "out/0", "out/1"]
    assert [namespace.registered_readers(log) for log in namespace.names()] == [{}] * 6
    gone = line("status", "orders")
    assert (gone.code, gone.err.count("\n")) == (2, 1)


def test_a_damaged_dataflow_of_a_chain_hides_no_other(line: CommandLine, registry: Registry) -> None:
    create_chain(registry, descriptor_of(parsed_chain(), 1))
    views = [watched.put(registry, name, [], now_ms=SYSTEM_CLOCK.now_ms()) for name in ("orders-first", "orders-last")]
    registry.set(views[1].paths.status, b"{")
    told = line.ok("status", "orders", "--json").json
    assert [one["state"] for one in told["dataflows"]] == ["running", "unreadable"]
    assert "last: /scribengin/dataflows/orders-last/status does not hold" in line.ok("status", "orders").out


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("scale", "orders", "--workers", "2"), "'orders' is a chain, and this is done to one dataflow: name one of o"),
        (("scale", "orders/middle", "--workers", "2"), "chain 'orders' has no dataflow 'middle' (it has: first, last)"),
        (("stop", "no/first"), "there is no chain 'no' (there are: orders)"),
        (("status", "none"), "none"),
        (("stop", "orders", "--no-wait"), "--no-wait goes with one dataflow"),
        (("config", "get", "orders"), "'orders' is a chain"),
        (("logs", "orders/x"), "has no dataflow 'x'"),
    ],
)
def test_names_of_what_is_not_there_are_refused_in_one_line(
    line: CommandLine, registry: Registry, command: tuple[str, ...], said: str
) -> None:
    create_chain(registry, descriptor_of(parsed_chain(), 1))
    before = whole_tree(registry)
    done = line(*command)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert said in done.err
    assert whole_tree(registry) == before


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"dataflows": {"a": dataflow("nowhere/*", "out")}}, "dataflow 'a': source 'src': no log in /logs is called"),
        ({"dataflows": {"a": dataflow("m/*", "x"), "b": dataflow("x/*", "m")}}, "a chain flows in one direction"),
        ({"dataflows": {"a": dataflow("in/*", "m"), "b": dataflow("in/*", "m")}}, "both write log m"),
        ({"dataflows": {"a": dataflow("in/*", "bad name\n")}}, "bad name"),
        ({"dataflows": {"a": dataflow("in/*", "m", settings={"t": "x" * 300_000})}}, "the config of 'bad-a' is 30"),
        (
            {"dataflows": {f"f{n}": dataflow("in/*", f"m{n}", settings={"t": "x" * 250_000}) for n in range(4)}},
            "chain 'bad' is 1,00",
        ),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_created(
    line: CommandLine, registry: Registry, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    path = tmp_path / "bad.yaml"
    value: dict[str, Any] = {"name": "bad", "logs": {"in": {"streams": 1}}, **changes}
    if not any(flow["sources"]["src"]["logs"] == "in/*" for flow in value["dataflows"].values()):
        del value["logs"]
    path.write_text(yaml.safe_dump(value))
    before = whole_tree(registry)
    done = line("submit", str(path), "--no-check")
    assert done.code == 2
    assert said in done.err
    assert whole_tree(registry) == before


@pytest.mark.full
def test_one_dataflow_is_restarted_as_the_chain_s_file_or_a_descriptor_of_its_own_says(
    line: CommandLine, submitted: str, registry: Registry, chain_file: str, tmp_path: Path
) -> None:
    view = DataflowView(registry, "orders-last")
    base = view.config_to_edit().value
    value = {**CHAIN, "dataflows": {**CHAIN["dataflows"], "last": dataflow("mid/*", "out", settings={"limit": 3})}}
    Path(chain_file).write_text(yaml.safe_dump(value, sort_keys=False))
    changed = next_version(view, base, chain_file, {"stalled_after_s": "9"})
    assert (changed.name, changed.settings, changed.stalled_after_s) == ("orders-last", {"limit": 3}, 9.0)
    own = tmp_path / "own.yaml"
    own.write_text(yaml.safe_dump({"name": "lately", **dataflow("mid/*", "out", settings={"limit": 4})}))
    changed = next_version(view, base, str(own), {})
    assert (changed.name, changed.settings) == ("orders-last", {"limit": 4})
    for name, key, said in (("others", "last", "describes chain 'others'"), ("orders", "x", "has no dataflow 'last'")):
        Path(chain_file).write_text(yaml.safe_dump({"name": name, "dataflows": {key: CHAIN["dataflows"]["last"]}}))
        done = line("restart", "orders/last", chain_file, "--no-check")
        assert (done.code, done.err.count("\n"), said in done.err) == (2, 1, True)
    assert view.config().version == 0


def test_who_is_waited_for_is_told_why_if_he_cannot_read() -> None:
    config = parsed_chain().dataflows["last"].model_copy(update={"workers": 1})
    assert chains.hindrance_of(config, "orders/last", ("src:mid/0",)) == ""
    paused = {"src": config.sources["src"].model_copy(update={"paused": True})}
    said = chains.hindrance_of(config.model_copy(update={"sources": paused}), "orders/last", ("src:mid/0",))
    assert said == "source 'src' is paused: `scribengin config set orders/last sources.src.paused=false`"


@pytest.mark.full
def test_a_chain_does_not_wait_for_whom_nobody_lets_read(
    line: CommandLine, submitted: str, namespace: LogNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with namespace.open_writer("mid/0") as writer:
        writer.write(b"unread").result(120)
    done = line("stop", "orders")
    assert (done.code, done.err.count("scribengin: ")) == (2, 1)
    assert (
        "orders/last has not read all of src:mid/0: it is to have no workers: `scribengin scale orders/last" in done.err
    )
    states = [one["state"] for one in line.ok("status", "orders", "--json").json["dataflows"]]
    assert (states[0], states[1] in FINAL_STATES) == ("stopped", False)
    monkeypatch.setattr(chains, "hindrance_of", lambda *_: "")
    late = line("stop", "orders", "--timeout", "0.5")
    assert (late.code, late.err.count("scribengin: ")) == (2, 1)
    assert "orders/last has not read all of src:mid/0 yet; those before it have stopped" in late.err
    assert "--timeout goes with a chain" in line("stop", "orders/last", "--timeout", "1").err


def test_a_chain_that_cannot_drain_stops_and_says_what_is_left(
    line: CommandLine, submitted: str, namespace: LogNamespace
) -> None:
    line.ok("kill", "orders/last")
    with namespace.open_writer("mid/0") as writer:
        writer.write(b"unread").result(120)
    done = line("stop", "orders")
    assert (done.code, done.err.count("scribengin: ")) == (1, 1)
    assert "stopping orders/" in done.err
    assert "orders/last is killed and has not read all of src:mid/0" in done.err
    assert "`scribengin start orders` goes on there" in done.err
    states = [one["state"] for one in line.ok("status", "orders", "--json").json["dataflows"]]
    assert states == ["stopped", "killed"]


def test_what_logs_keep_for_one_that_has_ended_is_shown_and_can_be_let_go(
    line: CommandLine, submitted: str, namespace: LogNamespace
) -> None:
    with namespace.open_writer("mid/0") as writer:
        writer.write(b"unread").result(120)
    running = line("release-holds", "orders/last")
    assert (running.code, running.err.count("\n")) == (2, 1)
    assert "is to read what is kept for it: `scribengin stop orders-last` first" in running.err
    assert "retention_holds" not in line.ok("status", "orders/last", "--json").json, "of one that runs it is its lag"
    line.ok("kill", "orders")
    held = [{"namespace": "/logs", "log": "mid/0", "records": 1}]
    assert line.ok("status", "orders/last", "--json").json["retention_holds"] == held
    assert line.ok("status", "orders", "--json").json["retention_holds"] == held
    assert (
        "1 record of mid/0, until it has read them; `scribengin release-holds orders`"
        in line.ok("status", "orders").out
    )
    assert "1 record of mid/0, until it has read them; `scribengin release-holds orders-last`" in (
        line.ok("status", "orders/last").out
    )
    assert list(namespace.registered_readers("mid/0")) == ["dataflow orders-last.src reads mid/*"]
    assert "(before: 1 record of 1 log)" in line.ok("release-holds", "orders").out
    assert [namespace.registered_readers(log) for log in namespace.names()] == [{}] * 6
    assert "(before: none)" in line.ok("release-holds", "orders/last").out
