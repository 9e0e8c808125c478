"""What the demo shows at its end: the table of what was measured, and a small bar chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from scribengin_dev.demo.verdict import Comparison

_BAR_WIDTH = 36


@dataclass(frozen=True, slots=True)
class OutputRow:
    """One line of the table: `read` are the records of the input it was made from, `elapsed_s` the time that took."""

    read: int
    verdict: Comparison
    elapsed_s: float

    @property
    def rows_per_s(self) -> float:
        """Records read per second, standstills and the producer's pace included."""
        return self.read / self.elapsed_s if self.elapsed_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Standstill:
    """How long one task made no commit around a death. `its_own`: the task was the dead worker's; else it was somebody
    else's, and `gap_ms` is its longest pause from then on. None: nothing was committed afterwards."""

    victim: str
    task: str
    stream: str
    gap_ms: int | None
    its_own: bool


def standstill_table(standstills: Sequence[Standstill], session_timeout_s: float) -> Table:
    """A line for each task that was looked at."""
    table = Table(
        title=f"Between two commits (session timeout {session_timeout_s:g} s)", title_justify="left", box=SIMPLE
    )
    for heading in ("killed", "task", "reads", "what it did"):
        table.add_column(heading)
    table.add_column("seconds", justify="right")
    for still in standstills:
        what = "stood still" if still.its_own else "went on; longest pause"
        gap = "nothing left to do" if still.gap_ms is None else f"{still.gap_ms / 1000:.1f}"
        table.add_row(still.victim, still.task, still.stream, what, gap)
    return table


def measured_table(outputs: Sequence[OutputRow]) -> Table:
    """Everything that was read back, an output a line."""
    table = _table("Measured by reading the outputs back")
    table.add_column("output")
    for heading in ("read", "expected", "written", "lost", "duplicated", "wrong", "rows/s"):
        table.add_column(heading, justify="right")
    for output in outputs:
        verdict = output.verdict
        faults = [_fault(count) for count in (verdict.lost, verdict.duplicated, verdict.wrong)]
        counts = [f"{count:,}" for count in (output.read, verdict.expected, verdict.found)]
        table.add_row(verdict.output, *counts, *faults, f"{output.rows_per_s:,.0f}")
    return table


def average_delays(named: pd.DataFrame) -> list[tuple[str, float]]:
    """(airline, average delay in minutes of its delayed flights), the latest first."""
    if not len(named):
        return []
    means = named.groupby("airline")["delay"].mean().sort_values(ascending=False)
    return [(str(airline), float(minutes)) for airline, minutes in means.items()]


def print_chart(console: Console, delays: Sequence[tuple[str, float]]) -> None:
    """One bar an airline."""
    console.print("Average delay of the delayed flights, in minutes", style="bold")
    longest = max((minutes for _, minutes in delays), default=1.0)
    names_width = max((len(airline) for airline, _ in delays), default=0)
    for airline, minutes in delays:
        bar = "█" * max(1, round(_BAR_WIDTH * minutes / longest))
        console.print(Text.assemble(f"{airline:>{names_width}} ", (bar, "cyan"), f" {minutes:.0f}"))


def _table(title: str) -> Table:
    """Narrow enough for 80 columns."""
    return Table(title=title, title_justify="left", title_style="bold", box=SIMPLE, padding=(0, 0, 0, 1))


def _fault(count: int) -> Text:
    return Text(f"{count:,}", style="bold red" if count else "green")
