"""Scratch directories: their process's own while it lives, and nobody's afterwards."""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

import pytest

from scribengin.base.process import scratch
from scribengin.base.process.scratch import ScratchDirectory

PREFIX = "scribengin-test-"


@pytest.fixture(autouse=True)
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_what_is_in_use_stays_and_what_was_left_behind_goes(parent: Path) -> None:
    mine = ScratchDirectory(PREFIX)
    abandoned = parent / f"{PREFIX}abandoned"
    abandoned.mkdir()
    (abandoned / "in-use").touch()
    other = ScratchDirectory(PREFIX)
    assert sorted(parent.iterdir()) == sorted([mine.path, other.path])
    mine.remove()
    mine.remove()
    assert list(parent.iterdir()) == [other.path]


def test_one_that_is_swept_before_it_is_locked_is_made_again(monkeypatch: pytest.MonkeyPatch, parent: Path) -> None:
    lock, swept = fcntl.flock, []

    def sweep_first(descriptor: int, operation: int) -> None:
        if operation == fcntl.LOCK_EX and not swept:
            swept.append(descriptor)
            scratch._remove_abandoned(parent, PREFIX)
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", sweep_first)
    mine = ScratchDirectory(PREFIX)
    assert swept
    assert mine.subdirectory("tables").is_dir()
    assert list(parent.iterdir()) == [mine.path]


def test_one_that_is_swept_before_its_lock_is_made_is_made_again(monkeypatch: pytest.MonkeyPatch, parent: Path) -> None:
    make, made = tempfile.mkdtemp, []

    def gone_at_first(**options: str) -> str:
        made.append(make(**options))
        if len(made) == 1:
            os.rmdir(made[0])
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", gone_at_first)
    mine = ScratchDirectory(PREFIX)
    assert str(mine.path) == made[1]


def test_a_directory_whose_process_died_before_it_locked_it_goes_in_the_end(parent: Path) -> None:
    half = parent / f"{PREFIX}half"
    half.mkdir()
    ScratchDirectory(PREFIX)
    assert half.exists()
    os.utime(half, (0, 0))
    ScratchDirectory(PREFIX)
    assert not half.exists()
