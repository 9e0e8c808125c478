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
    assert done.code in codes, done
    assert done.out == ""
    assert len(done.err.splitlines()) == 1, done.err
    assert done.err.startswith("scribengin: ")
    assert after == before
    return done


@pytest.mark.parametrize("command", {**LOOKING, **CHANGING}.values(), ids={**LOOKING, **CHANGING})
def test_a_dataflow_that_is_not_there(line: CommandLine, view: DataflowView, command: tuple[str, ...]) -> None:
    absent = tuple("absent" if word == NAME else word for word in command)
    done = refused(line, view.registry, *absent)
    assert "there is no dataflow 'absent'" in done.err
    assert "(there are: quiet)" in done.err


@pytest.mark.parametrize("command", {**LOOKING, **CHANGING}.values(), ids={**LOOKING, **CHANGING})
def test_a_name_that_is_no_text(line: CommandLine, view: DataflowView, command: tuple[str, ...]) -> None:
    """As whoever writes in another encoding has it: Python gives such bytes a place among the surrogates."""
    done = refused(line, view.registry, *("\udce9" if word == NAME else word for word in command))
    assert r"'\udce9' names nothing: a name is text in UTF-8" in done.err


@pytest.mark.parametrize("command", {**LOOKING, **CHANGING}.values(), ids={**LOOKING, **CHANGING})
def test_a_registry_that_has_never_seen_a_dataflow(
    line: CommandLine, registry: Registry, command: tuple[str, ...]
) -> None:
    assert "(there are: none)" in refused(line, registry, *command).err


@pytest.mark.parametrize("command", {**LOOKING, **CHANGING}.values(), ids={**LOOKING, **CHANGING})
def test_a_registry_that_holds_something_else_there(
    line: CommandLine, registry: Registry, command: tuple[str, ...]
) -> None:
    paths = DataflowView(registry, NAME).paths
    nodes = (paths.config, paths.status, paths.config_in_force, paths.history, paths.placement)
    for path in (paths.root, *nodes, paths.master, paths.workers):
        registry.create(path, b"not ours", parents=True)
    done = refused(line, registry, *command, codes=(1, 2))
    assert paths.root in done.err


@pytest.mark.parametrize("command", RUNNING_ONLY.values(), ids=RUNNING_ONLY)
@pytest.mark.parametrize("ended", ["finished", "stopped", "failed", "killed"])
def test_a_dataflow_that_has_ended(line: CommandLine, view: DataflowView, command: tuple[str, ...], ended: str) -> None:
    state(view, ended)
    done = refused(line, view.registry, *command)
    assert f"is {ended}: `scribengin start quiet` first" in done.err


def test_stopping_one_that_has_ended_changes_nothing(line: CommandLine, view: DataflowView) -> None:
    state(view, "finished")
    before = whole_tree(view.registry, "/scribengin")
    assert line.ok("stop", NAME).out == "dataflow 'quiet' was finished already\n"
    assert whole_tree(view.registry, "/scribengin") == before


@pytest.mark.parametrize("command", [*RUNNING_ONLY.values(), CHANGING["stop"]], ids=[*RUNNING_ONLY, "stop"])
def test_a_dataflow_whose_masters_are_down(line: CommandLine, view: DataflowView, command: tuple[str, ...]) -> None:
    done = refused(line, view.registry, *command)
    assert "has no master any more" in done.err
    assert "`scribengin start quiet` launches one" in done.err


@pytest.mark.parametrize("name", ["delete", "rewind"])
def test_what_is_for_dataflows_that_do_not_run(line: CommandLine, view: DataflowView, name: str) -> None:
    assert "is running: " in refused(line, view.registry, *CHANGING[name]).err


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


@pytest.mark.parametrize(
    "name", ["config set", "config edit", "scale", "rebalance", "pause", "stop", "rewind", "start", "delete", "restart"]
)
def test_without_rights(line: CommandLine, of_somebody_else: DataflowView, name: str) -> None:
    view = of_somebody_else
    if name in ("rewind", "start", "delete", "restart"):
        view.registry.delete(f"{view.paths.master}/somebody")
        state(view, "killed")
    done = refused(line, view.registry, *CHANGING[name])
    assert "/scribengin" in done.err, "it names the node that is somebody else's"


@pytest.mark.parametrize("command", {**LOOKING, **CHANGING}.values(), ids={**LOOKING, **CHANGING})
def test_no_registry_at_all(line: CommandLine, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCRIBENGIN_REGISTRY")
    done = line(*command)
    assert (done.code, done.out) == (2, "")
    assert "no registry was given" in done.err


def test_scaling_to_nothing_in_particular(line: CommandLine, view: DataflowView) -> None:
    assert "--workers N, --tasks M" in refused(line, view.registry, "scale", NAME).err
