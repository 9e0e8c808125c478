"""What runs first in a container of YARN, without YARN: nothing outlives it, however it ends."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from scribengin.launcher.local.output import OUTPUT_BYTES_MAX, output_files
from scribengin.launcher.local.processes import start_token
from scribengin.testing.waiting import wait_until
from tests.processes import Process

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
    with Process(words, env={**os.environ, "CONTAINER_ID": container}, start_new_session=True) as inside:
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


def test_its_output_is_rotated_and_whole(tmp_path: Path) -> None:
    chatter = "for number in range(300_000): print('%08d' % number, 'x' * 30)"
    words = [*INSIDE, "256", sys.executable, "-c", f"{chatter}\nimport sys; sys.exit('the last word')"]
    stdout, stderr = tmp_path / "stdout", tmp_path / "stderr"
    with stdout.open("wb") as out, stderr.open("wb") as err:
        done = subprocess.run(words, stdout=out, stderr=err, timeout=120, check=False)
    assert done.returncode == 1
    older, newer = output_files(stdout)
    assert all(file.stat().st_size < OUTPUT_BYTES_MAX + (1 << 20) for file in (older, newer))
    kept = (older.read_text() + newer.read_text()).splitlines()
    assert [int(line.split()[0]) for line in kept] == list(range(300_000 - len(kept), 300_000))
    assert stderr.read_text() == "the last word\n"


def test_a_full_disk_below_its_output_ends_nothing(tmp_path: Path) -> None:
    def full() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    words = [*INSIDE, "256", sys.executable, "-c", "print('x' * 100_000, flush=True); raise SystemExit(7)"]
    with (tmp_path / "stdout").open("wb") as out, (tmp_path / "stderr").open("wb") as err:
        done = subprocess.run(words, stdout=out, stderr=err, timeout=120, check=False, preexec_fn=full)
    assert done.returncode == 7
    assert (tmp_path / "stderr").read_text() == ""
