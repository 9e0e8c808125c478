"""What runs first in a container of YARN, without YARN: nothing outlives it, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from scribengin.launcher.local.processes import start_token
from scribengin.testing.waiting import wait_until

FAMILY = """
import os, pathlib, subprocess, sys, threading
sleep = [sys.executable, "-c", "import threading; threading.Event().wait()"]
away = subprocess.Popen(sleep, start_new_session=True)
draft = pathlib.Path(sys.argv[1] + ".draft")
draft.write_text(f"{os.getpid()} {away.pid}")
draft.rename(sys.argv[1])
threading.Event().wait()
"""
"""A program, and a process below it in a session of its own, as Spark's Python workers are."""


INSIDE = (sys.executable, "-m", "scribengin.launcher.yarn.application_master.container")


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_it(tmp_path: Path, end: signal.Signals) -> None:
    told = tmp_path / "pids"
    words = [*INSIDE, "256", sys.executable, "-c", FAMILY, str(told)]
    container = f"container-of-{tmp_path.name}"
    with subprocess.Popen(words, env={**os.environ, "CONTAINER_ID": container}, start_new_session=True) as inside:
        wait_until(told.exists, what="the program and its child")
        program, away = map(int, told.read_text().split())
        (sweeper,) = {child.pid for child in psutil.Process(inside.pid).children()} - {program}
        everything = [program, away, sweeper]
        assert all(start_token(pid) for pid in everything)
        os.killpg(inside.pid, end)
        inside.wait(120)
        wait_until(lambda: not any(start_token(pid) for pid in everything), what="everything to be gone")


def test_a_program_that_ends_is_told_as_a_shell_does_and_its_output_ends_with_it() -> None:
    words = [*INSIDE, "256", "sh", "-c", "echo done; kill -9 $$"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGKILL, "done\n", "")
