"""What fails while the machine stands still is run again; what fails on one that ran has failed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scribengin.testing.clocks import ManualClock
from scribengin.testing.waiting import wait_until
from tests.house.tree import ROOT
from tests.stalls import STANDSTILL_MIN_S, standstill_s

STANDS_STILL = f"""
import os, pathlib, subprocess, threading
import pytest

tries = pathlib.Path(__file__).with_suffix(".tries")

def stand_still():
    halt = f"kill -STOP {{os.getpid()}}; sleep {2 * STANDSTILL_MIN_S}; kill -CONT {{os.getpid()}}"
    stopped = subprocess.Popen(["sh", "-c", halt])
    while stopped.poll() is None:
        threading.Event().wait(0.01)

def tried():
    with tries.open("a") as file:
        file.write("x")
    return len(tries.read_text())
"""
LATE_ONCE = """
@pytest.fixture(scope="module")
def server():
    return []

def test_it(server):
    server.append("used")
    if tried() == 1:
        stand_still()
        assert False, "too late"
    assert server == ["used"], "it is a new one"

def test_another(server):
    assert server == ["used"], "it is still the new one"
"""
WRONG_AND_LATE = """
def test_it():
    tried()
    stand_still()
    assert False, "wrong"
"""
OUTPUT_IS_WRONG = """
from tests.stalls import expect_output

def test_it():
    tried()
    stand_still()
    expect_output(False, "1 too often")
"""
HANGS_AFTERWARDS = """
@pytest.mark.timeout(8)
def test_it():
    if tried() == 1:
        stand_still()
        assert False, "too late"
    threading.Event().wait(60)
"""
AWAITS_IN_VAIN = """
from tests.stalls import output_awaited

def test_it():
    tried()
    stand_still()
    with output_awaited():
        assert False, "waited in vain for 2 records"
"""
LATE_BEFORE = """
def test_before():
    stand_still()

def test_it():
    assert tried() == 2, "what stood still shows late"
"""
LATE_THEN_WRONG = """
def test_it():
    if tried() == 1:
        stand_still()
    assert False, "wrong"
"""
WRONG = """
def test_it():
    tried()
    assert False, "wrong"
"""
UNREADY_ONCE = """
@pytest.fixture(scope="module")
def server():
    if tried() == 1:
        stand_still()
        raise OSError("it does not answer")

def test_it(server):
    pass

def test_another(server):
    pass
"""


@pytest.mark.parametrize(
    ("program", "tries", "failed", "said"),
    [
        (LATE_ONCE, 2, False, "AssertionError: too late"),
        (UNREADY_ONCE, 2, False, "OSError: it does not answer"),
        (WRONG_AND_LATE, 3, True, "AssertionError: wrong"),
        (LATE_THEN_WRONG, 2, True, "AssertionError: wrong"),
        (OUTPUT_IS_WRONG, 1, True, ""),
        (HANGS_AFTERWARDS, 2, True, "AssertionError: too late"),
        (AWAITS_IN_VAIN, 1, True, ""),
        (LATE_BEFORE, 2, False, "AssertionError: what stood still shows late"),
        (WRONG, 1, True, ""),
    ],
    ids=[
        *("late once", "a server that was late", "wrong, and late", "late, then wrong", "its output is wrong"),
        *("hangs afterwards", "its output never came", "late before", "wrong"),
    ],
)
@pytest.mark.parametrize("side_by_side", [False, True], ids=["alone", "side by side"])
def test_a_test_is_run_again_for_a_standstill_and_for_nothing_else(
    tmp_path: Path, program: str, tries: int, failed: bool, said: str, side_by_side: bool
) -> None:
    file = tmp_path / "test_sample.py"
    file.write_text(STANDS_STILL + program)
    ended = run_tests(file, side_by_side=side_by_side)
    assert len(file.with_suffix(".tries").read_text()) == tries, ended.stdout
    assert ended.returncode == int(failed), ended.stdout
    again = [line for line in ended.stdout.splitlines() if line.startswith("run again")]
    assert len(again) == tries - 1
    assert all("test_it, after" in line and line.endswith(said) for line in again), again


def test_a_standstill_is_no_excuse_for_another_file(tmp_path: Path) -> None:
    before, wrong = tmp_path / "test_before.py", tmp_path / "test_wrong.py"
    before.write_text(f"{STANDS_STILL}\ndef test_it():\n    stand_still()\n")
    wrong.write_text(STANDS_STILL + WRONG)
    ended = run_tests(before, wrong)
    assert len(wrong.with_suffix(".tries").read_text()) == 1, ended.stdout
    assert ended.returncode == 1
    assert "run again" not in ended.stdout


def run_tests(*files: Path, side_by_side: bool = False) -> subprocess.CompletedProcess[str]:
    """Run pytest on files that are none of the project's, with the plugin."""
    folder = files[0].parent
    words = ["-p", "tests.stalls", "-c", "/dev/null", f"--rootdir={folder}", "-p", "no:cacheprovider"]
    shared = ["-n", "1"] if side_by_side else []
    command = [sys.executable, "-m", "pytest", *words, *shared, *map(str, files)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("passed_s", "processor_s", "found_s"), [(41.2, 0.1, 41.2), (41.2, 40.0, 0.0), (1.9, 0.0, 0.0), (0.2, 0.1, 0.0)]
)
def test_who_was_busy_or_hardly_late_did_not_stand_still(passed_s: float, processor_s: float, found_s: float) -> None:
    assert standstill_s(passed_s, processor_s) == found_s


def test_a_standstill_does_not_use_up_the_time_of_a_wait() -> None:
    clock, looks = ManualClock(), iter([41.0, 41.0, 0.0])

    def condition() -> bool:
        clock.advance_s(stood_s := next(looks))
        return not stood_s

    wait_until(condition, 30, clock=clock)


def test_a_wait_in_vain_ends_and_says_for_what() -> None:
    clock = ManualClock()
    with pytest.raises(AssertionError, match="waited 30 s in vain for the moon"):
        wait_until(lambda: clock.advance_s(1.0), 30, "the moon", clock=clock)
