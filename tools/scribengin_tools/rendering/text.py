"""How commands print: plain tables that fit a terminal and survive a pipe, JSON, and errors as one line."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from scribengin.base.process.variables import seconds_of
from scribengin.base.text.counting import many
from scribengin.base.text.masking import masked_text
from scribengin.base.text.plain_words import in_plain_words
from scribengin_registry.threads import delayed
from scribengin_tools.terminal import visible, visible_on

if TYPE_CHECKING:
    from scribengin.dataflow.lag import Lag
    from scribengin.spark.transform.spec import StateReport

_PIPED_WIDTH = 400
"""What is piped is read by programs: nothing of it is cut or wrapped."""
_WORD_MAX = 20
"""A longer one is broken where a terminal has no room for it."""
SILENT_VARIABLE = "SCRIBENGIN_SILENT_MAX_S"
"""After so many seconds without a word a command says what it waits for. Default: 1, for who waits longer takes it for
one that hangs."""
_SILENT_MAX_S = 1.0
_verbose = False
_progressing: Console | None = None
"""Where a line of progress stands just now."""
_CALENDAR_YEARS = 400
_CALENDAR_MS = 146_097 * 86_400_000
"""After so many years, and days, the calendar is as before: Python's ends with the year 9999."""
_STATE_STYLES = {
    "running": "green",
    "finished": "green",
    "stopped": "cyan",
    "paused": "yellow",
    "starting": "yellow",
    "stopping": "yellow",
    "taking_over": "yellow",
    "waiting": "yellow",
    "isolating": "yellow",
    "failed": "bold red",
    "stalled": "bold red",
    "leaderless": "bold red",
    "killed": "red",
    "unreadable": "bold red",
}


class PipeConsole(Console):
    """A console that leaves a reader who has had enough (`| head`) to the command line's own handling, and shows what a
    terminal would obey instead of sending it."""

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        if self.file.isatty():
            buffer = [part if part.control else Segment(visible(part.text), part.style) for part in buffer]
        return super()._render_buffer(buffer)

    def print(self, *shown: Any, **options: Any) -> None:
        """As any console, but no end of a line is cut off where the terminal is too narrow for it."""
        super().print(*shown, **{"crop": False, **options})

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console(*, stderr: bool = False) -> Console:
    """For text on stdout (or stderr): as wide as the terminal, and as wide as it takes where there is none."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _PIPED_WIDTH
    return PipeConsole(stderr=stderr, highlight=False, soft_wrap=False, width=width)


def print_line(text: str, *, flush: bool = False) -> None:
    """A line on stdout, of which a terminal obeys nothing."""
    print(visible_on(sys.stdout, text), flush=flush)


def print_json(value: Any) -> None:
    """Indented JSON on stdout."""
    print(visible_on(sys.stdout, json.dumps(value, indent=2, ensure_ascii=False, default=str)))


def json_line(value: Any) -> str:
    """JSON in one line: for streams of records."""
    return json.dumps(value, ensure_ascii=False, default=str)


def print_json_line(value: Any) -> None:
    """One line of JSON on stdout."""
    print(visible_on(sys.stdout, json_line(value)))


def note(message: str) -> None:
    """Something for people, beside the output: on stderr, above a line of progress that stands there."""
    (_progressing or console(stderr=True)).print(Text(message), soft_wrap=True)


def silent_max_s() -> float:
    """For how many seconds a command waits without a word. Raises ConfigInvalid."""
    return seconds_of(SILENT_VARIABLE, _SILENT_MAX_S)


@contextmanager
def said_if_slow(what: str) -> Iterator[None]:
    """Say `what` on stderr, once, if the block takes longer than people wait without a word. Nothing of it is said
    later than the block's end. Raises ConfigInvalid."""
    saying = delayed("said-if-slow", silent_max_s(), partial(note, f"{what} ..."))
    saying.start()
    try:
        yield
    finally:
        saying.cancel()
        saying.join()


@contextmanager
def working(what: str, *, left: str = "") -> Iterator[Callable[[str], None]]:
    """Say on stderr, by the function that it gives, how far something is that is waited for: in one line that begins
    as `what` and changes on a terminal, else in a line for each change, for a silent pipe looks like one that hangs.
    `left` is said to whoever does not wait for the end, but ends the command with Ctrl-C."""
    try:
        with _line_of_progress(what) as progress:
            yield progress
    except KeyboardInterrupt:
        if left:
            note(left)
        raise


def left_of_chain(chain: str, verb: str, doing: str) -> str:
    """What `working` says to whoever leaves a chain of which each dataflow is asked in its turn to do that."""
    return (
        f"what of chain '{chain}' was asked to {verb} goes on {doing}, and the rest runs on: "
        f"`scribengin status {chain}` shows both, `scribengin {verb} {chain}` goes on from there"
    )


