"""Calls that wait for DataNodes, in vain. And what is left of a file whose DataNodes do not answer."""

from __future__ import annotations

import threading
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
from hdfs_native import FileWriter

from scribengin.errors import SystemUnreachable
from scribengin.filesystems import hdfs
from scribengin.filesystems.contract import NewFile
from scribengin.filesystems.hdfs import HdfsFileSystem
from tests.garbage import collect_garbage


class Stream:
    """As hdfs-native's own, below its FileWriter."""

    def __init__(self) -> None:
        self.closed_times = 0
        self.answered = True

    def write(self, data: memoryview) -> int:
        if not self.answered:
            raise OSError("DataTransferError")
        return len(data)

    def close(self) -> None:
        self.closed_times += 1


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Stream:
    """What every file that is made from now on writes to."""
    made = Stream()
    client: Any = SimpleNamespace(create=lambda _path, _options: FileWriter(made))  # type: ignore[arg-type]
    monkeypatch.setattr(hdfs, "_client", lambda _url, _settings: client)
    return made


def new_file() -> NewFile:
    return HdfsFileSystem("nobody:8020").create("/folder/file")


def test_a_call_that_nobody_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdfs, "ANSWER_S", 0.05)
    never = threading.Event()
    with pytest.raises(ConnectionError, match=r"have not answered for 0\.05 s; has one of them died\?"):
        hdfs.within_limit(never.wait)
    never.set()


def test_who_collects_garbage_does_not_close_a_file_that_was_given_up(stream: Stream) -> None:
    """It would wait for DataNodes that have died, for a minute or for ever, in whatever thread that happens to be."""

    def given_up() -> weakref.ref[NewFile]:
        file = new_file()
        stream.answered = False
        with pytest.raises(SystemUnreachable, match="DataTransferError"):
            file.append(b"lost")
        file.close()
        return weakref.ref(file)

    gone = given_up()
    collect_garbage()
    assert (gone(), stream.closed_times) == (None, 0)


def test_who_collects_garbage_does_not_close_a_file_that_somebody_has_dropped(stream: Stream) -> None:
    new_file().append(b"and then something else failed")
    assert stream.closed_times == 0


def test_a_file_that_is_closed_is_closed_once(stream: Stream) -> None:
    file = new_file()
    file.append(b"complete")
    assert stream.closed_times == 0
    file.close()
    file.close()
    del file
    assert stream.closed_times == 1
