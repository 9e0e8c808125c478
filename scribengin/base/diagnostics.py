"""What processes say, besides what they report: the standard library's logging, one line an event.

A module of ours logs to `logging.getLogger(__name__)`; `extra=tagged("task_taken_over", task=...)` names the event and
what belongs to it. `configure_logging` is for a process of ours: from then on a line goes to standard output, and a
warning or worse to standard error. A program that uses our library configures logging as it likes.

With SCRIBENGIN_LOG_FORMAT=json each line is an object: `time`, `event`, `message`, who says it (`dataflow`, `worker` or
`master`), what it is about (`task`, `round`, ...), and `traceback` where there is one. Else it is the time and the
message. Containers inherit the variable from who submits, and the log of a container is what it said.

Saying never raises: a disk that is full under the log is no reason to stop working. What could not be said is counted,
and the next line that is taken says how much it was.

The engine returns or raises: what is said here is said by the shells of processes, of what has become of something.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from types import TracebackType
from typing import TextIO

FORMAT_VARIABLE = "SCRIBENGIN_LOG_FORMAT"
"""`json`: what processes say is a JSON object a line. Set it where the dataflow is submitted. Default: lines for
people."""
_OURS = logging.getLogger("scribengin")
_context: ContextVar[Mapping[str, object]] = ContextVar("context")


def configure_logging(*, rotate: Callable[[int], None] | None = None, **who: object) -> None:
    """Have this process write its lines, each of which names its dataflow, worker or master. Call it again to name
    another. `rotate` is called with the stream's descriptor after each line; it may raise OSError."""
    unconfigure_logging()
    _OURS.addHandler(LineHandler(who, rotate))
    _OURS.setLevel(logging.INFO)
    _OURS.propagate = False


def unconfigure_logging() -> None:
    """As if `configure_logging` had never been called."""
    for handler in [handler for handler in _OURS.handlers if isinstance(handler, LineHandler)]:
        _OURS.removeHandler(handler)
    _OURS.setLevel(logging.NOTSET)
    _OURS.propagate = True


class log_context:  # noqa: N801  used as a function
    """Whatever this thread says inside of the block is about these: a task, a round.

    A class and no generator, because executors pass it at every step, also of tasks that are idle.
    """

    __slots__ = ("_fields", "_token")

    def __init__(self, **fields: object) -> None:
        self._fields = fields

    def __enter__(self) -> None:
        self._token = _context.set({**_context.get({}), **self._fields})

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _context.reset(self._token)


def tagged(name: str, /, **fields: object) -> dict[str, object]:
    """The `extra` of a line: the name of what has happened, and what else a program wants to know of it."""
    return {"event": name, "fields": fields}


class LineHandler(logging.Handler):
    """Writes records to the standard streams, whatever these are just then."""

    def __init__(self, who: Mapping[str, object], rotate: Callable[[int], None] | None = None) -> None:
        super().__init__()
        self._who = who
        self._rotate = rotate
        self._unsaid = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line. Never raises."""
        stream = sys.stderr if record.levelno >= logging.WARNING else sys.stdout
        try:
            if self._unsaid:
                said = f"{self._unsaid} lines could not be said here: no room"
                _print(stream, self.format(_record_of("lines_lost", said)))
                self._unsaid = 0
            _print(stream, self.format(record))
        except (OSError, ValueError):  # the disk is full, the pipe's reader has gone, the stream was closed
            self._unsaid += 1
        if self._rotate is not None:
            with suppress(OSError, ValueError):  # then the file grows further
                self._rotate(stream.fileno())

    def format(self, record: logging.LogRecord) -> str:
        """The line, for people or for programs."""
        trace = f"{logging.Formatter().formatException(record.exc_info)}\n" if record.exc_info else ""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        if os.environ.get(FORMAT_VARIABLE) != "json":
            return f"{trace}{time.removesuffix('+00:00')}Z {record.getMessage()}"
        known = {**self._who, **_context.get({}), **getattr(record, "fields", {})}
        value = {"time": time, "event": getattr(record, "event", record.name), "message": record.getMessage(), **known}
        return json.dumps(value | ({"traceback": trace} if trace else {}), ensure_ascii=False, default=str)


def _record_of(name: str, message: str) -> logging.LogRecord:
    return logging.makeLogRecord({"name": __name__, "msg": message, **tagged(name)})


def _print(stream: TextIO, line: str) -> None:
    """Raises OSError, ValueError. Half a character of a name from elsewhere is no reason to raise."""
    print(line.encode(errors="backslashreplace").decode(), file=stream, flush=True)
