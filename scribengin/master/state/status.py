"""What a master tells people: the dataflow's status and its history. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from scribengin.base.names import natural
from scribengin.dataflow.registry.descriptors import (
    STATUS_TASKS_MAX,
    DataflowStatus,
    TaskReport,
    with_bounded_errors,
    without_details,
)
from scribengin.master.state.events import Instruction, PublishStatus, RecordHistory

STATUS_PERIOD_S = 1.0


class StatusPublisher:
    """Collects events for the history, and publishes the status when it has changed, once a second at most."""

    def __init__(self, now_s: float) -> None:
        self._history: list[Instruction] = []
        self._published: DataflowStatus | None = None
        self._published_s = now_s - STATUS_PERIOD_S

    def record(self, kind: str, message: str) -> None:
        """Something to be remembered has happened."""
        self._history.append(RecordHistory(kind, message))

    def forget(self) -> None:
        """What was recorded, and not told yet, is no news."""
        self._history = []

    def tell(self, status: DataflowStatus, now_s: float, *, last: bool) -> list[Instruction]:
        """What is to be written now; the `last` status is not held back."""
        told: list[Instruction] = []
        if status != self._published and (last or now_s - self._published_s >= STATUS_PERIOD_S):
            self._published = status
            self._published_s = now_s
            told.append(PublishStatus(status))
        told += self._history
        self._history = []
        return told


def shown_reports(reports: Iterable[TaskReport]) -> tuple[TaskReport, ...]:
    """The reports that a status has room for, those with errors before the others, in order of the tasks.

    Without details: those stand in the workers' own reports, and a status is written anew whenever one of them is.
    Without ages: they are of those reports, and a status that changed with them would be written for nothing else.
    """
    chosen = sorted(reports, key=lambda report: (report.error is None, natural(report.task)))[:STATUS_TASKS_MAX]
    return with_bounded_errors(map(_kept, sorted(chosen, key=lambda report: natural(report.task))))


def _kept(report: TaskReport) -> TaskReport:
    return without_details(report).model_copy(update={"lag_age_s": None})
