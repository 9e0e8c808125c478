"""A test that hangs ends, and its run with it: also behind a failure, or where no exception reaches it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import ROOT
from tests.limits import GRACE_VARIABLE

LIMIT_S = 3
BEGIN = "import threading\nimport pytest\n"
HANGS_BEHIND_A_FAILURE = f"""{BEGIN}
@pytest.fixture
def server():
    yield
    threading.Event().wait()

def test_it(server):
    assert False, "wrong"
"""
HANGS_AFTER_ITS_TIME = f"""{BEGIN}
def test_it():
    try:
        threading.Event().wait()
    finally:
        threading.Event().wait()
"""
HANGS_IN_C = f"""{BEGIN}
import ctypes

def test_it():
    mutex = ctypes.create_string_buffer(128)
    for _ in range(2):
        ctypes.PyDLL(None).pthread_mutex_lock(mutex)  # nobody else has the interpreter meanwhile
"""
HANGS = {"behind": HANGS_BEHIND_A_FAILURE, "after": HANGS_AFTER_ITS_TIME, "in_c": HANGS_IN_C}
WELL = f"""{BEGIN}
@pytest.mark.parametrize("number", range(3))
def test_well(number):
    pass
"""


def test_the_fixtures_of_a_test_that_failed_have_a_limit(tmp_path: Path) -> None:
    ended = run_tests(tmp_path, behind=HANGS_BEHIND_A_FAILURE, well=WELL)
    assert ended.returncode == 1
    assert "1 failed, 3 passed, 1 error" in ended.stdout, ended.stdout
    assert f"Timeout (>{LIMIT_S}" in ended.stdout


@pytest.mark.parametrize("name", [pytest.param("after", marks=pytest.mark.full), "in_c"])
def test_a_process_whose_test_does_not_end_ends_and_the_run_names_the_test(tmp_path: Path, name: str) -> None:
    words = ("-n", "2", "--dist", "loadfile", "--max-worker-restart=0")
    ended = run_tests(tmp_path, *words, well=WELL, **{name: HANGS[name]})
    assert ended.returncode == 1
    assert f"crashed while running 'test_{name}.py::test_it'" in ended.stdout, ended.stdout
    assert f'test_{name}.py", line' in ended.stderr, "where it stands"


def run_tests(folder: Path, *words: str, **files: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on files that are none of the project's, with the plugin."""
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    plugin = ["-p", "tests.limits", "-c", "/dev/null", f"--rootdir={folder}", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *plugin, f"--timeout={LIMIT_S}", *words, str(folder)]
    environment = os.environ | {GRACE_VARIABLE: "2"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120)
