"""A test whose time is over ends, whatever it does by then; where nothing else helps, the process that runs it does.

pytest-timeout raises an exception in a test, once, and gives no more time once a test has failed. So whatever waited
for ever behind that, a fixture's end or another `finally`, had held up a whole run without a word. Now the fixtures of
a test that failed have as much time again as it had. What is still there long after that, or stands in C, ends its
process: which says where each thread stands, and the run names the test.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from collections.abc import Generator

import pytest

GRACE_VARIABLE = "SCRIBENGIN_TEST_GRACE_S"
GRACE_S = 180.0
"""Behind the time of a test: whoever heard of its end has so long for what has to be done then."""


class Limit:
    """The time that pytest-timeout has just given to a test, by an alarm: which it takes back when the test fails."""

    def __init__(self) -> None:
        self._handler = signal.getsignal(signal.SIGALRM)
        self._left_s = signal.getitimer(signal.ITIMER_REAL)[0]

    def begin(self) -> None:
        """Give it so much time again, from now on. It is taken back with the test's end."""
        if self._left_s:
            signal.signal(signal.SIGALRM, self._handler)
            signal.setitimer(signal.ITIMER_REAL, self._left_s)

    def begin_last(self, file: int) -> None:
        """From now on the process has so much time, and the grace. Then it ends, and `file` gets its stacks."""
        if self._left_s:
            grace_s = float(os.environ.get(GRACE_VARIABLE, GRACE_S))
            faulthandler.dump_traceback_later(self._left_s + grace_s, exit=True, file=file)


class LastLimit:
    """The plugin's part in a process that runs tests. Each step of a test, and each try, begins its time anew."""

    def __init__(self) -> None:
        assert sys.__stderr__ is not None
        self._stderr = os.dup(sys.__stderr__.fileno())  # that of the run: a test's is captured
        self._limit: Limit | None = None

    @pytest.hookimpl(wrapper=True, trylast=True)  # behind pytest-timeout
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        """What pytest-timeout gives is known from here on."""
        self._limit = Limit()
        try:
            return (yield)
        finally:
            self._limit = None
            faulthandler.cancel_dump_traceback_later()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        self._begin_last()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self) -> None:
        self._begin_last()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self) -> None:
        self._begin_last()

    @pytest.hookimpl(trylast=True)  # pytest-timeout and pytest have taken their limits back by then
    def pytest_exception_interact(self) -> None:
        """It has failed: its fixtures are next."""
        if self._limit is not None:
            self._limit.begin()
            self._begin_last()

    def _begin_last(self) -> None:
        if self._limit is not None:
            self._limit.begin_last(self._stderr)


def pytest_configure(config: pytest.Config) -> None:
    """Look after tests where they are run. Who asks pytest for stacks (`-o faulthandler_timeout`) gets those only."""
    if runs_tests(config) and not float(config.getini("faulthandler_timeout") or 0):
        config.pluginmanager.register(LastLimit(), "last-limit")


def runs_tests(config: pytest.Config) -> bool:
    """Whether this process does, instead of handing them out to others."""
    return getattr(config.option, "dist", "no") == "no" or hasattr(config, "workerinput")
