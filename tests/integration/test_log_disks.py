"""Disks that refuse, are full, or lie: acknowledgements stay honest, and nothing is cut that was safe."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scribengin.errors import (
    LogWriteFailed,
    RecoveryRefused,
)
from scribengin.log import LogNamespace
from scribengin.testing.failpoints import failpoint
from scribengin.testing.log_samples import bound_namespace, payload_batch, payloads_read
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry

LOG = "flights/0"


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    return bound_namespace(registry, tmp_path / "store", LOG)


def io_error(_stop: str) -> None:
    raise OSError(5, "Input/output error")


@pytest.mark.parametrize("stop", ["log.segment_write:before", "log.segment_sync:before", "log.tail_write:before"])
def test_a_disk_that_refuses_ends_the_writer_and_the_next_goes_on(namespace: LogNamespace, stop: str) -> None:
    writer = namespace.open_writer(LOG)
    writer.write(b"acknowledged").result(10)
    with failpoint(stop, io_error):
        refused = writer.write(b"refused")
        with pytest.raises(LogWriteFailed, match="Input/output error"):
            refused.result(10)
    for call in (lambda: writer.write(b"x"), writer.flush, lambda: writer.write_bulk(payload_batch([b"x"]))):
        with pytest.raises(LogWriteFailed):
            call()
    writer.close()
    with namespace.open_writer(LOG, timeout_s=0) as successor:
        successor.write(b"next").result(10)
    found = payloads_read(namespace, LOG)
    assert found in ([b"acknowledged", b"next"], [b"acknowledged", b"refused", b"next"])
    assert (b"refused" in found) == (stop != "log.segment_write:before")
    assert len(namespace.segments(LOG)) == 2


def test_a_failure_nobody_saw_is_raised_by_close(namespace: LogNamespace) -> None:
    writer = namespace.open_writer(LOG)
    with failpoint("log.segment_sync:before", io_error):
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
                writer.write(payload).result(10)
            except LogWriteFailed as error:
                assert "make room" in str(error)  # noqa: PT017  the loop is what raises it, some time
                break
            acknowledged.append(payload)
        writer.abort()
    assert 50 < len(acknowledged) < 120
    assert payloads_read(namespace, LOG) == acknowledged
    with namespace.open_writer(LOG) as successor:
        successor.write(b"room again").result(10)
    assert payloads_read(namespace, LOG) == [*acknowledged, b"room again"]


def test_damage_to_what_was_safe_keeps_every_writer_out(namespace: LogNamespace) -> None:
    writer = namespace.open_writer(LOG)
    for n in range(3):
        writer.write(b"%d" % n).result(10)
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
        successor.write(b"3").result(10)
    assert payloads_read(namespace, LOG) == [b"0", b"1", b"2", b"3"]


def test_a_segment_file_that_is_gone_keeps_every_writer_out(namespace: LogNamespace) -> None:
    writer = namespace.open_writer(LOG)
    writer.write(b"x").result(10)
    writer.abort()
    (Path(namespace.descriptor.location) / f"{namespace.segments(LOG)[0].file}.log").unlink()
    with pytest.raises(RecoveryRefused, match="bring the file back"):
        namespace.open_writer(LOG)


def test_a_file_that_was_made_and_never_registered_is_swept_away(namespace: LogNamespace) -> None:
    def crash(_stop: str) -> None:
        raise OSError(5, "crash")

    writer = namespace.open_writer(LOG)
    with failpoint("log.metadata:before", crash):
        future = writer.write(b"x")
        assert isinstance(future.exception(10), OSError)
    writer.abort()
    directory = next(Path(namespace.descriptor.location).iterdir())
    assert len(list(directory.iterdir())) == 1
    namespace.open_writer(LOG).close()
    assert list(directory.iterdir()) == []
