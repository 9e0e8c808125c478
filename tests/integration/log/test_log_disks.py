"""Disks that refuse, are full, or lie: acknowledgements stay honest, and nothing is cut that was safe."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from unittest import mock

import pyarrow as pa
import pytest

from scribengin.errors import DamagedEntry, LogWriteFailed, RecordTooLarge, RecoveryRefused
from scribengin.log import DLSN, LogConfig, LogNamespace
from scribengin.log.format.entry import encode
from scribengin.log.format.records import Record, body_of_records
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import bound_namespace, payload_batch, payloads_read
from scribengin.testing.memory.disk_states import Link, Operation, Write
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry
from tests.crash.disk_recorder import RecordedDisk

LOG = "flights/0"


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    return bound_namespace(registry, tmp_path / "store", LOG)


def io_error(_stop: str) -> None:
    raise OSError(5, "Input/output error")


@pytest.mark.parametrize("stop", ["log.segment_write:before", "log.segment_sync:before", "log.tail_write:before"])
def test_a_disk_that_refuses_ends_the_writer_and_the_next_goes_on(namespace: LogNamespace, stop: str) -> None:
    writer = namespace.open_writer(LOG)
    writer.write(b"acknowledged").result(120)
    with at_failpoint(stop, io_error):
        refused = writer.write(b"refused")
        with pytest.raises(LogWriteFailed, match="Input/output error"):
            refused.result(120)
    for call in (lambda: writer.write(b"x"), writer.flush, lambda: writer.write_bulk(payload_batch([b"x"]))):
        with pytest.raises(LogWriteFailed):
            call()
    writer.close()
    with namespace.open_writer(LOG, timeout_s=0) as successor:
        successor.write(b"next").result(120)
    found = payloads_read(namespace, LOG)
    assert found in ([b"acknowledged", b"next"], [b"acknowledged", b"refused", b"next"])
    assert (b"refused" in found) == (stop != "log.segment_write:before")
    assert len(namespace.segments(LOG)) == 2


def test_a_failure_nobody_saw_is_raised_by_close(namespace: LogNamespace) -> None:
    writer = namespace.open_writer(LOG)
    with at_failpoint("log.segment_sync:before", io_error):
        future = writer.write(b"refused")
        wait_until(future.done, what="the write to fail")
        with pytest.raises(LogWriteFailed):
            writer.close()
    writer.close()


@contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    """Make this process's disk full, as it were: no file may grow beyond `size_bytes`."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_stops_the_writer_with_its_acks_honest(namespace: LogNamespace) -> None:
    writer = namespace.open_writer(LOG)
    acknowledged = []
    with files_of_at_most(100_000):
        for n in range(1000):
            payload = b"%04d" % n + os.urandom(700)
            try:
                writer.write(payload).result(120)
            except LogWriteFailed as error:
                assert "make room" in str(error)  # noqa: PT017  the loop is what raises it, some time
                break
            acknowledged.append(payload)
        writer.abort()
    assert 50 < len(acknowledged) < 120
    assert payloads_read(namespace, LOG) == acknowledged
    with namespace.open_writer(LOG) as successor:
        successor.write(b"room again").result(120)
    assert payloads_read(namespace, LOG) == [*acknowledged, b"room again"]


def test_damage_to_what_was_safe_keeps_every_writer_out(namespace: LogNamespace) -> None:
    writer = namespace.open_writer(LOG)
    for n in range(3):
        writer.write(b"%d" % n).result(120)
    writer.abort()
    (segment,) = namespace.segments(LOG)
    path = Path(namespace.descriptor.location) / f"{segment.file}.log"
    whole = path.read_bytes()
    path.write_bytes(whole[:200] + b"?" + whole[201:])
    for _ in range(2):
        with pytest.raises(RecoveryRefused, match=r"damage at byte 0 \(entry 0\).*nothing was cut"):
            namespace.open_writer(LOG, timeout_s=0)
    path.write_bytes(whole)
    with namespace.open_writer(LOG, timeout_s=0) as successor:
        successor.write(b"3").result(120)
    assert payloads_read(namespace, LOG) == [b"0", b"1", b"2", b"3"]


def test_a_segment_file_that_is_gone_keeps_every_writer_out(namespace: LogNamespace) -> None:
    writer = namespace.open_writer(LOG)
    writer.write(b"x").result(120)
    writer.abort()
    (Path(namespace.descriptor.location) / f"{namespace.segments(LOG)[0].file}.log").unlink()
    with pytest.raises(RecoveryRefused, match="bring the file back"):
        namespace.open_writer(LOG)


