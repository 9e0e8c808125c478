"""Spreading tasks by what they do and not by their number: how much each reads, and which few are to move. Pure.

The load of a task is the records a second that it reads, measured over the last half to whole minute of its owner's
reports, on the master's own clock, which does not jump, by when they came. Balancing moves one task, or swaps two, from
the executor that does most to the one that does least, each time what narrows the gap best, until it is small or no
move narrows it. Every task moves once at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from scribengin.base.names import natural
from scribengin.dataflow.registry.descriptors import TaskReport
from scribengin.master.state.spreading import Slot

MEASURED_MIN_S = 2.0
"""A task whose reports span less than this is not known yet."""
_WINDOW_S = 30.0
_GAP_MAX = 0.1
"""The gap that is left alone, as a part of the mean."""


@dataclass(slots=True)
class _Seen:
    """Three looks at what one task has read under one lease: (seconds, records)."""

    lease: int
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
            if seen is None or seen.lease < report.lease:
                self._seen[report.task] = _Seen(report.lease, look, look, look)
            elif seen.lease == report.lease:
                if now_s - seen.middle[0] >= _WINDOW_S:
                    seen.old, seen.middle = seen.middle, look
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
