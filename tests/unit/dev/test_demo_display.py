"""What the demo says in a pipe while nothing changes, and when something does."""

from __future__ import annotations

import io

from rich.console import Console

from scribengin.testing.clocks import ManualClock
from scribengin_dev.demo.display import Display


def test_a_pipe_is_told_what_changes_at_once_and_what_does_not_now_and_then() -> None:
    clock, out = ManualClock(), io.StringIO()
    display = Display(Console(file=out, width=80), clock)
    for second in range(70):
        display.show({"streams taken over": (0 if second < 66 else 4, 4)})
        clock.advance_s(1)
    assert [line.split(maxsplit=2) for line in out.getvalue().splitlines()] == [
        ["0.0", "s", "streams taken over 0 of 4"],
        ["30.0", "s", "streams taken over 0 of 4"],
        ["60.0", "s", "streams taken over 0 of 4"],
        ["66.0", "s", "streams taken over 4 of 4"],
    ]
