"""Whether a task makes progress, from what its worker reports of it. Pure.

A process that lives says nothing about its work. A task is *stalled* when it has had something to do for longer than
its limit, and nothing was committed: records wait, or a round or a take-over goes on without an end. What waits in a
paused source is nothing to do. A search for bad records moves with each of its steps. The limit is `stalled_after_s` of
the config, and longer where rounds are: STALL_TURNS times what its worker's tasks take for a round each, because tasks
take turns.

`behind_s` is measured by the worker, on a clock that does not jump. A worker that has said nothing for SILENT_S is
taken at its last word: what was waiting then is waiting still, and what else it has may be waiting, too. How old a word
is depends on two wall clocks, the worker's and the reader's.
"""

from __future__ import annotations

from collections.abc import Iterable

from scribengin.dataflow.registry.descriptors import TaskReport, TaskState, WorkerReport

STALL_TURNS = 3
SILENT_S = 15.0
"""Three times as long as a worker may leave its report unwritten."""
WORKING_STATES: tuple[TaskState, ...] = ("taking_over", "waiting", "running", "isolating", "idle")


def age_s(report: WorkerReport, now_ms: int) -> float:
    """How old a report is; 0 when clocks differ so that it seems to be of the future."""
    return max(0.0, (now_ms - report.written_ms) / 1000)


def limit_s(tasks: Iterable[TaskReport], stalled_after_s: float) -> float:
    """How long a task may be behind, `tasks` being those of its worker."""
    return max(stalled_after_s, STALL_TURNS * sum(task.round_ms or 0.0 for task in tasks) / 1000)


def behind_s(task: TaskReport, report_age_s: float) -> float:
    """For how long a task has been behind by now."""
    if task.state not in WORKING_STATES:
        return 0.0
    return task.behind_s + report_age_s if task.behind_s or report_age_s > SILENT_S else 0.0


def stalled_tasks(report: WorkerReport, now_ms: int, stalled_after_s: float) -> dict[str, float]:
    """The stalled ones among a worker's tasks: for how long each has been behind, in seconds."""
    limit, age = limit_s(report.tasks, stalled_after_s), age_s(report, now_ms)
    behind = {task.task: behind_s(task, age) for task in report.tasks}
    return {task: seconds for task, seconds in behind.items() if seconds > limit}
