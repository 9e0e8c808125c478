"""Ctrl-C while a program is still importing: it ends at once, without a traceback, whatever a module makes of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAMS = ("scribengin_tools", "scribengin_dev.demo", "scribengin_dev.soak", "scribengin_dev.bench")
INTERRUPTED = """
import os, signal
try:
    os.kill(os.getpid(), signal.SIGINT)
    [None for _ in range(1000)]  # it has arrived by now
except KeyboardInterrupt:
    pass
"""


def run(folder: Path, program: str, *arguments: str, before: Callable[[], object] | None = None) -> tuple[int, str]:
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(
        [sys.executable, "-m", program, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        preexec_fn=before,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return ended.returncode, ended.stderr


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_interrupt_that_a_module_would_swallow_ends_the_program(tmp_path: Path, program: str) -> None:
    (tmp_path / "typer.py").write_text(INTERRUPTED)
    assert run(tmp_path, program) == (-signal.SIGINT, "")


def test_what_was_started_to_ignore_interrupts_goes_on_ignoring_them(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    ended = run(tmp_path, "scribengin_tools", "--help", before=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    assert ended == (0, "")


@pytest.mark.parametrize("arguments", [("schema",), ("--version",), ("--help",)])
def test_an_output_for_which_there_is_no_room_is_one_line(arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "scribengin_tools", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
    words = "scribengin: the output cannot be written: No space left on device; make room, or send it elsewhere\n"
    assert (ended.returncode, ended.stderr) == (1, words)
