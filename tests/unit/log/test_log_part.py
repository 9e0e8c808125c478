"""A part of a log that ends where a segment begins: neither more nor less, and without a look at all segments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scribengin.log import DLSN, LogNamespace
from scribengin.testing.log_samples import bound_namespace, forge_segments, payloads_of
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin_registry.contract import Registry
from scribengin_tools.logs.dump import LogPart, part_of

LOG = "flüge/0"
SEGMENTS = 500


@pytest.fixture
def registry() -> Registry:
    return MemoryEnsemble().connect()


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    namespace = bound_namespace(registry, tmp_path / "store", LOG)
    forge_segments(namespace, registry, LOG, SEGMENTS)
    return namespace


def payloads(namespace: LogNamespace, start: int, end: int) -> list[bytes]:
    part = LogPart(start=f"{start}/0/0", end=DLSN(end, 0, 0))
    return [payload for batch in part_of(namespace, LOG, part) for payload in payloads_of(batch)]


def test_the_segment_in_progress_belongs_to_what_ends_behind_it(namespace: LogNamespace) -> None:
    with namespace.open_writer(LOG) as writer:
        writer.write(b"unfinished").result(120)
        last = b"%d" % SEGMENTS
        assert payloads(namespace, SEGMENTS, SEGMENTS + 2) == [last, b"unfinished"]
        assert payloads(namespace, SEGMENTS, SEGMENTS + 1) == [last]
        assert payloads(namespace, SEGMENTS, SEGMENTS + 90) == [last, b"unfinished"]
    assert payloads(namespace, 1, 1) == []


def test_only_the_segments_that_it_ends_with_are_read(
    namespace: LogNamespace, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    find_all = registry.find_all

    def counted(paths: Any) -> Any:
        read.extend(paths)
        return find_all(paths)

    monkeypatch.setattr(registry, "find_all", counted)
    assert payloads(namespace, 1, 3) == [b"1", b"2"]
    assert len(read) < 20
