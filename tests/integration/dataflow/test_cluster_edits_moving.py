"""A dataflow under load whose workers are replaced, whose streams are grouped anew, and whose tasks are balanced: as
processes, on Spark; nothing is lost, nothing comes twice.

One dataflow lives through all of it, step by step; the last step stops it.
"""

from __future__ import annotations

import functools
import threading

import pytest

from scribengin.dataflow.config import ContainerConfig
from tests.integration.cluster import Cluster, Flow
from tests.integration.dataflow import edited_flow
from tests.integration.dataflow.edited_flow import LOGS, LOOK_S, steady_load

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]
cluster, flow = edited_flow.cluster, edited_flow.flow


@pytest.mark.full
def test_workers_are_replaced_and_tasks_regrouped_and_parted_under_load_without_a_loss(
    flow: Flow, cluster: Cluster
) -> None:
    other_containers_replace_the_workers_one_after_the_other(flow, cluster)
    streams_are_grouped_into_fewer_tasks_and_back(flow, cluster)
    tasks_that_read_much_are_parted_and_stay_so(flow, cluster)
    stopping_leaves_every_record_once(flow, cluster)


def other_containers_replace_the_workers_one_after_the_other(flow: Flow, cluster: Cluster) -> None:
    flow.wait_for_workers(1)
    before = flow.ready_workers()
    with steady_load(cluster):
        flow.edit(container=ContainerConfig(memory_mb=2100))
        flow.wait(lambda: flow.ready_workers() and not set(flow.ready_workers()) & set(before), "other workers")
        flow.wait_for_workers(1)
    flow.wait_until_delivered(*LOGS)


def streams_are_grouped_into_fewer_tasks_and_back(flow: Flow, cluster: Cluster) -> None:
    for tasks in (2, 4):
        for log in LOGS:
            cluster.append(log, 100)
        flow.edit(tasks=tasks)
        flow.wait(functools.partial(has_tasks, flow, tasks), f"{tasks} tasks")
        read = sorted(s.name for task in flow.view.tasks().values() for s in task.sources)
        assert read == sorted(LOGS)
    flow.wait_until_delivered(*LOGS)


def tasks_that_read_much_are_parted_and_stay_so(flow: Flow, cluster: Cluster) -> None:
    flow.edit(workers=2)
    flow.wait_for_workers(2)
    busy = {p.assignment.task for p in flow.view.assignments(flow.ready_workers()[0], "executor-1")}
    assert len(busy) == 2
    logs = [task.replace("task-", "in/") for task in busy]
    with steady_load(cluster, *logs):
        flow.wait(lambda: parted(flow, busy) or asked_to_balance(flow), "the two to stand apart")
    flow.wait_until_delivered(*LOGS)
    assert parted(flow, busy)


def asked_to_balance(flow: Flow) -> bool:
    """Ask, and ask again: at first the load of the last minute is another one. Never true."""
    asked = flow.view.config().value.rebalance
    if flow.view.placement_head().value.rebalanced == asked:
        flow.edit(rebalance=asked + 1)
    return threading.Event().wait(LOOK_S)


def parted(flow: Flow, busy: set[str]) -> bool:
    """Whether each worker has one of these tasks, and everything stands somewhere."""
    placed = [{p.assignment.task for p in flow.view.assignments(w, "executor-1")} for w in flow.ready_workers()]
    return all(len(tasks & busy) == 1 for tasks in placed) and sum(map(len, placed)) == 4


def has_tasks(flow: Flow, count: int) -> bool:
    return len(flow.view.tasks()) == count


def stopping_leaves_every_record_once(flow: Flow, cluster: Cluster) -> None:
    flow.edit(desired_state="stopped")
    flow.wait_for_state("stopped")
    flow.wait(lambda: not flow.containers(), "all processes to leave")
    assert flow.delivered() == {"out": cluster.expected(*LOGS)}
