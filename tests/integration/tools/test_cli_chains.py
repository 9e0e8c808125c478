"""A chain on the command line: who waits for all of its dataflows, and who for none. What masters would write is
written down before, so nobody has to be waited for."""

from __future__ import annotations

import pytest

from scribengin.dataflow.registry.view import DataflowView
from scribengin_registry.contract import Registry
from tests.integration import watched
from tests.integration.cli_runner import CommandLine

NAMES = ("first", "last")
RUNNING = "dataflow 'first' is running\ndataflow 'last' is running\n"


@pytest.fixture
def views(registry: Registry, line: CommandLine) -> list[DataflowView]:
    """Of the dataflows of the chain `pair`, which run."""
    tasks = (watched.task(0, lag=1),)
    views = [watched.put(registry, name, list(tasks)) for name in NAMES]
    for view in views:
        view.set_status(view.status().model_copy(update={"tasks": tasks}))
    watched.put_chain(registry, "pair", *zip(NAMES, NAMES, strict=True))
    return views


def asked(views: list[DataflowView]) -> list[str]:
    return [view.config_to_edit().value.desired_state for view in views]


def test_whoever_does_not_wait_for_a_pause_has_asked_all_dataflows(
    line: CommandLine, views: list[DataflowView]
) -> None:
    done = line.ok("pause", "pair", "--no-wait")
    assert done.out == "chain 'pair' is asked to pause; `scribengin status pair` shows how far it is\n"
    assert asked(views) == ["paused", "paused"]


def test_a_pause_that_one_of_them_cannot_hear_is_asked_of_none(
    line: CommandLine, registry: Registry, views: list[DataflowView]
) -> None:
    for number in (1, 2):
        registry.delete(f"{views[1].paths.master}/candidate-{number}")
    done = line("pause", "pair", "--no-wait")
    assert (done.code, done.out) == (2, "")
    assert "dataflow 'last' has no master any more" in done.err
    assert asked(views) == ["running", "running"]


def test_whoever_waits_for_a_chain_that_goes_on_hears_of_each_that_it_runs(
    line: CommandLine, views: list[DataflowView]
) -> None:
    line.ok("pause", "pair", "--no-wait")
    assert line.ok("resume", "pair").out == "chain 'pair' goes on (last, first)\n"
    line.ok("pause", "pair", "--no-wait")
    assert line.ok("resume", "pair", "--wait").out == f"chain 'pair' goes on (last, first)\n{RUNNING}"
    assert asked(views) == ["running", "running"]


def test_whoever_waits_for_what_was_not_paused_waits_until_it_runs(
    line: CommandLine, views: list[DataflowView]
) -> None:
    assert line.ok("resume", "pair", "--wait").out == f"chain 'pair' is not paused\n{RUNNING}"
    told = line.ok("resume", "pair/last", "--wait").out
    assert told == "dataflow 'pair/last' is not paused\ndataflow 'last' is running\n"
    assert line.ok("resume", "pair/last").out == "dataflow 'pair/last' is not paused\n"


def test_a_dataflow_that_has_no_state_yet_has_an_empty_list_of_it(line: CommandLine, registry: Registry) -> None:
    DataflowView(registry, "counts").submit(watched.config("counts", state={}), [], watched.NOW_MS)
    done = line.ok("state", "counts", "--json")
    assert (done.json, "has no state yet" in done.err) == ([], True)
    rows = line.ok("state", "counts", "--operator", "count", "--json")
    assert (rows.out, "has no state yet" in rows.err) == ("", True)  # a line for each row
    refused = line("state", "counts", "-n", "3")
    assert (refused.code, "name it with --operator" in refused.err) == (2, True), refused.err


def test_a_list_of_processes_does_not_follow_them(line: CommandLine, registry: Registry) -> None:
    watched.put(registry, "counts", [watched.task(0)])
    done = line("logs", "counts", "--json", "--follow")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "--json lists the processes, --follow prints what they write" in done.err
