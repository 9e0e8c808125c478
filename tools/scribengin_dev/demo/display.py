"""What the demo shows while it runs: live bars on a terminal, a plain line now and then everywhere else."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.text import Text

from scribengin.base.clock import Clock

_LINE_EVERY_S = 5.0
_SAME_LINE_EVERY_S = 30.0
"""What has not changed is said again now and then: a pipe that stays silent looks like one that hangs."""


class Display:
    """Says what happens, and how far things are."""

    def __init__(self, console: Console, clock: Clock) -> None:
        self.console = console
        self._clock = clock
        self._begun_s = clock.monotonic_s()
        self._said = ""
        self._said_s = float("-inf")
        self._bars = Progress(
            TextColumn("{task.description:>24}"), BarColumn(40), MofNCompleteColumn(), console=console, transient=True
        )
        self._ids: dict[str, TaskID] = {}

    def __enter__(self) -> Display:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.hide()

    def say(self, what: str, style: str = "") -> None:
        """A line that stays, with the time since the beginning."""
        line = Text.assemble((f"{self._elapsed_s():6.1f} s  ", "dim"), (what, style))
        self.console.print(line, soft_wrap=True)

    def show(self, counts: Mapping[str, tuple[int, int]]) -> None:
        """How far things are: (done, of how many) by name."""
        if self.console.is_terminal:
            self._show_bars(counts)
            return
        line = ", ".join(f"{name} {done:,} of {total:,}" for name, (done, total) in counts.items())
        pause_s = _SAME_LINE_EVERY_S if line == self._said else _LINE_EVERY_S
        if self._elapsed_s() - self._said_s >= pause_s:
            self._said = line
            self._said_s = self._elapsed_s()
            self.say(line, "dim")

    def hide(self) -> None:
        """Take the bars away."""
        self._bars.stop()

    def _show_bars(self, counts: Mapping[str, tuple[int, int]]) -> None:
        self._bars.start()
        for name, (done, total) in counts.items():
            if name not in self._ids:
                self._ids[name] = self._bars.add_task(name, total=total)
            self._bars.update(self._ids[name], completed=done, total=total)

    def _elapsed_s(self) -> float:
        return self._clock.monotonic_s() - self._begun_s
