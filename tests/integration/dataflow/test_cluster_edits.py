"""A dataflow under steady load whose config is edited, as processes, on Spark: nothing is lost, nothing comes twice,
and what an edit does not touch goes on.

One dataflow lives through all of it, step by step; the last step stops it.
"""

from __future__ import annotations

import functools
import threading

import pytest

from scribengin.dataflow.config import RoundConfig
from scribengin.dataflow.registry.edit_log import edits
from tests.integration.cluster import Cluster, Flow
from tests.integration.dataflow import edited_flow
from tests.integration.dataflow.edited_flow import LOGS, Commits, accepted, at_least, steady_load, watched

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]
cluster, flow = edited_flow.cluster, edited_flow.flow


@pytest.mark.full
def test_edits_under_load_lose_and_repeat_nothing_and_leave_alone_what_they_do_not_touch(
    flow: Flow, cluster: Cluster
) -> None:
    scaling_from_one_worker_to_two_and_back_at_steady_load_loses_nothing(flow, cluster)
    the_limits_of_a_round_change_while_the_task_goes_on(flow, cluster)
    a_paused_source_is_not_read_until_it_is_resumed(flow, cluster)
    every_edit_stands_in_the_history_with_what_it_did(flow)
    stopping_leaves_every_record_once(flow, cluster)


def scaling_from_one_worker_to_two_and_back_at_steady_load_loses_nothing(flow: Flow, cluster: Cluster) -> None:
    flow.wait_until_delivered(*LOGS)
    flow.wait_for_workers(1)
    with steady_load(cluster):
        calm = Commits(flow)
        watched(flow, calm, lambda: at_least(20, calm), "rounds in peace")
        for workers, half in ((2, 2), (1, 4)):
            moving = Commits(flow)
            moving.look()  # before anything moves, or the generations under which it stood are never seen
            flow.edit(workers=workers)
            watched(flow, moving, functools.partial(stands, flow, moving, half), f"{workers} workers")
            since = {log: len(moved) for log, moved in moving.moved_s.items()}
            watched(flow, moving, functools.partial(more, moving, since), "rounds after it")
            kept = {log for log in LOGS if len(moving.generations[log]) == 1}
            assert len(kept) == 2, (
                f"two of four tasks had to move: {moving.generations}\n{events(flow)}\n{flow.words()}"
            )
            print(f"to {workers} workers: {gaps(calm, moving, kept)}")
    flow.wait_until_delivered(*LOGS)


def events(flow: Flow) -> str:
    """What the dataflow's history says."""
    return "\n".join(f"{event.kind}: {event.message}" for event in flow.view.history().events)


def stands(flow: Flow, moving: Commits, on_first: int) -> bool:
    """Whether the edit is in force, so many tasks are on the worker that was there first, and all have new owners."""
    placed = [flow.view.assignments(worker, "executor-1") for worker in flow.ready_workers()]
    held = [len(placements) for placements in placed]
    generations = {p.assignment.task.replace("task-", "in/"): p.assignment.generation for of in placed for p in of}
    owned = all(generations.get(log) == moving.generation.get(log) for log in LOGS)
    return accepted(flow) and held == ([on_first, 4 - on_first] if on_first < 4 else [4]) and owned


def more(moving: Commits, since: dict[str, int]) -> bool:
    """Whether every log has moved some times more."""
    return all(len(moved) >= since[log] + 3 for log, moved in moving.moved_s.items())


def gaps(calm: Commits, moving: Commits, kept: set[str]) -> str:
    """The longest pause between two commits: before, of tasks that stayed meanwhile, and of those that moved."""
    before = [gap for log in LOGS for gap in calm.gaps(log)]
    p99 = sorted(before)[int(len(before) * 0.99)]
    stayed = max((max(moving.gaps(log), default=0.0) for log in kept), default=0.0)
    moved = max((max(moving.gaps(log), default=0.0) for log in LOGS if log not in kept), default=0.0)
    return f"p99 of a round before {p99:.2f} s; longest gap of what stayed {stayed:.2f} s, of what moved {moved:.2f} s"


def the_limits_of_a_round_change_while_the_task_goes_on(flow: Flow, cluster: Cluster) -> None:
    workers, commits = flow.ready_workers(), Commits(flow)
    commits.look()
    flow.edit(round=RoundConfig(records_max=7))
    flow.wait(lambda: accepted(flow), "the edit")
    # The worker takes the edit over when it hears of it: what comes before that is read in larger rounds.
    flow.wait(lambda: rounds_of_seventy(flow, cluster, commits) >= 10, "small rounds")
    assert flow.ready_workers() == workers
    assert all(len(generations) == 1 for generations in commits.generations.values())
    flow.edit(round=RoundConfig(records_max=1000))
    flow.wait(lambda: accepted(flow), "the edit back")


def rounds_of_seventy(flow: Flow, cluster: Cluster, commits: Commits) -> int:
    """How many rounds, of any log the fewest, it takes until 70 more records of each have come through. The commit logs
    count them, which move with what comes through; a status may still tell of a task's owner before this one."""
    commits.look()
    before = dict(commits.rounds)
    for log in LOGS:
        cluster.append(log, 70)
    flow.wait_until_delivered(*LOGS)
    commits.look()
    return min(commits.rounds[log] - before[log] for log in LOGS)


def a_paused_source_is_not_read_until_it_is_resumed(flow: Flow, cluster: Cluster) -> None:
    source = flow.view.config().value.sources["src"]
    flow.edit(sources={"src": source.model_copy(update={"paused": True})})
    flow.wait(lambda: accepted(flow), "the edit")
    flow.wait(lambda: paused_everywhere(flow, cluster), "the source to be paused")
    flow.edit(sources={"src": source})
    flow.wait_until_delivered(*LOGS)


def paused_everywhere(flow: Flow, cluster: Cluster) -> bool:
    """Whether what is written now waits, in every task."""
    for log in LOGS:
        cluster.append(log, 1)
    reports = flow.status.tasks
    return all((report.lag_records or 0) >= 3 for report in reports) or threading.Event().wait(0.5)


def every_edit_stands_in_the_history_with_what_it_did(flow: Flow) -> None:
    told = [(edit.outcome, edit.changes, edit.author) for edit in edits(flow.view)]
    assert ("accepted", ("workers: 1 -> 2",), None) in told
    assert ("accepted", ("round.records_max: 7 -> 1000",), None) in told
    assert all(outcome == "accepted" for outcome, _, _ in told)


def stopping_leaves_every_record_once(flow: Flow, cluster: Cluster) -> None:
    flow.edit(desired_state="stopped")
    flow.wait_for_state("stopped")
    flow.wait(lambda: not flow.containers(), "all processes to leave")
    assert flow.delivered() == {"out": cluster.expected(*LOGS)}
