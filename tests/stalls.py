"""What failed while this machine stood still is run again, and the run says so at its end.

Limits of time, a session's or a client's, are meant for a machine that runs. One of many on a host may stand still:
that of our continuous integration did for 41 s. What was late then says nothing about what is tested. What fails on a
machine that ran has failed. And so has, standstill or not, what put out something else than was put in: whoever finds
that raises WrongOutput, or asserts something about what was `delivered`: by that word, or by a name that its function
gives it.

One limit of Spark's is too short for a machine that has much to do, and cannot be set: a Python process that plans a
source has ten seconds to start. What Spark says has failed by it is run again, too.
"""

from __future__ import annotations

import ast
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

from scribengin.base.clock import SYSTEM_CLOCK
from tests.limits import Limit, runs_tests

STANDSTILL_MIN_S = 2.0
_LOOK_S = 0.2
_AGAIN = "run again"
_AGAIN_MAX = 2
_OUTPUT = "delivered"
"""As in `assert flow.delivered() == expected`."""
_SPARKS_LIMIT = re.compile(r"Python worker (failed )?to connect back")
"""What `PythonWorkerFactory` of Spark says after its ten seconds."""


def standstill_s(passed_s: float, processor_s: float) -> float:
    """How long a process stood still that wanted to look at once, and did after `passed_s`, having had `processor_s`:
    0 for one that was busy, or just a little late."""
    return passed_s if passed_s >= STANDSTILL_MIN_S and processor_s < passed_s / 2 else 0.0


class WrongOutput(AssertionError):
    """Something is lost, or twice, or damaged. No standstill excuses that: such a test is never run again."""


def expect_output(right: bool, said: str) -> None:
    """Raises WrongOutput, with what is wrong, unless what came out is right."""
    if not right:
        raise WrongOutput(said)


@contextmanager
def output_awaited() -> Iterator[None]:
    """Around a wait for all that was put in: one that was in vain is a loss as any other. A standstill is no excuse,
    since it does not use up the wait's time."""
    try:
        yield
    except WrongOutput:
        raise
    except AssertionError as error:
        raise WrongOutput(str(error)) from None


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

    @pytest.hookimpl
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Run a test, and again if it failed in a file in which the machine stood still: a file's tests share servers,
        which are started anew then. What fails in another try in which the machine ran has failed."""
        if item.path != self._path:
            self._path = item.path
            self._watch.forget()
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        limit = Limit()
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        for _ in range(_AGAIN_MAX):
            failed = _failure(reports)
            excuse = None if failed is None or _is_wrong(failed) else self._excuse(failed)
            if failed is None or excuse is None:
                break
            item.user_properties.append((_AGAIN, f"{excuse}: {_said(failed)}"))
            reports = self._again(item, nextitem, limit)
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

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


def _failure(reports: list[pytest.TestReport]) -> pytest.TestReport | None:
    return next((report for report in reports if report.failed), None)


def _is_wrong(report: pytest.TestReport) -> bool:
    return _said(report).partition(":")[0].endswith(WrongOutput.__name__) or _asserts_of_output(report)


def _asserts_of_output(report: pytest.TestReport) -> bool:
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is None:
        return False
    try:
        nodes = [*ast.walk(ast.parse(Path(crash.path).read_text()))]
    except (OSError, SyntaxError):
        return False
    there = [node for node in nodes if isinstance(node, ast.stmt) and _holds(node, crash.lineno)]
    failed = [node for node in there if isinstance(node, ast.Assert)]
    functions = [node for node in there if isinstance(node, ast.FunctionDef)]
    names = _names_of_output(functions[0]) if functions else {_OUTPUT}
    return any(_names(node.test, names) for node in failed)


def _names_of_output(function: ast.FunctionDef) -> set[str]:
    """What stands in a function for what was delivered, or for what was made of that."""
    given = [pair for node in ast.walk(function) for pair in _given(node)]
    names, before = {_OUTPUT}, 0
    while len(names) > before:
        before = len(names)
        for target, value in given:
            if _names(value, names):
                names |= {
                    node.id
                    for node in ast.walk(target)
                    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
                }
    return names


def _given(node: ast.AST) -> list[tuple[ast.AST, ast.AST]]:
    """Which targets are given which values there."""
    match node:
        case ast.Assign(targets=targets, value=value):
            return [(target, value) for target in targets]
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            return [(target, value)]
        case ast.AugAssign(target=target, value=value) | ast.NamedExpr(target=target, value=value):
            return [(target, value)]
        case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
            return [(target, value)]
        case _:
            return []


def _names(node: ast.AST, names: set[str]) -> bool:
    inner = [*ast.walk(node)]
    called = any(isinstance(each, ast.Attribute) and each.attr == _OUTPUT for each in inner)
    return called or any(isinstance(each, ast.Name) and each.id in names for each in inner)


def _holds(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _processor_s() -> float:
    times = os.times()
    return times.user + times.system


def _said(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash is not None else report.longrepr).partition("\n")[0]
