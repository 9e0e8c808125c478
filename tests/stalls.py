"""What was late because this machine stood still is run again, and the run says so at its end.

Limits of time, a session's or a client's, are meant for a machine that runs. One of many on a host may stand still:
that of our continuous integration did for 41 s. What was late then says nothing about what is tested: a wait in vain, a
limit of time, a lost session. What fails on a machine that ran has failed. And so has, standstill or not, what found
something wrong: a failed `assert`, whatever it is about, an error that did not come, and what was found damaged.

One limit of Spark's is too short for a machine that has much to do, and cannot be set: a Python process that plans a
source has ten seconds to start. What Spark says has failed by it is run again, too.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import pytest
from _pytest.runner import runtestprotocol

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.errors import CheckpointMismatch, DamagedEntry, DecisionMissing, InconsistentLog, RecoveryRefused
from scribengin.testing.waiting import WaitedInVain
from tests.limits import Limit, runs_tests

STANDSTILL_MIN_S = 2.0
_LOOK_S = 0.2
_AGAIN = "run again"
_AGAIN_MAX = 2
_SPARKS_LIMIT = re.compile(r"Python worker (failed )?to connect back")
"""What `PythonWorkerFactory` of Spark says after its ten seconds."""
_TIME_IS_OVER = re.compile(r"Timeout \(")
"""What pytest-timeout fails with."""
_DAMAGE = DamagedEntry | InconsistentLog | RecoveryRefused | CheckpointMismatch | DecisionMissing
"""No clock brings these about."""


def standstill_s(passed_s: float, processor_s: float) -> float:
    """How long a process stood still that wanted to look at once, and did after `passed_s`, having had `processor_s`:
    0 for one that was busy, or just a little late."""
    return passed_s if passed_s >= STANDSTILL_MIN_S and processor_s < passed_s / 2 else 0.0


@contextmanager
def output_awaited() -> Iterator[None]:
    """Around a wait for all that was put in: one that was in vain is a loss, and fails as an `assert` does. A
    standstill is no excuse, since it does not use up the wait's time."""
    try:
        yield
    except WaitedInVain as error:
        raise AssertionError(str(error)) from None


class Watch:
    """Looks at the clock again and again, from a thread of its own, and so notices when it cannot."""

    def __init__(self) -> None:
        self._changed = threading.Lock()
        self._longest_s = 0.0
        self._looked_s, self._had_s = SYSTEM_CLOCK.monotonic_s(), _processor_s()
        threading.Thread(target=self._run, name="watch for standstills", daemon=True).start()

    def longest_s(self) -> float:
        """The longest standstill since `forget`, 0 for none: that which has just ended as well."""
        self._look()
        return self._longest_s

    def forget(self) -> None:
        """Begin anew, behind what has just ended."""
        self._look()
        with self._changed:
            self._longest_s = 0.0

    def _look(self) -> None:
        with self._changed:
            now_s, had_s = SYSTEM_CLOCK.monotonic_s(), _processor_s()
            self._longest_s = max(self._longest_s, standstill_s(now_s - self._looked_s, had_s - self._had_s))
            self._looked_s, self._had_s = now_s, had_s

    def _run(self) -> None:
        while True:
            threading.Event().wait(_LOOK_S)
            self._look()


class Again:
    """The plugin's part in a process that runs tests."""

    def __init__(self) -> None:
        self._watch = Watch()
        self._path: object = None
        self._wrong = False

    @pytest.hookimpl
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Run a test, and again if it failed in a file in which the machine stood still: a file's tests share servers,
        which are started anew then. What fails in another try in which the machine ran has failed."""
        if item.path != self._path:
            self._path = item.path
            self._watch.forget()
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        limit = Limit()
        self._wrong = False
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        for _ in range(_AGAIN_MAX):
            failed = next((report for report in reports if report.failed), None)
            excuse = None if failed is None or self._wrong else self._excuse(failed)
            if failed is None or excuse is None:
                break
            item.user_properties.append((_AGAIN, f"{excuse}: {_said(failed)}"))
            reports = self._again(item, nextitem, limit)
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_exception_interact(self, call: pytest.CallInfo[object]) -> None:
        """Of each step that failed: also of one behind another that was late."""
        if call.excinfo is not None:
            self._wrong |= _found_wrong(call.excinfo.value)

    def _excuse(self, failed: pytest.TestReport) -> str | None:
        still_s = self._watch.longest_s()
        if still_s:
            return f"after {still_s:.1f} s of standstill"
        return "for Spark's limit to Python's start" if _SPARKS_LIMIT.search(str(failed.longrepr)) else None

    def _again(self, item: pytest.Item, nextitem: pytest.Item | None, limit: Limit) -> list[pytest.TestReport]:
        """All that the tests of the run share begins anew."""
        limit.begin()
        _end_all_fixtures(item)
        self._watch.forget()
        limit.begin()
        return runtestprotocol(item, log=False, nextitem=nextitem)


def pytest_configure(config: pytest.Config) -> None:
    """Watch where tests are run: not in the process that hands them out to others."""
    if runs_tests(config):
        config.pluginmanager.register(Again(), "again-after-standstills")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what was run twice, and what was wrong the first time."""
    for report in chain.from_iterable(terminalreporter.stats.values()):
        if getattr(report, "when", "") == "teardown":
            for name, said in report.user_properties:
                if name == _AGAIN:
                    terminalreporter.write_line(f"run again: {report.nodeid}, {said}")


def _end_all_fixtures(item: pytest.Item) -> None:
    """Those of the file and of the run as well. What goes wrong then is the standstill's, as what went wrong before."""
    end = item.session._setupstate.teardown_exact  # not the hook, which ends a test once
    pytest.CallInfo.from_call(lambda: end(None), when="teardown", reraise=(pytest.exit.Exception, KeyboardInterrupt))


def _found_wrong(error: BaseException | None) -> bool:
    """Whether that says that something is wrong, and not just late: or what was on its way when it was raised, as by
    what cleans up behind a failed `assert`."""
    while error is not None:
        if _says_wrong(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _says_wrong(error: BaseException) -> bool:
    match error:
        case BaseExceptionGroup(exceptions=errors):
            return any(map(_found_wrong, errors))
        case WaitedInVain():
            return False
        case pytest.fail.Exception():
            return not _TIME_IS_OVER.match(str(error))
        case _:
            return isinstance(error, AssertionError | _DAMAGE)


def _processor_s() -> float:
    times = os.times()
    return times.user + times.system


def _said(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash is not None else report.longrepr).partition("\n")[0]
