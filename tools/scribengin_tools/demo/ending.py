"""How the demo and the benchmarks end: an error is one line, Ctrl-C and SIGTERM stop everything that was started."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

from scribengin.errors import ScribenginError

_INTERRUPTED = 130


@contextmanager
def ending_cleanly(program: str) -> Iterator[None]:
    """Run the block; an error of ours, or a signal, becomes a line on stderr and an exit code (130 for a signal).

    Only the first signal interrupts: the rest would break off the cleaning up.
    """
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except ScribenginError as error:
        print(f"{program}: {error}", file=sys.stderr)
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        print(f"{program}: interrupted; everything it had started is stopped", file=sys.stderr)
        raise typer.Exit(_INTERRUPTED) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
