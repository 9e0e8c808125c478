"""Whoever was stalled while it took a log leaves alone what its successor has written. Found by simulation."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scribengin.errors import Fenced
from scribengin.log import LogNamespace, LogWriter
from scribengin.log.store.contract import SegmentName
from scribengin.testing.log_samples import payloads_read
from scribengin.testing.memory.segments import MemorySegmentStore

LOG = "log"
Take = Callable[[LogNamespace], object]


@pytest.mark.parametrize(
    ("take", "listing"),
    [
        pytest.param(lambda logs: logs.open_writer(LOG, steal=True), "aside", id="writer"),
        pytest.param(lambda logs: logs.recover(LOG, steal=True), "aside", id="recover, before all"),
        pytest.param(lambda logs: logs.recover(LOG, steal=True), "log", id="recover, at last"),
    ],
)
def test_a_late_owner_sets_nothing_aside_that_its_successor_writes(
    take: Take, listing: str, logs: LogNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stalled right before it lists the files; meanwhile another one takes the log, and writes."""
    real = MemorySegmentStore.names
    successors: list[LogWriter] = []

    def names(self: MemorySegmentStore, directory: str) -> list[SegmentName]:
        if directory.endswith("/aside") is (listing == "aside"):
            monkeypatch.setattr(MemorySegmentStore, "names", real)
            successors.append(logs.open_writer(LOG, steal=True))
            successors[0].write(b"1").result()
        return real(self, directory)

    with logs.open_writer(LOG) as first:
        first.write(b"0").result()
    monkeypatch.setattr(MemorySegmentStore, "names", names)
    with pytest.raises(Fenced):
        take(logs)
    (successor,) = successors
    assert payloads_read(logs, LOG) == [b"0", b"1"]
    with successor:
        successor.write(b"2").result()
    assert payloads_read(logs, LOG) == [b"0", b"1", b"2"]
