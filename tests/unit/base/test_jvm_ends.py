"""A process that has a JVM ends as it wants to, whoever is in Java just then."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import sys, threading
from scribengin.base.jvm import java, start_jvm

start_jvm()
sleep = java("java.lang.Thread").sleep
begun = threading.Event()

def come_and_go():
    while True:
        sleep(1)
        begun.set()

for _ in range(3):
    threading.Thread(target=come_and_go, daemon=True).start()
begun.wait()
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize("code", [0, 7])
def test_threads_that_are_in_java_do_not_change_the_exit_status(code: int) -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM, str(code)], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
