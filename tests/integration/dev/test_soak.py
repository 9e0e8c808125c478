"""The soak test itself, ended in order by Ctrl-C behind its first act; two minutes of its schedule in `test --full`."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from scribengin.testing.waiting import wait_until
from tests.integration.leftovers import await_none

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1500)]
LIMIT_S = 1400.0
SEED = 27


@contextmanager
def soaking(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """`tools/dev.py soak`, as the environment runs it; its output is in `folder`."""
    command = [sys.executable, "-m", "scribengin_dev.soak", "--dir", str(folder / "soak"), *options]
    with (folder / "out.md").open("w") as out, (folder / "err.txt").open("w") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, text=True)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                process.wait(LIMIT_S)


def said(folder: Path) -> str:
    return (folder / "out.md").read_text() + (folder / "err.txt").read_text()


def left_running(folder: Path) -> list[str]:
    """Processes that have anything to do with the soak of this folder."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            about = [*process.cmdline(), *process.environ().values(), process.cwd()]
            if process.pid != psutil.Process().pid and any(str(folder / "soak") in text for text in about):
                found.append(" ".join(process.cmdline()))
    return found


@pytest.mark.full
def test_two_minutes_of_kills_stalls_cuts_and_edits_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    with soaking(tmp_path, "--minutes", "2", "--seed", str(SEED)) as soak:
        code = soak.wait(LIMIT_S)
    text = said(tmp_path)
    print(text)
    assert code == 0, text
    assert "Nothing lost, nothing twice" in text
    assert "| lost | 0 |" in text
    assert "| duplicated | 0 |" in text
    await_none(lambda: left_running(tmp_path))
    assert list((tmp_path / "soak").iterdir()) == []


@pytest.mark.full
def test_ctrl_c_ends_it_early_with_its_table_and_leaves_nothing_running(tmp_path: Path) -> None:
    """What was put in up to there has come out, once."""
    with soaking(tmp_path, "--minutes", "30", "--seed", "1") as soak:
        wait_until(lambda: "act 1 of" in said(tmp_path) or soak.poll() is not None, LIMIT_S, "the first act")
        soak.send_signal(signal.SIGINT)
        code = soak.wait(LIMIT_S)
    text = said(tmp_path)
    assert code == 0, text
    assert "ended early." in text
    assert "| lost | 0 |" in text
    assert "| duplicated | 0 |" in text
    await_none(lambda: left_running(tmp_path))
