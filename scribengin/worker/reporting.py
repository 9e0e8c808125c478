"""When a worker writes its report. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

from scribengin.dataflow.registry.descriptors import TaskReport
from scribengin.worker.progress import TaskFields

URGENT_GAP_S = 0.05
COUNTS_GAP_S = 1.0
SILENCE_MAX_S = 5.0
_OF_TIME = ("in_per_s", "out_per_s", "behind_s", "lag_age_s")
"""What changes by time alone: of that, a word every few seconds is enough."""
_COUNTED = itemgetter(*(name for name in TaskReport.model_fields if name not in ("format", *_OF_TIME)))
_STATE = itemgetter("task", "generation", "state")


class WorkerLook(NamedTuple):
    """What a worker has to tell just now: of each task, and of itself as WorkerReport has it."""

    tasks: Sequence[TaskFields]
    spark_ready: bool
    leaving: bool


class ReportSchedule:
    """What the master waits for goes at once, counts once a second at most, and a word every few seconds in any
    case."""

    def __init__(self) -> None:
        self._written: WorkerLook | None = None
        self._written_s = 0.0

    def due(self, look: WorkerLook, now_s: float) -> bool:
        """Whether a report of that is to be written now."""
        if self._written is None:
            return True
        silence_s = now_s - self._written_s
        if _states(look) != _states(self._written):
            return silence_s >= URGENT_GAP_S
        if _counts(look) != _counts(self._written):
            return silence_s >= COUNTS_GAP_S
        return silence_s >= SILENCE_MAX_S

    def written(self, look: WorkerLook, now_s: float) -> None:
        """One of that was written."""
        self._written = look
        self._written_s = now_s


def _counts(look: WorkerLook) -> list[object]:
    return [_COUNTED(task) for task in look.tasks]


def _states(look: WorkerLook) -> list[object]:
    return [look.spark_ready, look.leaving, *map(_STATE, look.tasks)]
