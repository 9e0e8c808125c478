"""When a worker writes its report. Pure."""

from __future__ import annotations

from operator import attrgetter

from scribengin.dataflow.registry.descriptors import TaskReport, WorkerReport

URGENT_GAP_S = 0.05
COUNTS_GAP_S = 1.0
SILENCE_MAX_S = 5.0
_OF_TIME = ("in_per_s", "out_per_s", "behind_s", "lag_age_s")
"""What changes by time alone: of that, a word every few seconds is enough."""
_COUNTED = attrgetter(*(name for name in TaskReport.model_fields if name not in _OF_TIME))


class ReportSchedule:
    """What the master waits for goes at once, counts once a second at most, and a word every few seconds in any
    case."""

    def __init__(self) -> None:
        self._written: WorkerReport | None = None
        self._written_s = 0.0

    def due(self, report: WorkerReport, now_s: float) -> bool:
        """Whether `report` is to be written now."""
        if self._written is None:
            return True
        silence_s = now_s - self._written_s
        if _states(report) != _states(self._written):
            return silence_s >= URGENT_GAP_S
        if _counts(report) != _counts(self._written):
            return silence_s >= COUNTS_GAP_S
        return silence_s >= SILENCE_MAX_S

    def written(self, report: WorkerReport, now_s: float) -> None:
        """This one was written."""
        self._written = report
        self._written_s = now_s


def _counts(report: WorkerReport) -> list[object]:
    return [_COUNTED(task) for task in report.tasks]


def _states(report: WorkerReport) -> tuple[object, ...]:
    return (report.spark_ready, report.leaving, *((task.task, task.generation, task.state) for task in report.tasks))
