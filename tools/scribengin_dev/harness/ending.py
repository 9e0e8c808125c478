"""How the demo and the benchmarks end: an error is one line, Ctrl-C and SIGTERM stop everything that was started."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

from scribengin.errors import ScribenginError
from scribengin_registry.client import heard

_INTERRUPTED = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def ending_cleanly(program: str) -> Iterator[None]:
    """Run the block; an error of ours, or a signal, becomes a line on stderr and an exit code (130 for a signal).

    Only the first signal interrupts: the rest would break off the cleaning up. What goes wrong after it is its doing.
    """
    interrupted = threading.Event()

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        interrupted.set()
        raise KeyboardInterrupt

    before = {number: signal.signal(number, heard(interrupt)) for number in _SIGNALS}
    try:
        yield
    except (ScribenginError, KeyboardInterrupt) as error:
        if isinstance(error, KeyboardInterrupt) or interrupted.is_set():
            print(f"{program}: interrupted; everything it had started is stopped", file=sys.stderr)
            raise typer.Exit(_INTERRUPTED) from None
        print(f"{program}: {error}", file=sys.stderr)
        raise typer.Exit(error.exit_code) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