@contextmanager
def _line_of_progress(what: str) -> Iterator[Callable[[str], None]]:
    if sys.stderr.isatty():
        with _progress_on(console(stderr=True)) as terminal, terminal.status(Text(f"{what} ...")) as status:
            yield lambda progress: status.update(Text(f"{progress} ..."))
        return
    told: list[str] = []

    def update(progress: str) -> None:
        if told[-1:] != [progress]:
            told.append(progress)
            note(f"{progress} ...")

    yield update


@contextmanager
def _progress_on(terminal: Console) -> Iterator[Console]:
    """Only the console that keeps a line of progress can write beside it."""
    global _progressing
    before, _progressing = _progressing, terminal  # one above it goes on
    try:
        yield terminal
    finally:
        _progressing = before


def table(columns: Sequence[str], rows: Iterable[Sequence[RenderableType | int | None]]) -> Table:
    """A table without lines. A column whose heading begins with `>` is one of numbers. On a terminal that is too narrow
    words stay whole, unless they are as long as paths are, and the lines become longer than it is."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    cells = [[_cell(value) for value in row] for row in rows]
    for number, column in enumerate(columns):
        heading = column.removeprefix(">")
        words = [heading, *(row[number] for row in cells if number < len(row))]
        made.add_column(
            heading,
            justify="right" if column.startswith(">") else "left",
            overflow="fold",
            min_width=min(_WORD_MAX, max(map(_longest_word, words))),
        )
    for row in cells:
        made.add_row(*row)
    return made


def _longest_word(cell: RenderableType) -> int:
    text = cell.plain if isinstance(cell, Text) else cell
    return max(map(cell_len, text.split()), default=0) if isinstance(text, str) else 0


def facts(pairs: Iterable[tuple[str, RenderableType | int | None]]) -> Table:
    """Names and values, a line each; those without a value are left out."""
    made = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    made.add_column(style="bold", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in pairs:
        if value is not None and value != "":
            made.add_row(name, _cell(value))
    return made


def lag_text(lag: Lag, number: Callable[[int], str] = "{:,}".format) -> str:
    """How many records wait: `?` when nobody has looked, `~` before what is old, or leaves something out."""
    if lag.lag_records is None:
        return "?"
    return f"{'~' if lag.lag_about else ''}{number(lag.lag_records)}"


def state_text(state: str) -> Text:
    """A state in its colour."""
    return Text(state, style=_STATE_STYLES.get(state, ""))


def error_text(message: str) -> Text:
    """Something that is wrong."""
    return Text(message, style="red")


def moment(at_ms: int | None) -> str:
    """A time for people, in their time zone; `-` when there is none. Any year: records say what they like."""
    if not at_ms:
        return "-"
    cycles, within_ms = divmod(at_ms, _CALENDAR_MS) if at_ms > _CALENDAR_MS else (0, at_ms)
    at = datetime.fromtimestamp(within_ms / 1000).astimezone()
    return f"{at.year + _CALENDAR_YEARS * cycles:04}-{at:%m-%d %H:%M:%S}"


def age(at_ms: int | None, now_ms: int) -> str:
    """How long ago something was, in its largest unit: `12 s`, `3 min`, `2 h`, `5 d`."""
    if not at_ms:
        return "-"
    seconds = max(0, now_ms - at_ms) // 1000
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def byte_count(count: int) -> str:
    """A size for people: `12 B`, `3.4 MiB`."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def kept_text(kept: StateReport) -> str:
    """What state a dataflow keeps: rows and bytes, the watermark and who holds it back, rows that came too late."""
    rows = ", ".join(f"{name} {many(count, 'row')}" for name, count in kept.rows.items()) or "nothing yet"
    parts = [f"{rows}, {byte_count(kept.bytes)}"]
    if kept.watermark_ms is not None:
        parts.append(f"watermark {moment(kept.watermark_ms)}")
    if kept.held_back_by is not None:
        parts.append(f"held back by {kept.held_back_by}")
    if kept.late:
        parts.append(f"{many(kept.late, 'row')} too late")
    if kept.late_routed:
        parts.append(f"{many(kept.late_routed, 'late record')} in their sink")
    return "; ".join(parts)


def report(error: BaseException, said: str | None = None) -> None:
    """An error as `print_error` has it, behind its whole traceback if the user wants to see those. `said`: what is said
    of it instead of its own words."""
    if _verbose:
        traceback.print_exception(error)
    print_error(in_plain_words(error) if said is None else said)


def set_verbose(verbose: bool) -> None:
    """Whether `report` shows tracebacks."""
    global _verbose
    _verbose = verbose


def print_error(message: str) -> None:
    """An error on stderr, behind the command's name. A user's traceback comes before the line that sums it up."""
    text = visible_on(sys.stderr, masked_text(message.strip()))
    body, _newline, last = text.rpartition("\n")
    if "Traceback (most recent call last)" in body:
        print(body, f"scribengin: {last.strip()}", sep="\n", file=sys.stderr)
    else:
        print(f"scribengin: {text}", file=sys.stderr)


def _cell(value: RenderableType | int | None) -> RenderableType:
    if value is None:
        return Text("-")
    if isinstance(value, int):
        return Text(f"{value:,}")
    return Text(value) if isinstance(value, str) else value
