"""File descriptors of segments: all are let go once, whatever one of them says."""

from __future__ import annotations

import os
import threading
from contextlib import closing
from pathlib import Path

import pytest

from scribengin.errors import Fenced
from scribengin.log.store import file as file_store
from scribengin.log.store.contract import SegmentName, Tail
from scribengin.log.store.file import FileSegmentStore
from tests.open_files import expect_nothing_more_open, open_below, opened


@pytest.mark.parametrize("kind", ["appender", "view"])
def test_a_close_that_raises_keeps_nothing_open_and_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    store, name = FileSegmentStore(tmp_path), SegmentName("log", 1, 1)
    store.create_log("log")
    before = opened()
    segment = appender = store.create(name, fsync=False)
    appender.publish(Tail(0, 0, 0, 0))
    if kind == "view":
        segment = store.open(name)
        segment.tail()
    close, closed = os.close, []

    def first_raises(descriptor: int) -> None:
        closed.append(descriptor)
        close(descriptor)
        if len(closed) == 1:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "close", first_raises)
    with pytest.raises(OSError, match="Input/output"):
        segment.close()
    segment.close()
    appender.close()
    assert len(closed) == len(set(closed)) > 1
    monkeypatch.undo()
    expect_nothing_more_open(before)


def test_of_many_segments_that_are_written_each_keeps_one_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ten thousand logs in one process all files together are more than it may open."""
    monkeypatch.setattr(file_store, "_KEPT_OPEN", threading.Semaphore(1))
    store, names = FileSegmentStore(tmp_path), [SegmentName("log", number, 1) for number in range(1, 6)]
    store.create_log("log")
    before = opened()
    appenders = [store.create(name, fsync=False) for name in names]
    for end in (10, 20, 30):
        for name, appender in zip(names, appenders, strict=True):
            appender.publish(Tail(end, 1, 1, 1))
            with closing(store.open(name)) as view:
                assert view.tail() == Tail(end, 1, 1, 1)
    assert len(open_below(tmp_path)) == len(names) + 1
    appenders.pop(0).close()
    appenders[-1].publish(Tail(40, 1, 1, 1))
    assert len(open_below(tmp_path)) == len(names), "there was room for the tail of another one"
    for appender in appenders:
        appender.close()
    expect_nothing_more_open(before)


def test_a_log_that_is_deleted_before_its_tail_is_written_is_told_of_at_the_next_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_store, "_KEPT_OPEN", threading.Semaphore(0))
    store, name = FileSegmentStore(tmp_path), SegmentName("log", 1, 1)
    store.create_log("log")
    appender = store.create(name, fsync=False)
    appender.publish(Tail(10, 1, 1, 1))
    appender.sync()
    store.remove(name)
    appender.publish(Tail(20, 1, 1, 1))
    assert not list((tmp_path / "log").glob("*.tail")), "nothing is left behind that a log's deletion has to find"
    with pytest.raises(Fenced):
        appender.sync()
    appender.close()
