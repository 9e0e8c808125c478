"""Spreading tasks evenly over executors while moving as few as possible. Pure.

Two levels: workers first, so that the death of one costs as little as it can, then the executors of each. All workers
of a dataflow have the same number of executors, so each counts the same. A task that must move is *released* where it
is, and placed only when that is done; until then it is `leaving`, and room is kept for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from scribengin.base.names import natural


@dataclass(frozen=True, slots=True, order=True)
class Slot:
    """One executor of one worker."""

    worker: str
    executor: str


@dataclass(frozen=True, slots=True)
class Spread:
    """What to do: where to put tasks that stand nowhere, and which ones to release because they stand too close."""

    assign: dict[str, Slot]
    release: list[str]


_B = TypeVar("_B")


def spread(
    executors: Mapping[str, Sequence[str]], settled: Mapping[str, Slot], homeless: Collection[str], leaving: int = 0
) -> Spread:
    """Place `homeless` tasks on the `executors` of each worker, and choose which of the `settled` must move.

    `settled` tasks stand on these executors and stay unless released; `leaving` is how many are being released already,
    and will be homeless soon. Without executors everybody waits.
    """
    if not executors:
        return Spread({}, [])
    of_worker: dict[str, list[str]] = {worker: [] for worker in sorted(executors, key=natural)}
    for task in sorted(settled, key=natural):
        of_worker[settled[task].worker].append(task)
    quotas = _quotas(of_worker, len(settled) + len(homeless) + leaving)
    release: list[str] = []
    room: dict[str, int] = {}
    for worker, tasks in of_worker.items():
        surplus = set(_surplus(tasks, settled, len(tasks) - quotas[worker]))
        release += surplus
        of_worker[worker] = [task for task in tasks if task not in surplus]
        room[worker] = quotas[worker] - len(of_worker[worker])
    arriving = _dealt(sorted(homeless, key=natural), room)
    assign: dict[str, Slot] = {}
    for worker, tasks in of_worker.items():
        placed, moved = _within(worker, executors[worker], {task: settled[task] for task in tasks}, arriving[worker])
        assign |= placed
        release += moved
    return Spread(assign, sorted(release, key=natural))


def _quotas(held: Mapping[_B, Sequence[str]], total: int) -> dict[_B, int]:
    """How many of `total` each may hold: as even as can be, the odd ones to those that hold most, so that fewest
    move."""
    base, odd = divmod(total, len(held))
    by_load = sorted(held, key=lambda holder: -len(held[holder]))
    return {holder: base + (place < odd) for place, holder in enumerate(by_load)}


def _surplus(tasks: Sequence[str], settled: Mapping[str, Slot], count: int) -> list[str]:
    """Which `count` of a worker's tasks to release: the last ones of its most loaded executors."""
    of_executor: dict[str, list[str]] = {}
    for task in tasks:
        of_executor.setdefault(settled[task].executor, []).append(task)
    return [max(of_executor.values(), key=len).pop() for _ in range(count)]


def _dealt(tasks: Iterable[str], room: Mapping[_B, int]) -> dict[_B, list[str]]:
    """Deal the tasks out, each to whoever has most room left (the first of equals)."""
    dealt: dict[_B, list[str]] = {holder: [] for holder in room}
    for task in tasks:
        holder = max(room, key=lambda h: room[h] - len(dealt[h]))
        dealt[holder].append(task)
    return dealt


def _within(
    worker: str, executors: Sequence[str], kept: Mapping[str, Slot], arriving: Sequence[str]
) -> tuple[dict[str, Slot], list[str]]:
    """Place a worker's arriving tasks on its executors, and choose which kept ones change executors."""
    held: dict[str, list[str]] = {executor: [] for executor in executors}
    for task, slot in kept.items():
        held[slot.executor].append(task)
    quotas = _quotas(held, len(kept) + len(arriving))
    release = [task for executor, tasks in held.items() for task in tasks[quotas[executor] :]]
    dealt = _dealt(arriving, {executor: quotas[executor] - len(tasks) for executor, tasks in held.items()})
    return {task: Slot(worker, executor) for executor, tasks in dealt.items() for task in tasks}, release
