"""When a worker writes its report. Pure."""

from __future__ import annotations

from scribengin.dataflow.descriptors import WorkerReport

URGENT_GAP_S = 0.05
COUNTS_GAP_S = 1.0
SILENCE_MAX_S = 5.0


class ReportSchedule:
    """What the master waits for goes at once, counts once a second at most, and a word every few seconds in any
    case."""

    def __init__(self) -> None:
        self._written: WorkerReport | None = None
        self._written_s = 0.0

    def due(self, report: WorkerReport, now_s: float) -> bool:
        """Whether `report` is to be written now (`written_ms` does not count as a difference)."""
        if self._written is None:
            return True
        silence_s = now_s - self._written_s
        if _states(report) != _states(self._written):
            return silence_s >= URGENT_GAP_S
        if report.model_copy(update={"written_ms": self._written.written_ms}) != self._written:
            return silence_s >= COUNTS_GAP_S
        return silence_s >= SILENCE_MAX_S

    def written(self, report: WorkerReport, now_s: float) -> None:
        """This one was written."""
        self._written, self._written_s = report, now_s


def _states(report: WorkerReport) -> tuple[object, ...]:
    return (report.spark_ready, report.leaving, *((task.task, task.lease, task.state) for task in report.tasks))
