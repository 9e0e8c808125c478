"""What a run that is shared out says while it runs: each failure at once, and now and then how far it is.

A run that is ended from outside, by a limit of continuous integration for one, shows nothing of what it would have
said at its end. And a test that hangs is named by who waits for it.
"""

from __future__ import annotations

import threading

import pytest

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.threads import background
from tests.limits import runs_tests

EVERY_S = 300.0
LONG_S = 60.0
LINES_SHOWN = 25


class Told:
    """The plugin's part in the process that shares tests out. Times are monotonic, in seconds."""

    def __init__(self, reporter: pytest.TerminalReporter, clock: Clock = SYSTEM_CLOCK) -> None:
        self._reporter = reporter
        self._clock = clock
        self._begun_s = clock.monotonic_s()
        self._running: dict[str, float] = {}
        self._done = 0
        self._ended = threading.Event()
        self._changed = threading.Lock()

    def pytest_runtestloop(self) -> None:
        background("says how far it is", self._say_again_and_again).start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        with self._changed:
            self._running[nodeid] = self._clock.monotonic_s()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        with self._changed:
            self._running.pop(nodeid, None)
            self._done += 1

    @pytest.hookimpl(trylast=True)  # behind its letter
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            last = report.longreprtext.splitlines()[-LINES_SHOWN:]
            self._say(f"{report.nodeid} failed ({report.when}), and ends so:", *last)

    def pytest_sessionfinish(self) -> None:
        self._ended.set()

    def line(self) -> str:
        """How far the run is, and what has been running for long, the longest first."""
        now_s = self._clock.monotonic_s()
        with self._changed:
            done, since = self._done, sorted(self._running.items(), key=lambda one: one[1])
        long = [f"{nodeid} for {now_s - begun_s:.0f} s" for nodeid, begun_s in since if now_s - begun_s >= LONG_S]
        return "; ".join([f"{done} tests in {now_s - self._begun_s:.0f} s", *long])

    def _say_again_and_again(self) -> None:
        while not self._ended.wait(EVERY_S):
            self._say(self.line())

    def _say(self, *lines: str) -> None:
        for line in ("", *lines):  # behind the letters of what has run
            self._reporter.write_line(line)


@pytest.hookimpl(trylast=True)  # behind the terminal's own
def pytest_configure(config: pytest.Config) -> None:
    """Only where tests are shared out: elsewhere whoever waits sees them pass by."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if not runs_tests(config) and reporter is not None:
        config.pluginmanager.register(Told(reporter), "says-while-it-runs")
