"""A master that runs and does not stand for election just now: it is being started, or is about to have a session."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.dataflow.registry.descriptors import DataflowStatus
from scribengin.dataflow.registry.view import DataflowView
from scribengin.errors import DataflowBusy
from scribengin.launcher.contract import ContainerDescriptor, ContainerRequest
from scribengin.launcher.local.launcher import LocalLauncher
from scribengin.operations.lifecycle import (
    DesiredState,
    masters,
    refuse_without_master,
    revive,
    set_desired_state,
    start_again,
    wait_for_state,
)
from scribengin.operations.restart import stop_for_restart
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry
from tests.integration.cli_runner import CommandLine, quiet_config

_LOOKS = 8
"""One a second: twice as many as it takes to call a dataflow orphaned, three sessions of a second."""


@pytest.fixture
def launcher(home: Path) -> Iterator[LocalLauncher]:
    with LocalLauncher(home) as launcher:
        yield launcher
        for container in launcher.all_containers("quiet"):
            launcher.kill(container)


@pytest.fixture
def view(registry: Registry) -> DataflowView:
    view = DataflowView(registry, "quiet")
    view.submit(quiet_config(session_timeout_s=1), [], SYSTEM_CLOCK.now_ms())
    return view


@pytest.fixture
def master(launcher: LocalLauncher, registry_hosts: str) -> ContainerDescriptor:
    """It runs, and never stands for election."""
    argv = [sys.executable, "-c", "import threading; threading.Event().wait()"]
    return launcher.launch(ContainerRequest(registry_hosts, "quiet", "master-1", argv, 256))


def test_it_is_not_started_a_second_time(view: DataflowView, master: ContainerDescriptor, home: Path) -> None:
    with pytest.raises(DataflowBusy, match="master-1 runs and stands for election as soon as it can"):
        start_again(view, home)
    refuse_without_master(view)


def test_a_restart_asks_it_to_stop_rather_than_go_past_it(view: DataflowView, master: ContainerDescriptor) -> None:
    def stop() -> None:
        """As it does once it leads."""
        wait_until(lambda: view.config().value.desired_state == "stopped", what="the stop to be asked for")
        view.set_status(view.status().model_copy(update={"state": "stopped"}))

    stopping = threading.Thread(target=stop)
    stopping.start()
    stop_for_restart(view)
    stopping.join()
    assert view.status().state == "stopped"


def test_who_waits_waits_for_it_and_for_nobody_once_it_has_gone(
    view: DataflowView, launcher: LocalLauncher, master: ContainerDescriptor
) -> None:
    seen: list[DataflowStatus] = []
    refused: list[DataflowBusy] = []

    def wait() -> None:
        with pytest.raises(DataflowBusy, match="has no master any more") as error:
            wait_for_state(view, lambda _: False, seen.append)
        refused.append(error.value)

    waiting = threading.Thread(target=wait)
    waiting.start()
    wait_until(lambda: len(seen) >= _LOOKS or refused, what="many looks")
    assert not refused
    launcher.kill(master)
    waiting.join(120)
    assert refused


@pytest.mark.parametrize(("asked", "otherwise"), [("paused", "running"), ("stopped", "running"), ("running", "paused")])
def test_who_waits_for_what_nobody_asks_for_any_more_is_told(
    view: DataflowView, master: ContainerDescriptor, asked: DesiredState, otherwise: DesiredState
) -> None:
    set_desired_state(view, asked)
    seen: list[DataflowStatus] = []
    refused: list[DataflowBusy] = []

    def wait() -> None:
        with pytest.raises(DataflowBusy, match=f"is asked to be {otherwise}, and no longer to be {asked}") as error:
            wait_for_state(view, lambda _: False, seen.append, asked=asked)
        refused.append(error.value)

    waiting = threading.Thread(target=wait)
    waiting.start()
    wait_until(lambda: seen, what="a look")
    assert not refused
    set_desired_state(view, otherwise)
    waiting.join(120)
    assert refused


def test_a_dataflow_that_lost_all_its_masters_is_revived_and_one_that_was_stopped_is_not(
    view: DataflowView,
    launcher: LocalLauncher,
    master: ContainerDescriptor,
    home: Path,
    registry: Registry,
    line: CommandLine,
) -> None:
    DataflowView(registry, "elsewhere").submit(
        quiet_config(session_timeout_s=1).model_copy(update={"name": "elsewhere"}), [], SYSTEM_CLOCK.now_ms()
    )
    assert revive(registry, home) == [], "a master is on its way"
    launcher.kill(master)
    view.set_status(view.status().model_copy(update={"state": "stopped"}))
    assert revive(registry, home) == []
    view.set_status(view.status().model_copy(update={"state": "running"}))
    assert line.ok("revive").out == "launched a master for dataflow 'quiet', which had none\n"
    wait_until(lambda: masters(view), 120, "the master to stand for election")
    assert "that is to run has a master" in line.ok("revive").err
