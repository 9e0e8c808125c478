"""How much memory a container is said to hold, while its processes fork."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from scribengin.launcher.local.processes import Footprint, Group
from tests.processes import Process

MIB = 1 << 20
LARGE_MIB = 200
LARGE = f"import sys; held = bytearray(b'x' * {LARGE_MIB * MIB}); print('ready', flush=True)\n"
FORKS = LARGE + "import os, signal\nfor _ in sys.stdin: pid = os.fork(); pid or signal.pause(); print(pid, flush=True)"


@pytest.fixture
def process() -> Iterator[subprocess.Popen[str]]:
    """One that holds LARGE_MIB, and forks another for each line that it is given: which shares all of its pages."""
    pipe = subprocess.PIPE
    with Process([sys.executable, "-c", FORKS], stdin=pipe, stdout=pipe, text=True, start_new_session=True) as started:
        try:
            said(started)
            yield started
        finally:
            os.killpg(started.pid, signal.SIGKILL)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def fork(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert int(said(process)) > 0


def footprint(process: subprocess.Popen[str]) -> Footprint:
    """Of all processes of that session, whose leader counts, too."""
    found = Footprint(Group(process.pid, "no mark"))
    found._belongs = {}  # a container's leader is its keeper, which holds nothing
    return found


def test_a_process_that_was_just_forked_does_not_count_yet(process: subprocess.Popen[str]) -> None:
    """Before it is another program it holds what its parent holds: Java starts all of its so."""
    here = footprint(process)
    here.over(LARGE_MIB * 3 // 2 * MIB)
    fork(process)
    assert here.over(LARGE_MIB * 3 // 2 * MIB) is None
    held = here.over(LARGE_MIB * 3 // 2 * MIB)
    assert held is not None, "it is still there, so it holds them for itself"
    assert LARGE_MIB * 2 <= held // MIB < LARGE_MIB * 5 // 2
