"""What fails while the machine stands still is run again; what fails on one that ran has failed."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from scribengin.testing.clocks import ManualClock
from scribengin.testing.waiting import wait_until
from tests.house.tree import ROOT
from tests.stalls import STANDSTILL_MIN_S, standstill_s

STANDS_STILL = f"""
import os, pathlib, subprocess, threading
import pytest
from scribengin.testing.waiting import wait_until

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
        wait_until(lambda: False, 0, "a record")
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
BY_ITS_LIMIT = """
@pytest.mark.timeout(8)
def test_it():
    if tried() == 1:
        stand_still()
        threading.Event().wait(60)
"""
RAISES_NOTHING = """
def test_it():
    tried()
    stand_still()
    with pytest.raises(ValueError):
        pass
"""
DAMAGED = """
from scribengin.errors import DamagedEntry

def test_it():
    tried()
    stand_still()
    raise ExceptionGroup("two threads", [OSError("late"), DamagedEntry("a checksum does not hold", position=0)])
"""
LATE_THEN_WRONG_AT_ITS_END = """
@pytest.fixture
def server():
    yield
    assert False, "a record is lost"

def test_it(server):
    tried()
    stand_still()
    wait_until(lambda: False, 0, "a record")
"""
LATE_BEHIND_WRONG = """
def test_it():
    tried()
    stand_still()
    try:
        assert False, "a record is lost"
    finally:
        raise OSError("late")
"""
HANGS_AFTERWARDS = """
@pytest.mark.timeout(8)
def test_it():
    if tried() == 1:
        stand_still()
        wait_until(lambda: False, 0, "a record")
    threading.Event().wait(60)
"""
AWAITS_IN_VAIN = """
from tests.stalls import output_awaited

def test_it():
    tried()
    stand_still()
    with output_awaited():
        wait_until(lambda: False, 0, "2 records")
"""
LATE_BEFORE = """
def test_before():
    stand_still()

def test_it():
    again = tried() == 2
    wait_until(lambda: again, 0, "what shows late")
"""
LATE_THEN_WRONG = """
def test_it():
    if tried() == 1:
        stand_still()
        wait_until(lambda: False, 0, "a record")
    assert False, "wrong"
"""
WRONG = """
def test_it():
    tried()
    assert False, "wrong"
"""
SPARKS_LIMIT = """
def test_it():
    if tried() == 1:
        raise OSError("Spark failed\\n  cause: Python worker failed to connect back.")
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


@dataclass(frozen=True)
class Sample:
    """A file of tests: how often the one that stands still is tried, whether it fails, and why it is run again."""

    program: str
    tries: int
    failed: bool = False
    said: str = ""
    excuse: str = "test_it, after"


IN_VAIN = "WaitedInVain: waited 0 s in vain for "
SAMPLES = {
    "late_once": Sample(LATE_ONCE, 2, said=f"{IN_VAIN}a record"),
    "unready_once": Sample(UNREADY_ONCE, 2, said="OSError: it does not answer"),
    "late_before": Sample(LATE_BEFORE, 2, said=f"{IN_VAIN}what shows late"),
    "by_its_limit": Sample(BY_ITS_LIMIT, 2, said="Failed: Timeout (>8.0s) from pytest-timeout."),
    "late_then_wrong": Sample(LATE_THEN_WRONG, 2, failed=True, said=f"{IN_VAIN}a record"),
    "hangs_afterwards": Sample(HANGS_AFTERWARDS, 2, failed=True, said=f"{IN_VAIN}a record"),
    "sparks_limit": Sample(SPARKS_LIMIT, 2, said="OSError: Spark failed", excuse="test_it, for Spark's limit"),
    "wrong_and_late": Sample(WRONG_AND_LATE, 1, failed=True),
    "late_then_wrong_at_its_end": Sample(LATE_THEN_WRONG_AT_ITS_END, 1, failed=True),
    "late_behind_wrong": Sample(LATE_BEHIND_WRONG, 1, failed=True),
    "raises_nothing": Sample(RAISES_NOTHING, 1, failed=True),
    "damaged": Sample(DAMAGED, 1, failed=True),
    "output_never_came": Sample(AWAITS_IN_VAIN, 1, failed=True),
    "wrong": Sample(WRONG, 1, failed=True),
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("names", "processes"),
    [
        pytest.param(("late_once", "output_never_came"), 0, id="alone"),
        pytest.param(("late_once", "late_behind_wrong", "damaged", "sparks_limit"), 2, id="a few side by side"),
        pytest.param(tuple(SAMPLES), 4, id="side by side", marks=pytest.mark.full),
    ],
)
def test_a_test_is_run_again_for_a_standstill_and_for_nothing_else(
    tmp_path: Path, names: tuple[str, ...], processes: int
) -> None:
    files = {name: tmp_path / f"test_{name}.py" for name in names}
    for name, file in files.items():
        file.write_text(STANDS_STILL + SAMPLES[name].program)
    ended = run_tests(*files.values(), processes=processes)
    for name, file in files.items():
        sample = SAMPLES[name]
        mine = [line for line in ended.stdout.splitlines() if f"{file.name}::test_it" in line]
        again = [line for line in mine if line.startswith("run again")]
        failed = [line for line in mine if line.startswith("FAILED")]
        tries = len(file.with_suffix(".tries").read_text())
        assert (name, tries, bool(failed)) == (name, sample.tries, sample.failed), ended.stdout
        assert len(again) == sample.tries - 1, ended.stdout
        assert all(sample.excuse in line and line.endswith(sample.said) for line in again), again


@pytest.mark.long
def test_a_standstill_is_no_excuse_for_another_file(tmp_path: Path) -> None:
    before, wrong = tmp_path / "test_before.py", tmp_path / "test_wrong.py"
    before.write_text(f"{STANDS_STILL}\ndef test_it():\n    stand_still()\n")
    wrong.write_text(STANDS_STILL + WRONG)
    ended = run_tests(before, wrong)
    assert len(wrong.with_suffix(".tries").read_text()) == 1, ended.stdout
    assert ended.returncode == 1
    assert "run again" not in ended.stdout


def run_tests(*files: Path, processes: int = 0) -> subprocess.CompletedProcess[str]:
    """Run pytest on files that are none of the project's, with the plugin."""
    folder = files[0].parent
    words = ["-p", "tests.stalls", "-c", "/dev/null", f"--rootdir={folder}", "-p", "no:cacheprovider"]
    shared = ["-n", f"{processes}", "--dist", "loadfile"] if processes else []
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
