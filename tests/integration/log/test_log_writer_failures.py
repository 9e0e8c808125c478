"""After its first failure a writer is of no use, and the segment it wrote is left alone: only a new one goes on."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from scribengin.errors import Fenced, LogWriteFailed
from scribengin.log import DLSN, LogNamespace
from scribengin.testing.failpoints import at_failpoint, record_stops
from scribengin.testing.log_samples import bound_namespace, payload_batch, payloads_read, segment_path
from scribengin_registry.contract import Registry

LOG = "a-log"


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    return bound_namespace(registry, tmp_path / "store", LOG)


def refuse(_stop: str) -> None:
    raise OSError(5, "Input/output error")


def test_after_a_failed_fsync_the_segment_is_never_written_or_synced_again(namespace: LogNamespace) -> None:
    """The kernel may drop what it could not write, and call the next fsync a success."""
    writer = namespace.open_writer(LOG)
    writer.write(b"0").result(120)
    with at_failpoint("log.segment_sync:before", refuse), pytest.raises(LogWriteFailed):
        writer.write(b"1").result(120)
    size = segment_path(namespace, LOG, 1).stat().st_size
    calls: list[Callable[[], object]] = [
        lambda: writer.write(b"2"),
        lambda: writer.write_bulk(payload_batch([b"2"])),
        lambda: writer.write_bulk(payload_batch([b"2"]), partial=True),
        lambda: writer.write_atomic(payload_batch([b"2"])),
        writer.flush,
        writer.mark_end_of_stream,
    ]
    with record_stops() as passed:
        for call in calls:
            with pytest.raises(LogWriteFailed, match="open a new writer"):
                call()
        writer.close()
    assert {stop.partition(":")[0] for stop in passed} <= {"log.metadata"}  # the lock is given back
    assert segment_path(namespace, LOG, 1).stat().st_size == size
    with namespace.open_writer(LOG, timeout_s=0) as successor:
        assert successor.write(b"3").result(120) == DLSN(2, 0, 0)


def test_the_same_error_is_raised_until_the_log_is_opened_again(namespace: LogNamespace) -> None:
    writer = namespace.open_writer(LOG)
    with at_failpoint("log.segment_write:before", refuse):
        error = writer.write(b"0").exception(10)
    assert isinstance(error, LogWriteFailed)
    assert writer.failed
    for _ in range(3):
        with pytest.raises(LogWriteFailed) as raised:
            writer.write(b"1")
        assert raised.value is error
    writer.close()
    with namespace.open_writer(LOG) as successor:
        assert not successor.failed
        successor.write(b"2").result(120)
    assert payloads_read(namespace, LOG) == [b"2"]


@pytest.mark.usefixtures("unheard")
def test_a_fenced_writer_cannot_close_the_log_and_what_it_acknowledged_stays(namespace: LogNamespace) -> None:
    """DistributedLog's TestBKLogSegmentWriter: a close that is fenced fails, and keeps the last acknowledged."""
    stale = namespace.open_writer(LOG)
    acknowledged = stale.write(b"0").result(120)
    with namespace.open_writer(LOG, steal=True) as successor:
        unacknowledged = stale.write(b"1")
        with pytest.raises(Fenced):
            stale.close()
        with pytest.raises(Fenced):
            unacknowledged.result(120)
        assert namespace.segments(LOG)[0].entries == acknowledged.entry + 1
        successor.write(b"2").result(120)
    assert payloads_read(namespace, LOG) == [b"0", b"2"]


def test_what_is_no_record_does_not_move_the_last_transaction_id(namespace: LogNamespace, registry: Registry) -> None:
    """DistributedLog's testUpdateLastTxIdForUserRecords: the control record of a round has none of its own."""
    registry.create("/scribengin/locks/commit-log", b"", parents=True)
    with namespace.open_writer(LOG, commit_log="/scribengin/locks/commit-log") as writer:
        writer.write(b"0", txid=5).result(120)
        writer.stage(payload_batch([b"1"]).append_column("txid", pa.array([6], pa.int64())))
        staged = writer.prepare()
        assert staged is not None
        writer.commit_staged(staged)
        writer.write(b"2", txid=6).result(120)
    (segment,) = namespace.segments(LOG)
    assert (segment.entries, segment.records, segment.last_txid) == (4, 3, 6)


def test_a_disk_that_takes_a_group_in_pieces_gets_all_of_it(
    namespace: LogNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = os.writev
    monkeypatch.setattr(os, "writev", lambda file, buffers: whole(file, [memoryview(buffers[0])[:1000]]))
    payloads = [bytes([n]) * 3000 for n in range(5)]
    with namespace.open_writer(LOG) as writer:
        writer.write_bulk(payload_batch(payloads)).result(120)
    assert payloads_read(namespace, LOG) == payloads
