"""`log bench`: append and catch-up read of one log on the disk where the logs are, beside that disk's own rate.

For a look at one machine. What compares with other systems is `python3 tools/dev.py bench`.
The disk's own rate is what the machine itself can do: the limits that the log store is held against.
"""

from __future__ import annotations

import os
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.log import LogConfig, LogNamespace, LogWriter

# The checksum is the one that the log store uses: the limit shall not be another library's speed.
from scribengin.log.format.entry import (  # type: ignore[attr-defined]  # crc32c is imported there only
    Damage,
    crc32c,
    read_header,
)
from scribengin.log.store.mark import MARK
from scribengin_registry.contract import Registry
from scribengin_tools.rendering.text import byte_count

_READ_RECORDS = 65_536
_ENTRY_BYTES = LogConfig().entry_bytes_max
_BYTES_BESIDE_PAYLOAD = 32  # what a record takes in an entry beside its payload, at most
_TEXT = b"the quick brown fox jumps over the lazy dog 0123456789. "  # SQL shall find text, as upper() expects
_UNACKNOWLEDGED_MAX = 32
_CHUNK_BYTES = 1024 * 1024
_SOURCE_BYTES = 128 * _CHUNK_BYTES


@dataclass(frozen=True, slots=True)
class LogMeasurement:
    """One run: what was written, and how many seconds it took; the same bytes without a log in `disk_*`."""

    records: int
    record_bytes: int
    bytes: int
    append_s: float
    disk_append_s: float
    read_s: float
    disk_read_s: float
    fsync_p50_ms: float

    def to_json(self) -> dict[str, Any]:
        """With the rates that follow from it."""
        return {
            **asdict(self),
            "append_records_per_s": self.records / self.append_s,
            "read_records_per_s": self.records / self.read_s,
            "append_of_disk": self.disk_append_s / self.append_s,
            "read_of_disk": self.disk_read_s / self.read_s,
        }

    def rows(self) -> Iterator[tuple[str, str, str, str, str]]:
        """What, records a second, bytes a second, those of the disk, the ratio of the two."""
        for what, ours_s, disk_s in (
            ("append", self.append_s, self.disk_append_s),
            ("read", self.read_s, self.disk_read_s),
        ):
            rate, limit = (f"{byte_count(int(self.bytes / took_s))}/s" for took_s in (ours_s, disk_s))
            yield what, f"{self.records / ours_s:,.0f}", rate, limit, f"{disk_s / ours_s:.2f}"


@contextmanager
def scratch_namespace(registry: Registry, directory: Path) -> Iterator[LogNamespace]:
    """A namespace with its logs in `directory`, gone afterwards. Raises ConfigInvalid, LogWriteFailed."""
    made, marked = not directory.exists(), (directory / MARK).exists()
    path = f"/log-bench-{uuid.uuid4().hex[:12]}"
    try:
        LogNamespace.bind(path, directory, registry=registry)
        with LogNamespace.open(path, registry=registry) as namespace:
            yield namespace
    finally:
        if registry.find(path) is not None:
            registry.delete(path, recursive=True)
        if not marked:
            (directory / MARK).unlink(missing_ok=True)
        if made:
            with suppress(OSError):  # it was not made after all, or something else came to lie there
                directory.rmdir()


def measure(namespace: LogNamespace, records: int, record_bytes: int, clock: Clock = SYSTEM_CLOCK) -> LogMeasurement:
    """Fill a log of its own, read it, delete it. Raises what writing and reading raise."""
    log = f"bench-{uuid.uuid4().hex[:12]}"
    directory = namespace.local_directory
    namespace.create(log)
    try:
        append_s = _seconds(clock, lambda: fill(namespace, log, record_bytes, records))
        files = [directory / f"{segment.file}.log" for segment in namespace.segments(log)]
        read_s = _seconds(clock, lambda: _read_all(namespace, log))
        return LogMeasurement(
            records=records,
            record_bytes=record_bytes,
            bytes=sum(path.stat().st_size for path in files),
            append_s=append_s,
            disk_append_s=write_and_sync_s(
                directory / f".{log}", [size for path in files for size in group_sizes(path)], clock
            ),
            read_s=read_s,
            disk_read_s=read_and_checksum_s(files, clock),
            fsync_p50_ms=fsync_p50_ms(directory, clock),
        )
    finally:
        namespace.delete(log)


def _seconds(clock: Clock, work: Callable[[], None]) -> float:
    begun_s = clock.monotonic_s()
    work()
    return clock.monotonic_s() - begun_s


def _read_all(namespace: LogNamespace, log: str) -> None:
    with namespace.open_reader(log) as reader:
        end = reader.end_position()
        while reader.position < end:
            reader.read_batch(_READ_RECORDS)


def records_batch(record_bytes: int, rows: int) -> pa.RecordBatch:
    """Records of that size as a user would have them in Arrow: payloads only."""
    data = pa.py_buffer(_TEXT * (record_bytes * rows // len(_TEXT) + 1))
    offsets = pa.array(range(0, record_bytes * rows + 1, record_bytes), pa.int32()).buffers()[1]
    payload = pa.Array.from_buffers(pa.binary(), rows, [None, offsets, data])
    return pa.record_batch({"payload": payload})


def fill(namespace: LogNamespace, log: str, record_bytes: int, records: int) -> None:
    """Append that many records, and return when all are durable."""
    with namespace.open_writer(log) as writer:
        append(writer, record_bytes, records)


def append(writer: LogWriter, record_bytes: int, records: int) -> None:
    """The same with a writer that is open."""
    rows = _ENTRY_BYTES // (record_bytes + _BYTES_BESIDE_PAYLOAD)  # a batch is just one entry
    whole, rest = divmod(records, rows)
    batch = records_batch(record_bytes, rows)
    waiting = deque([writer.write_bulk(batch.slice(0, rest))] if rest else [])
    for _ in range(whole):
        waiting.append(writer.write_bulk(batch))
        if len(waiting) > _UNACKNOWLEDGED_MAX:
            waiting.popleft().result()
    for future in waiting:
        future.result()


def group_sizes(segment: Path) -> list[int]:
    """The sizes of what was written with one fsync, as the entries' headers tell."""
    try:
        return group_sizes_of(memoryview(segment.read_bytes()))
    except ValueError as error:
        raise ValueError(f"{segment} at {error}") from None


def group_sizes_of(data: memoryview) -> list[int]:
    """The same of a segment's bytes."""
    sizes: list[int] = []
    at = 0
    while at < len(data):
        header = read_header(data, at)
        if isinstance(header, Damage):
            raise ValueError(f"{at}: {header.reason}")
        if header.group_index == 0:
            sizes.append(0)
        sizes[-1] += header.size
        at += header.size
    return sizes


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
            found = 0
            while count := file.readinto(buffer):
                found = checksum(view[:count], found)
    return clock.monotonic_s() - begun_s


def checksum(data: bytes | memoryview, before: int = 0) -> int:
    """The CRC-32C of data, or of what has `before` and data behind it."""
    return int(crc32c(data, before))


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
    """In parts, as the log store does it, and for its reason: what takes 2 MiB at once waits for memory."""
    while block:
        block = block[os.write(file, block[:_CHUNK_BYTES]) :]
