"""Where an environment is packed: what killed processes leave, and what is in use."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from scribengin.base.process.scratch import ScratchDirectory
from scribengin.errors import LauncherError
from scribengin.launcher.yarn.shipping import environment
from scribengin.launcher.yarn.shipping.archive import Entry
from scribengin.launcher.yarn.shipping.environment import build_environment

KILLED = """
import os, signal, sys
from pathlib import Path
from scribengin.launcher.yarn.shipping import environment

def killed(_entries, stream):
    stream.write(b"half of it")
    stream.flush()
    os.kill(os.getpid(), signal.SIGKILL)

def installed(_requirements, scratch):
    (scratch / "packages").mkdir()
    return scratch / "packages"

environment.write_archive, environment._install = killed, installed
environment.environment_entries = lambda _added: []
environment.build_environment(None, ["something"])
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache directory, and a temporary one; an environment is one small file."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(environment, "environment_entries", lambda _added: [Entry("bin/python", b"#!/bin/sh\n")])
    return tmp_path


def left(cache: Path) -> list[str]:
    """The files and directories that are neither the cache nor an environment in it."""
    kept = {"tmp", "scribengin", "environments"}
    return sorted(path.name for path in cache.rglob("*") if path.name not in kept and not path.match("environment-*"))


def test_what_a_killed_process_has_left_is_removed_by_the_next(cache: Path) -> None:
    died = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert len([name for name in left(cache) if name.startswith(".scribengin-environment-")]) == 2
    build_environment()
    assert left(cache) == []


def test_what_somebody_else_is_writing_stays(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, seen = environment.write_archive, []

    def slowly(entries: list[Entry], stream: object) -> None:
        if not seen:
            seen.append("the first one")
            ScratchDirectory(".scribengin-environment-", cache / "scribengin" / "environments").remove()
        write(entries, stream)  # type: ignore[arg-type]

    monkeypatch.setattr(environment, "write_archive", slowly)
    assert build_environment().path.is_file()
    assert seen
    assert left(cache) == []


def test_one_that_is_swept_before_it_is_locked_is_made_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make: Callable[..., str] = tempfile.mkdtemp
    made: list[str] = []

    def gone_at_first(**options: object) -> str:
        name = make(**options)
        if options["dir"] == cache / "scribengin" / "environments":
            if not made:
                Path(name).rmdir()
            made.append(name)
        return name

    monkeypatch.setattr(tempfile, "mkdtemp", gone_at_first)
    assert build_environment().path.is_file()
    assert len(made) == 2
    assert left(cache) == []


def test_a_disk_that_is_full_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_given: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(environment, "write_archive", full)
    with pytest.raises(LauncherError, match="No space left on device"):
        build_environment()
    assert left(cache) == []
