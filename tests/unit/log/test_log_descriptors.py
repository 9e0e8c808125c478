"""File descriptors of segments: all are let go once, whatever one of them says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scribengin.log.store.contract import SegmentName, Tail
from scribengin.log.store.file import FileSegmentStore
from tests.open_files import expect_nothing_more_open, opened


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
