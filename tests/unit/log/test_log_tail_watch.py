"""Watches of files: told at a write, by anybody; not told after the end; nothing lost when many watch one file."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from scribengin.log.read.catalog import TailWatch
from scribengin.log.store import inotify as tail_watch
from scribengin.log.store.contract import SegmentView

LIMIT_S = 20.0


def watched(path: Path) -> tuple[threading.Event, Callable[[], None]]:
    event = threading.Event()
    stop = tail_watch.watch(str(path), event)
    assert stop is not None
    return event, stop


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "segment.tail"
    path.write_bytes(b"-" * 64)
    return path


def overwrite(path: Path) -> None:
    """As a writer shows a new tail: in place."""
    descriptor = os.open(path, os.O_WRONLY)
    os.pwrite(descriptor, b"+" * 32, 0)
    os.close(descriptor)


def test_a_write_in_place_is_told_of(file: Path) -> None:
    event, _stop = watched(file)
    overwrite(file)
    assert event.wait(LIMIT_S)


def test_a_write_by_another_process_is_told_of(file: Path) -> None:
    event, _stop = watched(file)
    script = f"import os; f = os.open({str(file)!r}, os.O_WRONLY); os.pwrite(f, b'+', 0)"
    subprocess.run([sys.executable, "-c", script], check=True)
    assert event.wait(LIMIT_S)


def test_all_who_watch_a_file_are_told_and_who_stopped_is_not(file: Path) -> None:
    first, stop_first = watched(file)
    second, _stop = watched(file)
    stop_first()
    overwrite(file)
    assert second.wait(LIMIT_S)
    assert not first.is_set(), "both were in one list: whoever is told at all is told before the second"


def test_a_watch_that_is_ended_twice_ends_no_other(file: Path) -> None:
    """Whoever was interrupted right behind the first time does not know that it is done."""
    _event, stop = watched(file)
    other, _stop = watched(file)
    stop()
    stop()
    overwrite(file)
    assert other.wait(LIMIT_S)


def test_ctrl_c_while_a_watch_ends_is_ctrl_c() -> None:
    ended: list[str] = []

    def interrupted() -> None:
        ended.append("once")
        raise KeyboardInterrupt

    class View:
        """A segment that is watched until Ctrl-C."""

        def watch_tail(self, _event: threading.Event) -> Callable[[], None]:
            return interrupted

    watch = TailWatch(threading.Event())
    watch.follow(cast(SegmentView, View()))
    with pytest.raises(KeyboardInterrupt):
        watch.follow(None)
    with watch:
        pass
    assert ended == ["once"]


def test_a_watch_outlives_its_file_and_ends_without_a_complaint(file: Path) -> None:
    _event, stop = watched(file)
    file.unlink()
    stop()


def test_a_file_that_is_not_there_cannot_be_watched(tmp_path: Path) -> None:
    assert tail_watch.watch(str(tmp_path / "none"), threading.Event()) is None


def test_a_forked_child_has_watches_of_its_own(file: Path) -> None:
    _event, _stop = watched(file)  # the parent's thread runs
    script = f"""
import os, sys, threading
from pathlib import Path
from scribengin.log.store import inotify as tail_watch
assert tail_watch.watch({str(file)!r}, threading.Event())
child = os.fork()
if child == 0:
    event = threading.Event()
    assert tail_watch.watch({str(file)!r}, event)
    Path({str(file)!r}).write_bytes(b"new")
    os._exit(0 if event.wait({LIMIT_S}) else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    subprocess.run([sys.executable, "-c", script], check=True)
