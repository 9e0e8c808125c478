"""What the monitor shows, as text."""

from __future__ import annotations

from typing import Any

import pytest

from scribengin.dataflow.lag import LagOverview
from scribengin.monitoring.overview import DataflowOverview, TaskOverview
from scribengin_tools.monitor.cells import (
    FLOW_COLUMNS,
    TASK_COLUMNS,
    TASKS_SHOWN_MAX,
    ChainRow,
    chain_lines,
    compact,
    detail_lines,
    duration,
    flow_cells,
    in_order,
    row_cells,
    short,
    task_cells,
    tasks_shown,
)
from scribengin_tools.rendering.text import age, lag_text

NOW_MS = 10**12


def overview(name: str = "hot", **fields: Any) -> DataflowOverview:
    return DataflowOverview.model_validate(
        {
            "dataflow": name,
            "state": "running",
            "desired_state": "running",
            "config_version": 0,
            "config_version_latest": 0,
            **fields,
        }
    )


def task(number: int, **fields: Any) -> TaskOverview:
    return TaskOverview.model_validate({"task": f"task-{number}", "generation": 1, "state": "running", **fields})


def details(found: DataflowOverview) -> list[str]:
    return [str(line) for line in detail_lines(found)]


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (3.46, "3.5"), (99.94, "99.9"), (99.96, "100"), (999.4, "999"), (999.6, "1.0k"), (12_345, "12.3k"),
     (99_960, "100k"), (999_499, "999k"), (999_600, "1.0M"), (7_250_000_000, "7.2G")],
)  # fmt: skip
def test_numbers_are_short(number: float, text: str) -> None:
    assert short(number) == text


@pytest.mark.parametrize(
    ("milliseconds", "text"), [(0.4, "0 ms"), (58.3, "58 ms"), (999.4, "999 ms"), (1500, "1.5 s"), (150_000, "2.5 min")]
)
def test_durations_have_a_unit(milliseconds: float, text: str) -> None:
    assert duration(milliseconds) == text


def test_no_value_of_a_column_is_wider_than_the_column() -> None:
    numbers = (0, 9.94, 99.96, 999.5, 12_345.6, 999_949, 10**9, 9.99e11)
    assert max(len(short(number)) for number in numbers) <= FLOW_COLUMNS[">IN/S"]
    old = [LagOverview(lag_records=int(number), lag_about=True) for number in numbers]
    assert max(len(lag_text(lag, short)) for lag in old) <= FLOW_COLUMNS[">LAG"]
    ages = (1_000, 119_000, 120_000, 7_199_000, 7_200_000, 172_799_000, 10**9)
    assert max(len(compact(age(NOW_MS - ms, NOW_MS))) for ms in ages) <= FLOW_COLUMNS[">AGE"]
    times = (0.1, 58, 999.4, 1500, 59_940, 60_000, 3_600_000)
    assert max(len(compact(duration(ms))) for ms in times) <= FLOW_COLUMNS[">ROUND"]


def test_a_dataflow_of_which_nothing_is_known_yet_is_a_line_all_the_same() -> None:
    cells = [str(cell) for cell in flow_cells(overview(state="starting", workers_wanted=3), NOW_MS)]
    assert cells == ["hot", "starting", "0/3", "0", "0", "0", "?", "-", "-", "0"]
    assert len(cells) == len(FLOW_COLUMNS)
    assert [str(cell) for cell in task_cells(task(0), NOW_MS)] == [
        "task-0", "running", "-", "0", "0", "?", "-", "-", "0",
    ]  # fmt: skip
    assert len(TASK_COLUMNS) == 9


def test_those_in_trouble_come_first_and_numbers_count_as_numbers() -> None:
    names = ["flow-10", "flow-9", "flow-1"]
    found = [*(overview(name) for name in names), overview("z", state="stalled"), overview("y", state="failed")]
    assert [p.dataflow for p in in_order(found)] == ["y", "z", "flow-1", "flow-9", "flow-10"]


def test_of_very_many_tasks_the_stalled_ones_and_those_furthest_behind_are_shown() -> None:
    tasks = [task(n, lag_records=n) for n in range(2000)]
    tasks[0] = task(0, stalled=True)
    found = overview(tasks=tuple(tasks))
    shown = [int(t.task.removeprefix("task-")) for t in tasks_shown(found)]
    assert shown == [0, *range(2001 - TASKS_SHOWN_MAX, 2000)]
    assert "tasks   the 200 furthest behind of 2,000" in details(found)
    assert len(tasks_shown(overview(tasks=tuple(tasks[:5])))) == 5


def test_what_is_amiss_is_said_in_one_line_each() -> None:
    found = overview(
        error="Traceback (most recent call last):\n  File ...\nValueError: poison",
        config_error="version 2 of the config is refused",
        tasks_unassigned=("task-0", "task-1"),
        desired_state="paused",
    )
    assert details(found) == [
        "hot  config 0  no master is alive  to be paused",
        "waiting 2 tasks have no worker",
        "config  version 2 of the config is refused",
        "error   ValueError: poison",
    ]
    assert details(overview(state="stopped", desired_state="stopped")) == ["hot  config 0"]


def test_nothing_that_others_have_named_commands_a_terminal() -> None:
    evil = "a\x1b]0;owned\x07\x1b[2J\x9b31m"
    doing = TaskOverview.model_validate(
        {"task": evil, "generation": 1, "state": "running", "worker": evil, "stalled": True, "error": evil}
    )
    part = overview(evil, chain=f"{evil}/{evil}", master=evil, masters=1, desired_state=evil, tasks=(doing,))
    lost = overview(evil, state="unreadable", error=evil)
    (chain, *_rest) = in_order([part])
    assert isinstance(chain, ChainRow)
    texts = [
        *row_cells(chain, NOW_MS), *row_cells(part, NOW_MS), *row_cells(lost, NOW_MS), *task_cells(doing, NOW_MS),
        *detail_lines(part), *detail_lines(lost), *chain_lines(chain),
    ]  # fmt: skip
    assert [str(text) for text in texts if {"\x1b", "\x07", "\x9b"} & set(str(text))] == []
    assert sum("owned" in str(text) for text in texts) >= 9
