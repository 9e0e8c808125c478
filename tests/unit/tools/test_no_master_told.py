"""What is said while a dataflow is on its way to an end, or has no master: what is waited for, and by whom."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from scribengin.dataflow.registry.view import DataflowView
from scribengin.errors import DataflowBusy
from scribengin.operations.editing import edit_config
from scribengin.operations.lifecycle import set_desired_state, start_again
from scribengin_tools.cli import main as cli
from scribengin_tools.cli.dataflow import config as config_commands
from scribengin_tools.cli.dataflow import operate
from scribengin_tools.monitor.actions import MonitorActions
from scribengin_tools.rendering.dataflow import overview
from scribengin_tools.rendering.text import console
from scribengin_tools.web.actions import WebActions
from tests.unit.submitted import submitted


@pytest.fixture
def flow() -> Iterator[DataflowView]:
    with submitted() as view:
        view.set_status(view.status().model_copy(update={"state": "running"}))
        yield view


def led(view: DataflowView) -> None:
    view.registry.create(f"{view.paths.master}/somebody", ephemeral=True)


def start_refused(view: DataflowView, home: Path) -> str:
    with pytest.raises(DataflowBusy) as refused:
        start_again(view, home)
    return str(refused.value)


def test_start_of_one_that_stops_says_when_it_can_be_started(flow: DataflowView, tmp_path: Path) -> None:
    """Also before its master has heard of it."""
    led(flow)
    assert start_refused(flow, tmp_path) == "dataflow 'flow' is running: there is nothing to start"
    said = "dataflow 'flow' is stopping: wait until it has, then `scribengin start flow`"
    set_desired_state(flow, "stopped")
    assert start_refused(flow, tmp_path) == said
    flow.set_status(flow.status().model_copy(update={"state": "stopping"}))
    assert start_refused(flow, tmp_path) == said


def test_start_of_one_that_is_paused_names_resume(flow: DataflowView, tmp_path: Path) -> None:
    led(flow)
    set_desired_state(flow, "paused")
    assert start_refused(flow, tmp_path) == "dataflow 'flow' is pausing: `scribengin resume flow` lets it go on"
    flow.set_status(flow.status().model_copy(update={"state": "paused"}))
    assert start_refused(flow, tmp_path) == "dataflow 'flow' is paused: `scribengin resume flow` lets it go on"


def test_an_edit_that_nobody_takes_over_is_not_said_to_be(
    flow: DataflowView, capsys: pytest.CaptureFixture[str]
) -> None:
    edit_config(flow, lambda config: config.model_copy(update={"workers": 2}))

    def shown() -> str:
        console().print(overview(flow).renderable())
        return capsys.readouterr().out

    assert "version 1 waits for a master" in shown()
    led(flow)
    assert "version 1 is being taken over" in shown()


def test_the_history_tells_what_an_edit_changes_that_no_master_has_seen(
    flow: DataflowView, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_commands, "connected", lambda _hosts: nullcontext(flow.registry))
    edit_config(flow, lambda config: config.model_copy(update={"workers": 2}))
    set_desired_state(flow, "stopped")
    assert cli.run(["config", "history", "flow"]) == 0
    said = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert said[2].endswith("written workers: 1 -> 2 -")
    assert said[3].endswith("written desired_state: running -> stopped -")


def test_nothing_takes_a_stop_back_that_the_master_has_not_heard_of(
    flow: DataflowView, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As is refused once it has. Of a master that is replaced just then, it may be some seconds."""
    led(flow)
    monkeypatch.setattr(operate, "connected", lambda _hosts: nullcontext(flow.registry))
    set_desired_state(flow, "stopped")
    web, monitor = WebActions(flow.registry), MonitorActions(flow.registry)
    said = "dataflow 'flow' is stopping: wait until it has, then `scribengin start flow`"
    for act in (
        lambda: web.set_desired("flow", "paused", "web"),
        lambda: web.set_desired("flow", "running", "web"),
        lambda: web.scale("flow", {"workers": 1}, "web"),
        lambda: monitor.pause_or_resume("flow"),
    ):
        with pytest.raises(DataflowBusy, match=f"^{re.escape(said)}$"):
            act()
    for command in (["pause", "flow", "--no-wait"], ["resume", "flow"], ["scale", "flow", "--workers", "1"]):
        assert cli.run(command) == 2
        assert said in capsys.readouterr().err
    assert flow.config().value.desired_state == "stopped"
