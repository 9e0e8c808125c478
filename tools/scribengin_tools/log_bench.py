"""`log bench`: append and catch-up read of one log on the disk where the logs are, beside that disk's own rate.

For a look at one machine. What compares with other systems is `python3 tools/dev.py bench`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scribengin.clock import SYSTEM_CLOCK, Clock
from scribengin.log import LogNamespace
from scribengin.log.mark import MARK
from scribengin_registry.contract import Registry
from scribengin_tools.bench.limits import fsync_p50_ms, read_and_checksum_s, write_and_sync_s
from scribengin_tools.bench.logs import fill, group_sizes
from scribengin_tools.render import byte_count

_READ_RECORDS = 65_536


@dataclass(frozen=True, slots=True)
class Measured:
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


def measure(namespace: LogNamespace, records: int, record_bytes: int, clock: Clock = SYSTEM_CLOCK) -> Measured:
    """Fill a log of its own, read it, delete it. Raises what writing and reading raise."""
    log = f"bench-{uuid.uuid4().hex[:12]}"
    directory = Path(namespace.descriptor.location)
    namespace.create(log)
    try:
        append_s = _seconds(clock, lambda: fill(namespace, log, record_bytes, records))
        files = [directory / f"{segment.file}.log" for segment in namespace.segments(log)]
        read_s = _seconds(clock, lambda: _read_all(namespace, log))
        return Measured(
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
