"""A program of a test that fails, or one that does not end, is killed."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests import processes
from tests.house.tree import expect_none, files_of_tests
from tests.processes import Process

FOR_EVER = [sys.executable, "-c", "import threading; threading.Event().wait()"]


def test_where_the_block_fails_it_is_killed() -> None:
    with pytest.raises(EOFError), Process(FOR_EVER, stdout=subprocess.DEVNULL) as process:
        raise EOFError
    assert process.returncode == -signal.SIGKILL


def test_one_that_does_not_end_is_killed_and_the_block_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "END_MAX_S", 0.1)
    with pytest.raises(subprocess.TimeoutExpired), Process(FOR_EVER, stdout=subprocess.DEVNULL) as process:
        pass
    assert process.returncode == -signal.SIGKILL


def test_one_that_ends_is_waited_for_and_who_gives_it_less_time_leaves_it_alone() -> None:
    with Process([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        assert process.poll() is None
    assert process.returncode == 0


def test_no_block_of_a_test_waits_for_ever_for_a_program() -> None:
    word = "with subprocess." + "Popen("
    expect_none(f"{file.path}: use tests.processes.Process" for file in files_of_tests() if word in file.text)
