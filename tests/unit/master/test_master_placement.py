"""Spreading tasks: as even as can be, moving as few as possible, and never anything twice."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from scribengin.base.names import natural
from scribengin.master.state.spreading import Slot, Spread, spread


def executors(workers: int, of_each: int = 1) -> dict[str, list[str]]:
    return {f"worker-{w}": [f"executor-{e}" for e in range(1, of_each + 1)] for w in range(1, workers + 1)}


def tasks(count: int) -> list[str]:
    return [f"task-{k}" for k in range(count)]


def counts(placed: dict[str, Slot], workers: int) -> list[int]:
    found = Counter(slot.worker for slot in placed.values())
    return [found[f"worker-{w}"] for w in range(1, workers + 1)]


def test_without_executors_everybody_waits() -> None:
    assert spread({}, {}, tasks(3)) == Spread({}, [])


def test_tasks_go_to_workers_first_and_to_their_executors_then() -> None:
    assert spread(executors(2, 2), {}, tasks(3)).assign == {
        "task-0": Slot("worker-1", "executor-1"),
        "task-1": Slot("worker-1", "executor-2"),
        "task-2": Slot("worker-2", "executor-1"),
    }


def test_an_executor_without_a_task_is_fine() -> None:
    assert counts(spread(executors(3), {}, tasks(1)).assign, 3) == [1, 0, 0]


def test_a_second_worker_gets_the_smaller_half() -> None:
    settled = {task: Slot("worker-1", "executor-1") for task in tasks(5)}
    assert spread(executors(2), settled, []) == Spread({}, ["task-3", "task-4"])


def test_room_is_kept_for_tasks_that_are_on_their_way() -> None:
    settled = {task: Slot("worker-1", "executor-1") for task in tasks(3)}
    assert spread(executors(2), settled, [], leaving=2) == Spread({}, [])


def test_tasks_of_a_worker_move_between_its_executors_when_one_is_idle() -> None:
    settled = {task: Slot("worker-1", "executor-1") for task in tasks(2)}
    assert spread(executors(1, 2), settled, []) == Spread({}, ["task-1"])


def test_task_10_comes_after_task_9() -> None:
    assert sorted(["task-10", "task-9", "task-1"], key=natural) == ["task-1", "task-9", "task-10"]


@given(st.data(), st.integers(1, 5), st.integers(1, 3), st.integers(0, 25))
def test_any_placement_is_evened_out_in_one_round_with_the_fewest_moves(
    data: st.DataObject, workers: int, of_each: int, count: int
) -> None:
    there = executors(workers, of_each)
    slots = [Slot(worker, executor) for worker, its in there.items() for executor in its]
    stands = {task: data.draw(st.sampled_from([None, *slots])) for task in tasks(count)}
    settled = {task: slot for task, slot in stands.items() if slot is not None}
    homeless = [task for task, slot in stands.items() if slot is None]

    first = spread(there, settled, homeless)
    assert set(first.assign) == set(homeless)
    kept = {task: slot for task, slot in settled.items() if task not in first.release}
    second = spread(there, kept | first.assign, first.release)
    final = kept | first.assign | second.assign
    while second.release:
        kept = {task: slot for task, slot in final.items() if task not in second.release}
        second = spread(there, kept, second.release)
        final = kept | second.assign
    held = counts(final, workers)
    assert max(held) - min(held) <= 1
    of_executor = Counter((slot.worker, slot.executor) for slot in final.values())
    for worker in there:
        on_each = [of_executor[(worker, executor)] for executor in there[worker]]
        assert max(on_each) - min(on_each) <= 1
    assert spread(there, final, []) == Spread({}, [])


@given(st.lists(st.integers(0, 8), min_size=1, max_size=6))
def test_no_worker_gives_up_more_than_what_is_over_its_share(held: list[int]) -> None:
    there = executors(len(held))
    settled = {
        f"task-{w}-{k}": Slot(f"worker-{w}", "executor-1") for w, n in enumerate(held, start=1) for k in range(n)
    }
    base, odd = divmod(sum(held), len(held))
    share = sorted([base + 1] * odd + [base] * (len(held) - odd), reverse=True)
    fewest = sum(max(0, n - quota) for n, quota in zip(sorted(held, reverse=True), share, strict=True))
    assert len(spread(there, settled, []).release) == fewest
