"""Spreading tasks evenly over executors while moving as few as possible. Pure.

Two levels: workers first, so that the death of one costs as little as it can, then the executors of each. All workers
of a dataflow have the same number of executors, so each counts the same. A task that must move is *released* where it
is, and placed only when that is done; until then it is `leaving`, and room is kept for it.

Balancing goes by what tasks do and not by their number: how much each reads, and which few are to move. The load of a
task is the records a second that it reads, measured over the last half to whole minute of its owner's reports, on the
master's own clock, which does not jump, by when they came. Balancing moves one task, or swaps two, from the executor
that does most to the one that does least, each time what narrows the gap best, until it is small or no move narrows it.
Every task moves once at most.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from scribengin.base.names import natural
from scribengin.dataflow.registry.descriptors import TaskReport

MEASURED_MIN_S = 2.0
"""A task whose reports span less than this is not known yet."""
_WINDOW_S = 30.0
_GAP_MAX = 0.1
"""The gap that is left alone, as a part of the mean."""


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


@dataclass(slots=True)
class _Seen:
    """Three looks at what one task has read under one generation: (seconds, records)."""

    generation: int
    old: tuple[float, int]
    middle: tuple[float, int]
    last: tuple[float, int]


class Loads:
    """How much each task reads, from the reports of its owners."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def heard(self, reports: Iterable[TaskReport], now_s: float) -> None:
        """These reports have just come."""
        for report in reports:
            look = (now_s, report.records_in)
            seen = self._seen.get(report.task)
            if seen is None or seen.generation < report.generation:
                self._seen[report.task] = _Seen(report.generation, look, look, look)
            elif seen.generation == report.generation:
                if now_s - seen.middle[0] >= _WINDOW_S:
                    seen.old = seen.middle
                    seen.middle = look
                seen.last = look

    def rates(self) -> dict[str, float]:
        """Records a second of each task that was watched for long enough."""
        spans = {task: (seen.last[0] - seen.old[0], seen.last[1] - seen.old[1]) for task, seen in self._seen.items()}
        return {task: records / seconds for task, (seconds, records) in spans.items() if seconds >= MEASURED_MIN_S}


def balanced(
    executors: Mapping[str, Sequence[str]], settled: Mapping[str, Slot], load: Mapping[str, float]
) -> dict[str, Slot]:
    """Which of the `settled` tasks are to move, and where to."""
    on: dict[Slot, list[str]] = {slot: [] for slot in _slots(executors)}
    for task in sorted(settled, key=natural):
        on[settled[task]].append(task)
    does = {slot: sum(load[task] for task in tasks) for slot, tasks in on.items()}
    small = _GAP_MAX * sum(does.values()) / len(does)
    moved: dict[str, Slot] = {}
    while True:
        most, least = max(does, key=lambda slot: does[slot]), min(does, key=lambda slot: does[slot])
        gap = does[most] - does[least]
        if gap <= small:
            return moved
        give, take = _narrowing(
            [task for task in on[most] if task not in moved],
            [task for task in on[least] if task not in moved],
            gap,
            load,
        )
        if give is None:
            return moved
        going = [(give, most, least)] if take is None else [(give, most, least), (take, least, most)]
        for task, source, target in going:
            on[source].remove(task)
            on[target].append(task)
            does[source] -= load[task]
            does[target] += load[task]
            moved[task] = target


def filled(
    executors: Mapping[str, Sequence[str]], settled: Mapping[str, Slot], homeless: Iterable[str]
) -> dict[str, Slot]:
    """Where tasks go that stand nowhere, while those that stand stay: each to the executor with the fewest."""
    held = dict.fromkeys(_slots(executors), 0)
    for slot in settled.values():
        held[slot] += 1
    found: dict[str, Slot] = {}
    for task in sorted(homeless, key=natural):
        found[task] = min(held, key=lambda slot: held[slot])
        held[found[task]] += 1
    return found


def _slots(executors: Mapping[str, Sequence[str]]) -> list[Slot]:
    return [Slot(worker, executor) for worker in sorted(executors, key=natural) for executor in executors[worker]]


def _narrowing(
    on_most: Sequence[str], on_least: Sequence[str], gap: float, load: Mapping[str, float]
) -> tuple[str | None, str | None]:
    """The task to give, and the one to take for it if one alone is too large: what leaves the smallest gap."""
    pairs: list[tuple[str, str | None, float]] = [(give, None, load[give]) for give in on_most]
    if not any(0 < shift < gap for _, _, shift in pairs):
        pairs = [(give, take, load[give] - load[take]) for give in on_most for take in on_least]
    better = [pair for pair in pairs if 0 < pair[2] < gap]
    if not better:
        return None, None
    best = min(better, key=lambda pair: abs(pair[2] - gap / 2))
    return best[0], best[1]
