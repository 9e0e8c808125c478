"""What a command says of a dataflow while it waits until it runs, and how it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.dataflow.config import load_config
from scribengin.dataflow.registry.descriptors import DataflowStatus, TaskReport
from scribengin.dataflow.registry.view import DataflowView
from scribengin.dataflow.round.checkpoints import StateLeft
from scribengin.operations import delete, lifecycle
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin_tools.cli import main as cli
from scribengin_tools.cli.dataflow import end, submit
from scribengin_tools.cli.dataflow.submit import progress_of


@pytest.mark.parametrize(
    ("workers", "unassigned", "said"),
    [
        ((), (), "starting"),
        ((), ("task-0",), "starting, 1 task waits for a worker"),
        (("worker-1",), (), "starting, 1 worker"),
        (("worker-1", "worker-2"), ("task-0", "task-1"), "starting, 2 workers start Spark, 2 tasks wait for a worker"),
        (("worker-1",), ("task-0",), "starting, 1 worker starts Spark, 1 task waits for a worker"),
    ],
)
def test_what_is_there_is_counted_and_what_is_not_is_not_told(
    workers: tuple[str, ...], unassigned: tuple[str, ...], said: str
) -> None:
    status = DataflowStatus(
        dataflow="hot", state="starting", config_version=0, workers=workers, tasks_unassigned=unassigned
    )
    assert progress_of(status) == said


def test_what_is_waited_for_when_it_runs_already_is_told() -> None:
    status = DataflowStatus(dataflow="hot", state="running", config_version=0, workers=("worker-1",))
    assert progress_of(status) == "running, 1 worker, first rounds are under way"


def test_the_worker_that_is_left_of_two_is_not_said_to_start() -> None:
    status = DataflowStatus(
        dataflow="hot", state="running", config_version=0, workers=("worker-1",), tasks_unassigned=("task-1",)
    )
    assert progress_of(status) == "running, 1 worker, 1 task waits for a worker"


@pytest.fixture
def view(monkeypatch: pytest.MonkeyPatch) -> Iterator[DataflowView]:
    """A dataflow that stands for election, for commands that launch nothing: its one task runs, and has no round."""
    config = load_config(
        {
            "name": "quiet",
            "sources": {"words": {"kind": "log", "logs": "words/*"}},
            "sinks": {"loud": {"kind": "log", "log": "loud"}},
            "sql": "SELECT payload FROM words",
        }
    )
    with MemoryEnsemble().connect() as registry:
        view = DataflowView(registry, "quiet")
        view.submit(config, [], SYSTEM_CLOCK.now_ms())
        registry.create(f"{view.paths.master}/somebody", ephemeral=True)
        publish(view, "running", rounds=0)
        monkeypatch.setattr(submit, "connected", lambda _hosts: nullcontext(registry))
        monkeypatch.setattr(lifecycle, "start_again", lambda _view, _home: None)
        yield view


def publish(view: DataflowView, state: str, *, rounds: int, error: str | None = None) -> None:
    """What its master would write."""
    task = TaskReport(task="task-0", generation=1, state="running", rounds=rounds)
    changed: dict[str, Any] = {"state": state, "tasks": (task,), "tasks_total": 1, "error": error}
    view.set_status(view.status().model_copy(update=changed))


def once_it_is_waited(then: Callable[[], None]) -> Callable[[str], AbstractContextManager[Callable[[str], None]]]:
    """Stands in for `working`: what comes `then` comes only when the command has seen that it must wait."""

    @contextmanager
    def working(_text: str, *, left: str) -> Iterator[Callable[[str], None]]:
        yield lambda _progress: then()

    return working


def test_who_waits_until_it_runs_waits_for_the_first_round(
    view: DataflowView, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    waited: list[int] = []

    def commit() -> None:
        waited.append(len(waited) + 1)
        publish(view, "running", rounds=waited[-1])

    monkeypatch.setattr(submit, "working", once_it_is_waited(commit))
    assert cli.run(["start", "quiet", "--wait"]) == 0
    assert waited == [1]
    assert capsys.readouterr().out == "started dataflow 'quiet'\ndataflow 'quiet' is running\n"


def test_who_stops_waiting_hears_that_the_dataflow_goes_on(
    view: DataflowView, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(_text: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(submit, "progress_of", interrupt)
    assert cli.run(["start", "quiet", "--wait"]) == 130
    assert "'quiet' goes on without you; `scribengin status quiet` shows" in capsys.readouterr().err


def test_who_deletes_by_force_hears_where_state_stays(
    view: DataflowView, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left = [StateLeft("hdfs://cluster/state/quiet", "all NameNodes are away"), None]
    monkeypatch.setattr(end, "connected", lambda _hosts: nullcontext(view.registry))
    publish(view, "stopped", rounds=0)
    monkeypatch.setattr(delete, "delete_dataflow", lambda _view, *, force: left[not force])
    for options, times in ((["--force"], 1), ([], 0)):
        assert cli.run(["delete", "quiet", *options]) == 0
        err = " ".join(capsys.readouterr().err.split())
        said = "state stays in hdfs://cluster/state/quiet, and could not be removed: all NameNodes are away; remove it"
        assert err.count(said) == times


@pytest.mark.parametrize("state", ["failed", "killed"])
def test_a_dataflow_that_ends_before_its_first_round_is_an_error_of_the_command(
    state: str, view: DataflowView, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail = once_it_is_waited(lambda: publish(view, state, rounds=0, error="it broke"))
    monkeypatch.setattr(submit, "working", fail)
    assert cli.run(["start", "quiet", "--wait"]) == 1
    out, err = capsys.readouterr()
    assert out == "started dataflow 'quiet'\n"
    assert "it broke" in err
    assert f"dataflow 'quiet' is {state}: see `scribengin history quiet`" in " ".join(err.split())
