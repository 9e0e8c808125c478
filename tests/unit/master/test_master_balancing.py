"""Tasks are spread by what they read: how that is measured, and which few move."""

from __future__ import annotations

import random

import pytest

from scribengin.dataflow.registry.descriptors import TaskReport
from scribengin.master.state.spreading import Loads, Slot, balanced, filled

A, B = Slot("worker-1", "executor-1"), Slot("worker-2", "executor-1")
TWO = {"worker-1": ("executor-1",), "worker-2": ("executor-1",)}


def report(task: str, records: int, generation: int = 1) -> TaskReport:
    return TaskReport(task=task, generation=generation, state="running", records_in=records)


def test_a_rate_is_what_was_read_between_two_reports() -> None:
    loads = Loads()
    loads.heard([report("a", 100), report("b", 0)], 1.0)
    assert loads.rates() == {}, "one look says nothing"
    loads.heard([report("a", 500), report("b", 0)], 5.0)
    assert loads.rates() == {"a": 100.0, "b": 0.0}


def test_what_was_long_ago_does_not_count_any_more() -> None:
    loads = Loads()
    for second in range(200):
        loads.heard([report("a", 1000 * min(second, 100))], second)
    assert loads.rates() == {"a": 0.0}


def test_another_owner_is_measured_anew() -> None:
    loads = Loads()
    loads.heard([report("a", 0)], 0.0)
    loads.heard([report("a", 900)], 9.0)
    loads.heard([report("a", 5, generation=2)], 10.0)
    assert loads.rates() == {}
    loads.heard([report("a", 1_000)], 11.0)  # late, of the earlier one
    loads.heard([report("a", 25, generation=2)], 12.0)
    assert loads.rates() == {"a": 10.0}


@pytest.mark.parametrize(
    ("on_a", "on_b", "moved"),
    [
        ([50, 50], [50, 50], 0),
        ([0, 0, 0], [], 0),  # nothing is read: nothing is gained
        ([100, 100], [1, 1], 1),
        ([100, 90], [80, 60], 2),  # a swap
        ([100, 40, 30, 30], [], 1),
        ([100], [1, 1, 1], 0),  # one task cannot be cut
        ([60, 60, 60, 60], [], 2),
        ([52, 50], [50, 48], 0),  # near enough
    ],
)
def test_as_few_tasks_move_as_it_takes(on_a: list[int], on_b: list[int], moved: int) -> None:
    load = {f"a-{n}": float(x) for n, x in enumerate(on_a)} | {f"b-{n}": float(x) for n, x in enumerate(on_b)}
    settled = {task: A if task.startswith("a") else B for task in load}
    assert len(balanced(TWO, settled, load)) == moved


@pytest.mark.parametrize("seed", range(50))
def test_whatever_is_moved_the_fullest_executor_does_no_more_than_before(seed: int) -> None:
    chance = random.Random(seed)
    executors = {f"worker-{n}": ("executor-1", "executor-2") for n in range(chance.randint(1, 4))}
    slots = [Slot(worker, executor) for worker, of in executors.items() for executor in of]
    load = {f"task-{n}": chance.random() ** 3 * 1000 for n in range(chance.randint(0, 30))}
    settled = {task: chance.choice(slots) for task in load}
    moves = balanced(executors, settled, load)

    def most(places: dict[str, Slot]) -> float:
        return max(sum(load[task] for task, slot in places.items() if slot == one) for one in slots)

    after = {**settled, **moves}
    assert most(after) <= most(settled)
    assert all(settled[task] != slot for task, slot in moves.items())
    largest = max(load.values(), default=0)
    assert most(after) <= sum(load.values()) / len(slots) * 1.1 + largest


def test_homeless_tasks_go_where_the_fewest_stand_and_nobody_moves() -> None:
    assert filled(TWO, {"a": A, "b": A}, ["c", "d", "e"]) == {"c": B, "d": B, "e": A}
