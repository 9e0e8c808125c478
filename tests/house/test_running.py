"""A run that is shared out tells of a failure at once, and of how far it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scribengin.testing.clocks import ManualClock
from tests.house.tree import ROOT
from tests.processes import Process
from tests.running import LONG_S, Told

FAILS = """
import threading
import pytest

def test_it():
    assert 6 * 7 == 41

def test_another():
    threading.Event().wait(60)
"""


@pytest.mark.long
def test_a_failure_is_shown_before_the_run_has_ended(tmp_path: Path) -> None:
    file = tmp_path / "test_fails.py"
    file.write_text(FAILS)
    words = ["-p", "tests.running", "-c", "/dev/null", f"--rootdir={tmp_path}", "-n", "1", "--dist", "loadfile"]
    command = [sys.executable, "-m", "pytest", *words, "-p", "no:cacheprovider", str(file)]
    with Process(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as run:
        try:
            assert run.stdout is not None
            said = []
            for line in run.stdout:
                said.append(line)
                if line.endswith("test_fails.py:6: AssertionError\n"):
                    break
            assert run.poll() is None, "the other test still waits"
        finally:
            run.kill()
    assert "test_fails.py::test_it failed (call), and ends so:\n" in said, said


def test_what_runs_for_long_is_named_the_longest_first() -> None:
    clock = ManualClock()
    told = Told(pytest.TerminalReporter.__new__(pytest.TerminalReporter), clock)
    for nodeid in ("a", "b", "c"):
        told.pytest_runtest_logstart(nodeid)
        clock.advance_s(1.0)
    told.pytest_runtest_logfinish("b")
    assert told.line() == "1 tests in 3 s"
    clock.advance_s(LONG_S)
    assert told.line() == "1 tests in 63 s; a for 63 s; c for 61 s"
