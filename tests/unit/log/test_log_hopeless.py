"""Logs that cannot be taken, or not be deleted, or not be written: it is said, and nothing is left behind."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from scribengin.errors import (
    InconsistentLog,
    LogWriteFailed,
    OwnershipAcquireFailed,
    StoreNotMounted,
    TransactionIdOutOfOrder,
)
from scribengin.log import LogConfig, LogNamespace
from scribengin.log.metadata import writer_lock
from scribengin.log.metadata.writer_lock import HeldLock
from scribengin.testing.clocks import ManualClock
from scribengin.testing.log_samples import bound_namespace, fill_log, payload_batch, payloads_read
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryRegistry
from scribengin.testing.memory.segments import MEMORY_STORE, MemorySegmentStore
from scribengin.testing.waiting import wait_until
from scribengin_registry.errors import RegistryUnreachable

LOG = "hopeless"
LARGEST = 2**63 - 1


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk("hopeless")


@pytest.fixture
def logs(memory_registry: MemoryRegistry, disk: MemoryDisk) -> LogNamespace:
    config = LogConfig(check_txids=False)
    return bound_namespace(memory_registry, disk.name, LOG, store=MEMORY_STORE, config=config)


@pytest.mark.parametrize(
    "take",
    [
        lambda logs: logs.open_writer(LOG, timeout_s=0),
        lambda logs: logs.open_writer(LOG, steal=True),
        lambda logs: logs.recover(LOG),
    ],
)
def test_a_log_without_the_node_that_all_changes_check_is_not_waited_for(
    logs: LogNamespace, memory_registry: MemoryRegistry, take: Callable[[LogNamespace], object]
) -> None:
    fill_log(logs, LOG, 1)
    memory_registry.delete(f"/logs/logs/{LOG}/{logs.info(LOG).log.directory}")
    with pytest.raises(
        InconsistentLog, match="nobody can write the log without it: see `scribengin log inspect hopeless`"
    ):
        take(logs)


def test_who_loses_every_race_for_a_log_gives_up_in_time(logs: LogNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled = threading.Event()
    cancelled.set()
    monkeypatch.setattr(writer_lock, "_take", lambda *_of: None)
    with pytest.raises(OwnershipAcquireFailed, match="no lock within 0 s"):
        logs.open_writer(LOG, timeout_s=0)
    with pytest.raises(OwnershipAcquireFailed, match="the wait was cancelled"):
        logs.open_writer(LOG, timeout_s=3600, cancel=cancelled)


def test_a_log_whose_files_are_gone_is_deleted_by_force(memory_registry: MemoryRegistry, tmp_path: Path) -> None:
    logs = bound_namespace(memory_registry, tmp_path / "store", LOG)
    writer = logs.open_writer(LOG)
    writer.write(b"1").result(60)
    writer.abort()
    shutil.rmtree(tmp_path / "store" / logs.info(LOG).log.directory)
    with pytest.raises(LogWriteFailed, match="gone for good, delete it by force"):
        logs.delete(LOG)
    (tmp_path / "store").rename(tmp_path / "not mounted")
    with pytest.raises((LogWriteFailed, StoreNotMounted)):
        logs.delete(LOG, force=True)
    assert logs.exists(LOG)
    (tmp_path / "not mounted").rename(tmp_path / "store")
    logs.delete(LOG, force=True)
    assert not logs.exists(LOG)


def test_force_deletes_no_log_that_cannot_be_fenced(logs: LogNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = logs.open_writer(LOG)
    writer.write(b"1").result(60)
    writer.abort()

    def refuses(*_of: object) -> None:
        raise LogWriteFailed("the disk is full")

    monkeypatch.setattr(MemorySegmentStore, "fence", refuses)
    with pytest.raises(LogWriteFailed, match=r"the disk is full$"):
        logs.delete(LOG, force=True)
    assert logs.exists(LOG)


def test_a_writer_that_could_not_watch_its_lock_writes_nothing(
    memory_registry: MemoryRegistry, disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread sends keep-alives by then."""
    clock = ManualClock()
    bound_namespace(memory_registry, disk.name, LOG, store=MEMORY_STORE, config=LogConfig(keep_alive_ms=1000))
    logs = LogNamespace.open("/logs", registry=memory_registry, clock=clock)

    def away(_lock: HeldLock) -> None:
        raise RegistryUnreachable("away for a moment")

    def writing() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == f"log-writer {LOG}"]

    with monkeypatch.context() as patch:
        patch.setattr(HeldLock, "_look", away)
        with pytest.raises(RegistryUnreachable):
            logs.open_writer(LOG)
    wait_until(lambda: memory_registry.find(f"/logs/logs/{LOG}/lock") is None, 60, what="the lock to be given back")
    assert not writing()
    clock.advance_s(60)
    assert not logs.segments(LOG)


def test_the_largest_number_is_no_transaction_id(logs: LogNamespace) -> None:
    batch = pa.record_batch({"payload": [b"1", b"2"], "txid": [1, LARGEST]})
    with logs.open_writer(LOG) as writer:
        for write in (
            lambda: writer.write_bulk(batch),
            lambda: writer.write_atomic(batch),
            lambda: writer.write(b"2", txid=LARGEST),
        ):
            with pytest.raises(TransactionIdOutOfOrder, match=r"the largest is 2\^63-2; choose another"):
                write()
        assert [row.row for row in writer.refused(batch)] == [1]
        partly = writer.write_bulk(batch, partial=True).result(60)
        assert [row.row for row in partly.refused] == [1]
        writer.write(b"3", txid=LARGEST - 1).result(60)
        writer.write(b"4").result(60)
    assert payloads_read(logs, LOG) == [b"1", b"3", b"4"]


def test_a_log_that_ends_with_the_largest_number_is_written_on(
    logs: LogNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it could be written before that was refused."""
    with monkeypatch.context() as patch, logs.open_writer(LOG) as writer:
        patch.setattr("scribengin.log.format.records.TXID_MAX", LARGEST)
        writer.write_bulk(pa.record_batch({"payload": [b"1"], "txid": [LARGEST]})).result(60)
    with logs.open_writer(LOG) as writer:
        writer.write(b"2").result(60)
        writer.write_bulk(payload_batch([b"3"])).result(60)
    assert payloads_read(logs, LOG) == [b"1", b"2", b"3"]
