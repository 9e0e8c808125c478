"""Every command that operates a dataflow, on one that is not there, has ended, has lost its masters, is not ours, or
belongs to somebody else: one clear line, an exit code, nothing changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.connectors import Environment
from scribengin.dataflow.config import load_config
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.registry.view import DataflowView
from scribengin.log import LogNamespace
from scribengin_registry.contract import Registry
from scribengin_registry.opening import connect
from tests.integration.cli_runner import CommandLine, Done, whole_tree

NAME = "quiet"
CONFIG = load_config(
    {
        "name": NAME,
        "sources": {"words": {"kind": "log", "logs": "words/*"}},
        "sinks": {"loud": {"kind": "log", "log": "loud"}},
        "sql": "SELECT payload FROM words",
        "workers": 0,
    }
)
LOOKING = {
    "config get": ("config", "get", NAME),
    "config history": ("config", "history", NAME),
    "status": ("status", NAME),
    "history": ("history", NAME),
    "logs": ("logs", NAME),
}
CHANGING = {
    "config set": ("config", "set", NAME, "workers=1"),
    "config edit": ("config", "edit", NAME),
    "config rollback": ("config", "rollback", NAME, "0"),
    "scale": ("scale", NAME, "--workers", "1"),
    "rebalance": ("rebalance", NAME),
    "pause": ("pause", NAME),
    "resume": ("resume", NAME),
    "restart": ("restart", NAME, "--no-check"),
    "rewind": ("rewind", NAME, "--to", "earliest", "--yes"),
    "stop": ("stop", NAME),
    "start": ("start", NAME),
    "kill": ("kill", NAME),
    "delete": ("delete", NAME),
}
COMMANDS = (*LOOKING.values(), *CHANGING.values())
RUNNING_ONLY = {name: CHANGING[name] for name in ("scale", "rebalance", "pause", "resume")}


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRIBENGIN_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("EDITOR", "sed -i 's/^workers: 0/workers: 1/'")
    monkeypatch.delenv("VISUAL", raising=False)


@pytest.fixture
def view(registry: Registry, line: CommandLine) -> DataflowView:
    """A dataflow that says that it runs, and has no master."""
    return submitted(registry)


def submitted(registry: Registry) -> DataflowView:
    with LogNamespace.open("/logs", registry=registry) as logs:
        logs.create("words/0")
    view = DataflowView(registry, NAME)
    view.submit(CONFIG, ["log:/logs/loud"], SYSTEM_CLOCK.now_ms())
    state(view, "running")
    return view


def state(view: DataflowView, name: str) -> None:
    view.set_status(view.status().model_copy(update={"state": name}))


def refused(line: CommandLine, registry: Registry, *command: str, codes: tuple[int, ...] = (2,)) -> Done:
    """A command that is refused in one line, and changes nothing."""
    before = whole_tree(registry, "/scribengin") if registry.find("/scribengin") is not None else {}
    done = line(*command)
    after = whole_tree(registry, "/scribengin") if registry.find("/scribengin") is not None else {}
    assert done.code in codes, (command, done)
    assert done.out == "", command
    assert len(done.err.splitlines()) == 1, (command, done.err)
    assert done.err.startswith("scribengin: "), (command, done.err)
    assert after == before, command
    return done


def test_a_dataflow_that_is_not_there(line: CommandLine, view: DataflowView) -> None:
    for command in COMMANDS:
        done = refused(line, view.registry, *("absent" if word == NAME else word for word in command))
        assert "there is no dataflow 'absent'" in done.err, command
        assert "(there are: quiet)" in done.err, command


def test_a_name_that_is_no_text(line: CommandLine, view: DataflowView) -> None:
    """As whoever writes in another encoding has it: Python gives such bytes a place among the surrogates."""
    for command in COMMANDS:
        done = refused(line, view.registry, *("\udce9" if word == NAME else word for word in command))
        assert r"'\udce9' names nothing: a name is text in UTF-8" in done.err, command


def test_a_registry_that_has_never_seen_a_dataflow(line: CommandLine, registry: Registry) -> None:
    for command in COMMANDS:
        assert "(there are: none)" in refused(line, registry, *command).err, command


def test_a_registry_that_holds_something_else_there(line: CommandLine, registry: Registry) -> None:
    paths = DataflowView(registry, NAME).paths
    nodes = (paths.config, paths.status, paths.config_in_force, paths.history, paths.placement)
    for path in (paths.root, *nodes, paths.master, paths.workers):
        registry.create(path, b"not ours", parents=True)
    for command in COMMANDS:
        done = refused(line, registry, *command, codes=(1, 2))
        assert paths.root in done.err, command


@pytest.mark.parametrize("ended", ["finished", "stopped", "failed", "killed"])
def test_a_dataflow_that_has_ended(line: CommandLine, view: DataflowView, ended: str) -> None:
    state(view, ended)
    for command in RUNNING_ONLY.values():
        done = refused(line, view.registry, *command)
        assert f"is {ended}: `scribengin start quiet` first" in done.err, command


def test_stopping_one_that_has_ended_changes_nothing(line: CommandLine, view: DataflowView) -> None:
    state(view, "finished")
    before = whole_tree(view.registry, "/scribengin")
    assert line.ok("stop", NAME).out == "dataflow 'quiet' was finished already\n"
    assert whole_tree(view.registry, "/scribengin") == before


def test_a_dataflow_whose_masters_are_down(line: CommandLine, view: DataflowView) -> None:
    for command in (*RUNNING_ONLY.values(), CHANGING["stop"]):
        done = refused(line, view.registry, *command)
        assert "has no master any more" in done.err, command
        assert "`scribengin start quiet` launches one" in done.err, command


def test_what_is_for_dataflows_that_do_not_run(line: CommandLine, view: DataflowView) -> None:
    for name in ("delete", "rewind"):
        assert "is running: " in refused(line, view.registry, *CHANGING[name]).err, name


@pytest.fixture
def of_somebody_else(registry: Registry, line: CommandLine) -> Iterator[DataflowView]:
    """A dataflow whose nodes only ada may change."""
    with connect(line.hosts, auth="ada:secret") as session:
        view = submitted(session)
        session.create(f"{view.paths.master}/somebody", ephemeral=True)
        with OpenedDataflow(CONFIG, Environment(registry=session, dataflow=NAME, nodes=STREAM_NODES)) as opened:
            view.commit_placement(view.placement_head(), view.creation_of_tasks(opened.tasks()))
        yield view
        for path in ("/scribengin", "/logs/logs"):
            session.delete(path, recursive=True)


def test_without_rights(line: CommandLine, of_somebody_else: DataflowView) -> None:
    view = of_somebody_else

    def refuses(name: str) -> None:
        done = refused(line, view.registry, *CHANGING[name])
        assert "/scribengin" in done.err, f"{name} names the node that is somebody else's"

    for name in ("config set", "config edit", "scale", "rebalance", "pause", "stop"):
        refuses(name)
    view.registry.delete(f"{view.paths.master}/somebody")
    state(view, "killed")
    for name in ("rewind", "start", "delete", "restart"):
        refuses(name)


def test_no_registry_at_all(line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCRIBENGIN_REGISTRY")
    for command in COMMANDS:
        done = line(*command)
        assert (done.code, done.out) == (2, ""), command
        assert "no registry was given" in done.err, command


def test_scaling_to_nothing_in_particular(line: CommandLine, view: DataflowView) -> None:
    assert "--workers N, --tasks M" in refused(line, view.registry, "scale", NAME).err
