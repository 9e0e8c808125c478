"""What stands in the nodes of a dataflow must fit into them."""

from __future__ import annotations

from scribengin.dataflow.descriptors import ERRORS_CHARACTERS_MAX, TaskReport, WorkerReport, with_bounded_errors

TRACEBACK = "Traceback (most recent call last):\n" + "  File ...\n" * 300 + "ValueError: poison"


def failed(count: int, error: str = TRACEBACK) -> list[TaskReport]:
    return [TaskReport(task=f"task-{n}", lease=n, state="failed", error=error) for n in range(count)]


def test_a_few_errors_are_told_in_full() -> None:
    assert with_bounded_errors(failed(3)) == tuple(failed(3))


def test_of_very_many_errors_the_first_are_told_in_full_and_the_last_line_of_the_others() -> None:
    bounded = with_bounded_errors(failed(1000))
    assert [report.error for report in bounded[:2]] == [TRACEBACK, TRACEBACK]
    assert {report.error for report in bounded[100:]} == {"ValueError: poison"}
    assert len(WorkerReport(worker="w", written_ms=1, tasks=bounded).to_bytes()) < 900 * 1024


def test_also_a_single_line_without_end_is_bounded() -> None:
    bounded = with_bounded_errors(failed(1000, "x" * ERRORS_CHARACTERS_MAX))
    assert sum(len(report.error or "") for report in bounded) < 3 * ERRORS_CHARACTERS_MAX
