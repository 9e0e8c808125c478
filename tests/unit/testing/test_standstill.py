"""Processes that stand still do so with all of their threads."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from scribengin.testing.standstill import await_standstill, standing_still, states
from scribengin.testing.waiting import wait_until
from tests.processes import Process

_BUSY = """
import threading
def count():
    while True:
        pass
for _ in range(8):
    threading.Thread(target=count, daemon=True).start()
print("busy", flush=True)
threading.Event().wait()
"""


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[str]]:
    with Process([sys.executable, "-c", _BUSY], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "busy\n"
        yield process
        process.kill()


def test_each_thread_of_it_has_stopped_and_goes_on_behind_the_block(busy: subprocess.Popen[str]) -> None:
    with standing_still(busy.pid):
        assert states(busy.pid) == {"T"}
    wait_until(lambda: "T" not in states(busy.pid), what="all threads to go on")


def test_who_is_killed_meanwhile_need_not_go_on(busy: subprocess.Popen[str]) -> None:
    with standing_still(busy.pid):
        assert await_standstill(busy.pid)
        busy.kill()
        busy.wait()
        assert not await_standstill(busy.pid)


def test_a_process_that_is_not_there_is_told_of(busy: subprocess.Popen[str]) -> None:
    busy.kill()
    busy.wait()
    with pytest.raises(ProcessLookupError), standing_still(busy.pid):
        pass
