"""What the machine itself can do: the limits that the log store is held against."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from scribengin.base.clock import Clock

# The checksum is the one that the log store uses: the limit shall not be another library's speed.
from scribengin.log.format.entry import crc32c  # type: ignore[attr-defined]  # imported there only

_CHUNK_BYTES = 1024 * 1024
_SOURCE_BYTES = 128 * _CHUNK_BYTES


def settle_disk() -> None:
    """Write back what others left in the page cache (a broker that does not sync leaves much), so that whoever is
    measured next does not pay for it."""
    os.sync()


def write_and_sync_s(path: Path, sizes: Sequence[int], clock: Clock) -> float:
    """Seconds that it takes to append blocks of these sizes to a new file, each made durable before the next.

    The blocks are taken from all over a buffer that no processor cache holds, as real data would be.
    """
    source = memoryview(os.urandom(_CHUNK_BYTES) * (_SOURCE_BYTES // _CHUNK_BYTES + max(sizes) // _CHUNK_BYTES + 1))
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        begun_s = clock.monotonic_s()
        written = 0
        for size in sizes:
            start = written % _SOURCE_BYTES
            _write_all(file, source[start : start + size])
            os.fdatasync(file)
            written += size
        return clock.monotonic_s() - begun_s
    finally:
        os.close(file)
        path.unlink()


def read_and_checksum_s(paths: Sequence[Path], clock: Clock) -> float:
    """Seconds that it takes to read files from the page cache and take their CRC-32C."""
    buffer = bytearray(_CHUNK_BYTES)
    view = memoryview(buffer)
    begun_s = clock.monotonic_s()
    for path in paths:
        with path.open("rb", buffering=0) as file:
            checksum = 0
            while count := file.readinto(buffer):
                checksum = crc32c(view[:count], checksum)
    return clock.monotonic_s() - begun_s


def fsync_p50_ms(directory: Path, clock: Clock, syncs: int = 50) -> float:
    """The median time to append 4 KiB and make them durable, in milliseconds."""
    path = directory / "fsync-probe"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        return 1000 * median(_one_sync_s(file, clock) for _ in range(syncs))
    finally:
        os.close(file)
        path.unlink()


def _one_sync_s(file: int, clock: Clock) -> float:
    begun_s = clock.monotonic_s()
    os.write(file, bytes(4096))
    os.fdatasync(file)
    return clock.monotonic_s() - begun_s


def _write_all(file: int, block: memoryview) -> None:
    while block:
        block = block[os.write(file, block) :]
