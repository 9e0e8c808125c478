"""Files that Linux makes durable at once."""

from __future__ import annotations

import errno
import os
import platform
from pathlib import Path

import pytest

from scribengin.log.write.file_syncs import FileSyncs


def opened(path: Path) -> int:
    file = os.open(path, os.O_WRONLY | os.O_CREAT)
    os.write(file, b"something")
    return file


def test_each_that_was_begun_is_told_of_once(tmp_path: Path) -> None:
    files = [opened(tmp_path / str(number)) for number in range(64)]
    with FileSyncs(64) as syncs:
        for _ in range(2):
            for key, file in enumerate(files):
                syncs.begin(file, 1000 + key)
            told: list[tuple[int, OSError | None]] = []
            while len(told) < len(files):
                told += syncs.ended()
            assert sorted(key for key, _ in told) == [1000 + key for key in range(64)]
            assert [error for _, error in told if error is not None] == []
    for file in files:
        os.close(file)


def test_a_file_that_was_closed_meanwhile_is_made_durable_all_the_same(tmp_path: Path) -> None:
    file = opened(tmp_path / "closed")
    with FileSyncs(1) as syncs:
        syncs.begin(file, 7)
        os.close(file)
        assert syncs.ended() == [(7, None)]


def test_what_is_no_such_file_is_not_begun(tmp_path: Path) -> None:
    file = opened(tmp_path / "closed")
    reading, writing = os.pipe()
    os.close(file)
    with FileSyncs(2) as syncs:
        for wrong, code in ((file, errno.EBADF), (writing, errno.EINVAL)):
            with pytest.raises(OSError, match=os.strerror(code)):
                syncs.begin(wrong, 1)
    os.close(reading)
    os.close(writing)


def test_closing_waits_for_what_is_under_way_and_may_come_twice(tmp_path: Path) -> None:
    file = opened(tmp_path / "file")
    syncs = FileSyncs(1)
    syncs.begin(file, 1)
    syncs.close()
    syncs.close()
    os.close(file)


def test_a_machine_whose_calls_are_not_known_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "another")
    with pytest.raises(OSError, match="not implemented"):
        FileSyncs(1)
