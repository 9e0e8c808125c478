"""Tables on a terminal that is too narrow for them, as a pane beside others is."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest
from rich.console import RenderableType

from scribengin_tools.rendering.text import PipeConsole, state_text, table

PATH = "/srv/data/of/somebody/with/long/names/part-0.jsonl"


@pytest.mark.parametrize("width", [20, 40, 60])
def test_no_word_and_no_number_is_broken_and_nothing_is_cut(width: int) -> None:
    """The terminal wraps the lines, which are read all the same. Letters below each other are not."""
    shown = io.StringIO()
    rows: list[Sequence[RenderableType | int | None]] = [
        ("task-0", "worker-1", state_text("running"), 1_234_567, "36 min ago", None),
        ("task-1", "worker-12", "idle", 0, "-", f"no such file: {PATH}"),
    ]
    made = table(("TASK", "WORKER", "STATE", ">RECORDS", "COMMITTED", "ERROR"), rows)
    PipeConsole(file=shown, width=width).print(made)
    lines = [line.split() for line in shown.getvalue().splitlines()]
    assert lines[0] == ["TASK", "WORKER", "STATE", "RECORDS", "COMMITTED", "ERROR"]
    assert lines[1][:4] == ["task-0", "worker-1", "running", "1,234,567"]
    (second,) = (line for line in lines if line[:1] == ["task-1"])
    assert second[1:4] == ["worker-12", "idle", "0"]
    assert max(map(len, shown.getvalue().splitlines())) < 100, "a path is broken: the other columns stay in sight"
    assert PATH in "".join(line[-1] for line in lines if line)


def test_what_has_room_is_as_wide_as_before() -> None:
    shown = io.StringIO()
    PipeConsole(file=shown, width=80).print(table(("NAME", ">N"), [("ada", 7)]))
    assert [line.rstrip() for line in shown.getvalue().splitlines()] == ["NAME  N", "ada   7"]
