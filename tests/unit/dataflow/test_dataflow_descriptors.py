"""What stands in the nodes of a dataflow must fit into them."""

from __future__ import annotations

import json

import pytest

from scribengin.base.commit_log import CommitLog
from scribengin.base.model import Descriptor
from scribengin.connectors.files.sink.segments import MergeDescriptor
from scribengin.dataflow.registry.descriptors import (
    ERRORS_BYTES_MAX,
    LAG_STREAMS_MAX,
    ConfigEdit,
    ConfigInForce,
    DataflowStatus,
    HistoryEvent,
    PhaseTimes,
    PlacementHead,
    RoundTimes,
    StreamLag,
    TaskAssignment,
    TaskReport,
    WorkerReport,
    joined_errors,
    with_bounded_details,
    with_bounded_errors,
)
from scribengin.errors import DescriptorUnreadable
from scribengin.master.state.status import shown_reports
from scribengin_registry.client import REQUEST_BYTES_MAX

TRACEBACK = "Traceback (most recent call last):\n" + "  File ...\n" * 300 + "ValueError: poison"


def failed(count: int, error: str = TRACEBACK) -> list[TaskReport]:
    return [TaskReport(task=f"task-{n}", generation=n, state="failed", error=error) for n in range(count)]


def test_a_few_errors_are_told_in_full() -> None:
    assert with_bounded_errors(failed(3)) == tuple(failed(3))


def test_of_very_many_errors_the_first_are_told_in_full_and_the_last_line_of_the_others() -> None:
    bounded = with_bounded_errors(failed(1000))
    assert [report.error for report in bounded[:2]] == [TRACEBACK, TRACEBACK]
    assert {report.error for report in bounded[100:]} == {"ValueError: poison"}
    assert len(WorkerReport(worker="w", written_ms=1, tasks=bounded).to_bytes()) < 900 * 1024


def test_also_a_single_line_without_end_is_bounded() -> None:
    bounded = with_bounded_errors(failed(1000, "x" * ERRORS_BYTES_MAX))
    assert sum(len(report.error or "") for report in bounded) < 3 * ERRORS_BYTES_MAX


@pytest.mark.parametrize("error", ["\n", " " * 4000, "飛" * 4000, "\x1b" * 4000, "\n" * 4000])
def test_errors_are_bounded_by_what_they_take_in_a_node_whatever_their_letters_are(error: str) -> None:
    bounded = with_bounded_errors(failed(1000, error))
    assert all(report.error for report in bounded)
    assert len(WorkerReport(worker="w", written_ms=1, tasks=bounded).to_bytes()) < REQUEST_BYTES_MAX / 2


def test_a_status_says_of_what_very_many_tasks_died_as_far_as_there_is_room() -> None:
    troubles = [f"task-{number}: {TRACEBACK}" for number in range(2000)]
    assert joined_errors(troubles[:3]) == "\n\n".join(troubles[:3])
    assert joined_errors([]) is None
    told = joined_errors(troubles) or ""
    assert told.startswith(troubles[0])
    assert told.endswith("and 1,983 more")
    assert len(told) < ERRORS_BYTES_MAX
    assert len(joined_errors(["飛" * ERRORS_BYTES_MAX]) or "") < ERRORS_BYTES_MAX


def test_half_a_character_in_an_error_is_told_as_its_escape() -> None:
    """As of a file whose name is no text, or of a record. Nobody could write it into a node."""
    told = (
        TaskReport(task="t", generation=1, state="failed", error="no \udcff"),
        HistoryEvent(at_ms=1, kind="worker_ended", message="no \udcff"),
        DataflowStatus(dataflow="d", state="failed", config_version=1, error="no \udcff", config_error="no \udcff"),
        ConfigEdit(version=1, at_ms=1, error="no \udcff", changes=("no \udcff",), actions=("no \udcff",)),
    )
    assert all(b"no \\\\udcff" in one.to_bytes() for one in told)


MS = 123_456.7
TIMES = PhaseTimes(plan=MS, run=MS, prepare=MS, commit=MS, complete=MS)


def detailed(count: int) -> list[TaskReport]:
    """As long as reports can be: every value is long, every task has failed with a different error."""
    big = 123_456_789
    return [
        TaskReport(
            task=f"task-{n}", generation=big, state="failed", rounds=big, records_in=big, records_out=big,
            records_bad=big,
            lag_records=n, last_commit_ms=1_700_000_000_000, round_ms=MS, error=f"{n} {TRACEBACK}", failures=big,
            in_per_s=MS, out_per_s=MS, behind_s=MS, times=RoundTimes(last=TIMES, mean=TIMES),
            lag=tuple(StreamLag(source="flights", stream=f"flights/2013/{k}", records=big) for k in range(99)),
        )
        for n in range(count)
    ]  # fmt: skip


def test_2000_tasks_of_one_worker_fit_into_its_report_in_the_worst_case() -> None:
    tasks = with_bounded_details(with_bounded_errors(detailed(2000)))
    report = WorkerReport(worker="w", written_ms=1, tasks=tasks)
    assert len(report.to_bytes()) < REQUEST_BYTES_MAX
    assert WorkerReport.from_bytes(report.to_bytes(), path="/report") == report


def test_details_are_those_of_the_tasks_furthest_behind() -> None:
    tasks = with_bounded_details([t.model_copy(update={"lag": t.lag[:LAG_STREAMS_MAX]}) for t in detailed(2000)])
    told = [n for n, task in enumerate(tasks) if task.lag]
    assert told == list(range(2000 - len(told), 2000))
    assert 20 < len(told) < 200
    assert all((task.times is None) == (not task.lag) for task in tasks)


def test_a_status_takes_the_tasks_without_their_details() -> None:
    status = DataflowStatus(dataflow="d", state="failed", config_version=1, tasks=shown_reports(detailed(2000)))
    assert not any(task.lag or task.times for task in status.tasks)
    assert len(status.to_bytes()) < REQUEST_BYTES_MAX


@pytest.mark.parametrize(
    "kind", [CommitLog, TaskAssignment, TaskReport, WorkerReport, PlacementHead, ConfigInForce, MergeDescriptor]
)
@pytest.mark.parametrize("number", [1, 3])
def test_a_node_of_another_version_is_refused_in_words(kind: type[Descriptor], number: int) -> None:
    assert kind.model_fields["format"].default == 2
    with pytest.raises(DescriptorUnreadable, match=f"/node .*format {number} is another version's .* reads format 2"):
        kind.from_bytes(json.dumps({"format": number}).encode(), path="/node")
