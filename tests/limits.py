"""How long a test may take: also one that pytest-timeout's alarm does not end."""

from __future__ import annotations

import faulthandler
import signal

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

GRACE_S = 300.0
"""So long behind its limit a test may clean up."""


class Limit:
    """The time that pytest-timeout has just given to a test, by an alarm: which it takes back when the test fails.

    The alarm raises an exception, once. A test that goes on nevertheless, since it waits in C or while it cleans up,
    would hold up the run for ever: its process shows what each thread does, and ends.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._shown_in = config.stash.get(fault_handler_stderr_fd_key, None)
        self._handler = signal.getsignal(signal.SIGALRM)
        self._left_s = signal.getitimer(signal.ITIMER_REAL)[0]
        self._end_later()

    def begin(self) -> None:
        """Give it so much time again, from now on. It is taken back with the test's end."""
        if self._left_s:
            signal.signal(signal.SIGALRM, self._handler)
            signal.setitimer(signal.ITIMER_REAL, self._left_s)
            self._end_later()

    def end(self) -> None:
        faulthandler.cancel_dump_traceback_later()

    def _end_later(self) -> None:
        if self._left_s and self._shown_in is not None:
            faulthandler.dump_traceback_later(self._left_s + GRACE_S, exit=True, file=self._shown_in)
