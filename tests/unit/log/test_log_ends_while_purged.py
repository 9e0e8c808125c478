"""Where a log ends is told, whoever purges its last segment while that is looked up. Found by simulation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from scribengin.log import DLSN, LogConfig, LogNamespace
from scribengin.log.metadata.segments import LogMetadata
from scribengin.log.read.catalog import SegmentReader
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin.testing.memory.segments import MEMORY_STORE

LOG = "log"


@pytest.fixture
def logs() -> Iterator[LogNamespace]:
    disk = MemoryDisk("ends")
    with MemoryEnsemble().connect() as session:
        LogNamespace.bind("/logs", disk.name, registry=session, store=MEMORY_STORE)
        with LogNamespace.open("/logs", registry=session) as namespace:
            namespace.create(LOG, LogConfig(retention_hours=0))
            yield namespace


def before_the_first(patch: pytest.MonkeyPatch, where: type, name: str, act: Callable[[], object]) -> None:
    """Do something right before that is called the first time."""
    real = getattr(where, name)

    def called(*arguments: Any) -> Any:
        patch.setattr(where, name, real)
        act()
        return real(*arguments)

    patch.setattr(where, name, called)


def test_the_last_segment_is_purged_while_its_descriptor_is_read(
    logs: LogNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with logs.open_writer(LOG) as writer:
        writer.write(b"1").result()
    before_the_first(monkeypatch, LogMetadata, "_completed", lambda: logs.purge(LOG))
    assert logs.end_dlsn(LOG) == DLSN(2, 0, 0)


def test_the_last_segment_is_completed_and_purged_while_its_file_is_opened(
    logs: LogNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end_it() -> None:
        writer.close()
        logs.purge(LOG)

    writer = logs.open_writer(LOG)
    writer.write(b"1").result()
    before_the_first(monkeypatch, SegmentReader, "__init__", end_it)
    assert logs.last_record(LOG) is None


def test_the_last_segment_is_purged_while_its_last_record_is_read(
    logs: LogNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with logs.open_writer(LOG) as writer:
        writer.write(b"1").result()
    before_the_first(monkeypatch, SegmentReader, "__init__", lambda: logs.purge(LOG))
    assert logs.last_record(LOG) is None
