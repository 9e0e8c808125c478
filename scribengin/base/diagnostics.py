"""What processes say, besides what they report: one line an event, for people or, as JSON, for programs.

With SCRIBENGIN_LOG_FORMAT=json each line is an object: `time`, `event`, `message`, who says it (`dataflow`, `worker` or
`master`), what it is about (`task`, `round`, ...), and `traceback` where there is one. Else it is the time and the
message. Trouble goes to standard error, everything else to standard output. Containers inherit the variable from who
submits, and the log of a container is what it said.

Saying never raises: a disk that is full under the log is no reason to stop working. What could not be said is counted,
and the next line that is taken says how much it was.

The engine returns or raises: what is said here is said by the shells of processes, of what has become of something.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TextIO

from scribengin.base.clock import SYSTEM_CLOCK

FORMAT_VARIABLE = "SCRIBENGIN_LOG_FORMAT"
_lock = threading.Lock()
_unsaid = 0
_speaker: dict[str, object] = {}
_subject: ContextVar[dict[str, object] | None] = ContextVar("subject", default=None)


def speak_as(**who: object) -> None:
    """From now on every line of this process names its dataflow, worker or master."""
    _speaker.clear()
    _speaker.update(who)


@contextmanager
def about(**fields: object) -> Iterator[None]:
    """Whatever this thread says inside of the block is about these: a task, a round."""
    token = _subject.set({**(_subject.get() or {}), **fields})
    try:
        yield
    finally:
        _subject.reset(token)


def say(event: str, message: str, **fields: object) -> None:
    """Something has happened."""
    _write(sys.stdout, event, message, fields, None)


def complain(event: str, message: str, *, error: BaseException | None = None, **fields: object) -> None:
    """Something is amiss; of an `error`, where it happened is told, too."""
    _write(sys.stderr, event, message, fields, error)


def _write(stream: TextIO, event: str, message: str, fields: dict[str, object], error: BaseException | None) -> None:
    global _unsaid
    line = _line(event, message, fields, error)
    with _lock:
        try:
            if _unsaid:
                _print(stream, _line("lines_lost", f"{_unsaid} lines could not be said here: no room", {}, None))
                _unsaid = 0
            _print(stream, line)
        except (OSError, ValueError):  # the disk is full, the pipe's reader has gone, the stream was closed
            _unsaid += 1


def _line(event: str, message: str, fields: dict[str, object], error: BaseException | None) -> str:
    trace = "".join(traceback.format_exception(error)) if error is not None else ""
    time = datetime.fromtimestamp(SYSTEM_CLOCK.now_ms() / 1000, UTC).isoformat(timespec="milliseconds")
    if os.environ.get(FORMAT_VARIABLE) != "json":
        return f"{trace}{time.removesuffix('+00:00')}Z {message}"
    known = {**_speaker, **(_subject.get() or {}), **fields}
    value = {"time": time, "event": event, "message": message, **known, **({"traceback": trace} if trace else {})}
    return json.dumps(value, ensure_ascii=False, default=str)


def _print(stream: TextIO, line: str) -> None:
    """Raises OSError, ValueError. Half a character of a name from elsewhere is no reason to raise."""
    print(line.encode(errors="backslashreplace").decode(), file=stream, flush=True)