def test_a_file_that_was_made_and_never_registered_is_swept_away(namespace: LogNamespace) -> None:
    def crash(_stop: str) -> None:
        raise OSError(5, "crash")

    writer = namespace.open_writer(LOG)
    with at_failpoint("log.metadata:before", crash):
        future = writer.write(b"x")
        assert isinstance(future.exception(10), OSError)
    writer.abort()
    directory = next(path for path in Path(namespace.descriptor.location).iterdir() if path.is_dir())
    assert len(list(directory.glob("*.log"))) == 1
    namespace.open_writer(LOG).close()
    assert list(directory.glob("*.log")) == []


def test_after_a_failed_fsync_recovery_looks_at_the_disk_and_not_at_what_a_reader_has_mapped(
    namespace: LogNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed fsync the kernel keeps the pages and calls them clean: they are read, and are on no disk.

    Dropping what is cached (POSIX_FADV_DONTNEED) leaves what somebody maps. Here the cache is the file itself, and what
    is read past it is what was on the disk before.
    """
    writer = namespace.open_writer(LOG)
    writer.write(b"acknowledged").result(120)
    path = Path(namespace.descriptor.location) / f"{namespace.segments(LOG)[0].file}.log"
    on_disk = path.read_bytes()
    with at_failpoint("log.segment_sync:before", io_error):
        assert isinstance(writer.write(b"refused").exception(10), LogWriteFailed)
    writer.abort()
    on_disk += bytes(path.stat().st_size - len(on_disk))
    assert on_disk != path.read_bytes()

    def read_past_the_cache(file: int, buffers: list[memoryview], offset: int) -> int:
        assert os.path.samestat(os.fstat(file), path.stat())
        assert fcntl.fcntl(file, fcntl.F_GETFL) & os.O_DIRECT
        part = on_disk[offset : offset + len(buffers[0])]
        buffers[0][: len(part)] = part
        return len(part)

    monkeypatch.setattr(os, "preadv", read_past_the_cache)
    with namespace.open_reader(LOG) as reader:
        assert [record.payload for record in reader.read()] == [b"acknowledged"]  # it has the segment mapped
        with namespace.open_writer(LOG) as successor:
            successor.write(b"next").result(120)
        assert [record.payload for record in reader.read(timeout_s=120)] == [b"next"]
    assert payloads_read(namespace, LOG) == [b"acknowledged", b"next"]


def test_a_disk_that_cannot_be_read_past_the_cache_keeps_the_writer_out(
    namespace: LogNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = namespace.open_writer(LOG)
    writer.write(b"acknowledged").result(120)
    writer.abort()

    def refuse(_file: int, _buffers: list[memoryview], _offset: int) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "preadv", refuse)
    with pytest.raises(LogWriteFailed, match=r"from its disk: Input/output error"):
        namespace.open_writer(LOG, timeout_s=0)
    monkeypatch.undo()
    namespace.open_writer(LOG, timeout_s=0).close()
    assert payloads_read(namespace, LOG) == [b"acknowledged"]


def test_what_the_disk_refused_in_the_background_is_known_to_the_writer_whoever_was_told_first(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux tells every descriptor once that was open when the disk refused, and none that is opened afterwards."""
    namespace = bound_namespace(registry, tmp_path / "store", "unsynced", config=LogConfig(fsync=False))
    writer = namespace.open_writer("unsynced")
    writer.write(b"on no disk").result(120)
    of_process = Path("/proc/self/fd")
    segments = [int(file) for file in os.listdir(of_process) if os.path.realpath(of_process / file).endswith(".log")]

    def told(file: int) -> None:
        if file in segments:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", told)
    with pytest.raises(LogWriteFailed, match="Input/output error"):
        writer.close()
    assert namespace.segments("unsynced")[-1].in_progress


@dataclass
class Fault:
    """What a disk does at its `number`-th operation: refuse it once, refuse from then on, be full, write less."""

    kind: str
    number: int
    lifted: bool = False
    seen: int = 0

    def __call__(self, operation: Operation) -> int | None:
        self.seen += 1
        if self.lifted or self.seen < self.number + 1:
            return None
        if self.kind == "refuses once":
            self.lifted = True
            raise OSError(errno.EIO, "Input/output error")
        if self.kind == "refuses from then on":
            raise OSError(errno.EIO, "Input/output error")
        if self.kind == "is full" and isinstance(operation, Write | Link):
            raise OSError(errno.ENOSPC, "No space left on device")
        if self.kind == "writes less" and isinstance(operation, Write):
            self.lifted = True
            return len(operation.data) // 2
        return None


def write_and_recover(namespace: LogNamespace, log: str, submitted: list[bytes], acknowledged: list[bytes]) -> None:
    """Two writers, one after the other, each over a roll; the first leaves its segment unfinished. Reads in between."""
    for part in range(2):
        writer = namespace.open_writer(log, steal=True)
        try:
            for n in range(4):
                payloads = [b"%d.%d.%d " % (part, n, at) + bytes(600) for at in range(3)]
                submitted.extend(payloads)
                writer.write_bulk(payload_batch(payloads)).result(120)
                acknowledged.extend(payloads)
            assert payloads_read(namespace, log)[-3:] == payloads  # what is acknowledged is shown
        finally:
            writer.abort()
        namespace.purge(log)


@pytest.mark.parametrize("kind", ["refuses once", "refuses from then on", "is full", "writes less"])
def test_whichever_call_a_disk_fails_acks_are_honest_and_the_next_writer_goes_on(
    registry: Registry, tmp_path: Path, kind: str
) -> None:
    config = LogConfig(segment_bytes_max=4096, entry_bytes_max=1024)
    namespace = bound_namespace(registry, tmp_path / "store")
    number, failures = 0, 0
    while True:
        log = f"log-{number}"
        namespace.create(log, config)
        fault, submitted, acknowledged = Fault(kind, number), [], []  # type: tuple[Fault, list[bytes], list[bytes]]
        with RecordedDisk(tmp_path, fault):
            try:
                write_and_recover(namespace, log, submitted, acknowledged)
            except LogWriteFailed:
                failures += 1
        fault.lifted = True
        with namespace.open_writer(log, timeout_s=0) as successor:
            found = payloads_read(namespace, log)
            assert acknowledged == found[: len(acknowledged)], (kind, number)
            assert found == submitted[: len(found)], (kind, number)
            successor.write(b"room again").result(120)
        assert payloads_read(namespace, log) == [*found, b"room again"], (kind, number)
        if fault.seen <= number:
            break
        number += 1
    assert number > 30
    assert failures > 5 or kind == "writes less"


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_body_that_expands_to_more_than_its_log_allows_is_damage_to_every_reader(
    registry: Registry, tmp_path: Path, codec: Literal["lz4", "zstd"]
) -> None:
    """Its checksums are right and so is what it says of itself: a small file that would take a reader's memory."""
    config = LogConfig(codec=codec, entry_bytes_max=1024, record_bytes_max=1024)
    namespace = bound_namespace(registry, tmp_path / "store", LOG, config=config)
    writer = namespace.open_writer(LOG)
    writer.write(b"good").result(120)
    bomb = encode(body_of_records([Record(2**40, None, None, bytes(50_000_000))]), codec=codec)
    with mock.patch("scribengin.log.write.group_commit.encode", return_value=bomb):
        writer.write(b"bomb").result(120)
    assert bomb.body_bytes < 250_000
    before = pa.default_memory_pool().bytes_allocated()
    with namespace.open_reader(LOG) as reader:
        plan = reader.plan(DLSN(1, 0, 0), 10, 1 << 30)
        assert [record.payload for record in reader.read(1)] == [b"good"]
        with pytest.raises(DamagedEntry, match="says that it expands to more than"):
            reader.read(1)
    assert plan is not None
    with pytest.raises(DamagedEntry, match="says that it expands to more than"):
        list(plan.splits[0].read())
    writer.abort()
    with pytest.raises(RecoveryRefused, match=r"says that it expands to more than|readers were shown"):
        namespace.open_writer(LOG, timeout_s=0)
    assert pa.default_memory_pool().bytes_allocated() - before < 1_000_000


def test_what_a_log_allows_is_read_whatever_it_expands_to(registry: Registry, tmp_path: Path) -> None:
    config = LogConfig(codec="zstd", entry_bytes_max=1024, record_bytes_max=100_000)
    namespace = bound_namespace(registry, tmp_path / "store", LOG, config=config)
    channel = "\N{GRINNING FACE}" * 100_000
    with namespace.open_writer(LOG) as writer:
        writer.write(bytes(100_000), key=bytes(100_000), channel=channel).result(120)
        for longer in ({"channel": channel + "x"}, {"key": bytes(100_001)}):
            with pytest.raises(RecordTooLarge):
                writer.write(b"", **longer)  # type: ignore[arg-type]
    with namespace.open_reader(LOG) as reader:
        assert [record.channel for record in reader.read()] == [channel]
