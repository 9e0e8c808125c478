"""Append and catch-up read of one log, beside what the disk and the processor give for the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from scribengin.base.clock import Clock
from scribengin.log import LogNamespace
from scribengin_dev.bench.rows import Row, Scale, alternating
from scribengin_registry.contract import Registry
from scribengin_tools.logs.benchmark import append, fill, group_sizes, read_and_checksum_s, write_and_sync_s

_READ_RECORDS = 65_536
_NO_PEER = "none yet: Kafka and DistributedLog come with their servers"
_DURABLE = "one copy; fsync before every ack; two checksums an entry"


@dataclass(frozen=True, slots=True)
class LogBench:
    """Where the log benchmarks run: a namespace whose segments lie in `directory`."""

    namespace: LogNamespace
    registry: Registry
    directory: Path
    scale: Scale
    clock: Clock
    _numbers: Iterator[int] = field(default_factory=count)

    @contextmanager
    def new_log(self) -> Iterator[str]:
        """A log of its own, deleted afterwards."""
        name = f"bench/{next(self._numbers)}"
        self.namespace.create(name)
        try:
            yield name
        finally:
            self.namespace.delete(name, force=True)

    def segment_files(self, log: str) -> list[Path]:
        """The files that hold the log's records."""
        return [self.directory / f"{segment.file}.log" for segment in self.namespace.segments(log)]


def append_100(bench: LogBench) -> Row:
    """100 B records in batches."""
    rate, _ = alternating(bench.scale.runs, lambda: (_append_once(bench, 100)[0], 0.0))
    return Row("append-100B", "records/s", rate, None, _NO_PEER, f"{_DURABLE}; one writer, batches of 1 MiB")


def append_1024(bench: LogBench) -> Row:
    """1 KiB records in batches, beside the disk with the same writes."""

    def measure() -> tuple[float, float]:
        ours, records, sizes = _append_once(bench, 1024)
        peer_s = write_and_sync_s(bench.directory / "limit", sizes, bench.clock)
        return ours, records / peer_s

    rate, limit = alternating(bench.scale.runs, measure)
    peer = "the disk: the same bytes in the same writes, each with its fsync"
    return Row("append-1KiB", "records/s", rate, limit, peer, f"{_DURABLE}; one writer, batches of 1 MiB")


def append_one_by_one(bench: LogBench) -> Row:
    """100 B records through `write()`, one call a record."""

    def measure() -> tuple[float, float]:
        payload = bytes(100)
        with bench.new_log() as log, bench.namespace.open_writer(log) as writer:
            begun_s = bench.clock.monotonic_s()
            for _ in range(bench.scale.single_records):
                future = writer.write(payload)
            future.result()
            return bench.scale.single_records / (bench.clock.monotonic_s() - begun_s), 0.0

    rate, _ = alternating(bench.scale.runs, measure)
    return Row(
        "append-100B-one-by-one", "records/s", rate, None, _NO_PEER, f"{_DURABLE}; one writer, one call a record"
    )


def read_100(bench: LogBench) -> Row:
    """Catch-up read of 100 B records."""
    return _read(bench, "read-100B", 100)


def read_1024(bench: LogBench) -> Row:
    """Catch-up read of 1 KiB records."""
    return _read(bench, "read-1KiB", 1024)


LOG_BENCHMARKS: dict[str, Callable[[LogBench], Row]] = {
    "append-100B": append_100,
    "append-1KiB": append_1024,
    "append-100B-one-by-one": append_one_by_one,
    "read-100B": read_100,
    "read-1KiB": read_1024,
}


def _append_once(bench: LogBench, record_bytes: int) -> tuple[float, int, list[int]]:
    """(records per second, records, bytes of each group that was written and made durable at once)."""
    records = bench.scale.log_bytes // record_bytes
    with bench.new_log() as log:
        with bench.namespace.open_writer(log) as writer:
            writer.write(b"").result()  # the segment is made at the first append; a limit's file is there before, too
            begun_s = bench.clock.monotonic_s()
            append(writer, record_bytes, records)
            took_s = bench.clock.monotonic_s() - begun_s
        _first, *sizes = [size for path in bench.segment_files(log) for size in group_sizes(path)]
    return records / took_s, records, sizes


def _read(bench: LogBench, name: str, record_bytes: int) -> Row:
    records = bench.scale.log_bytes // record_bytes
    with bench.new_log() as log:
        fill(bench.namespace, log, record_bytes, records)
        files = bench.segment_files(log)
        _read_all(bench, log)  # so that both sides find the files in the page cache

        def measure() -> tuple[float, float]:
            begun_s = bench.clock.monotonic_s()
            found = _read_all(bench, log)
            ours_s = bench.clock.monotonic_s() - begun_s
            assert found == records, f"{found} of {records} records were read"
            return records / ours_s, records / read_and_checksum_s(files, bench.clock)

        rate, limit = alternating(bench.scale.runs, measure)
    peer = "the processor: reading the same cached files, and their CRC-32C"
    return Row(
        name, "records/s", rate, limit, peer, "every record in order, as Arrow; both checksums of each entry hold"
    )


def _read_all(bench: LogBench, log: str) -> int:
    found = 0
    with bench.namespace.open_reader(log) as reader:
        end = reader.end_position()
        while reader.position < end:
            batch = reader.read_batch(_READ_RECORDS, place=False)
            found += 0 if batch is None else batch.num_rows
    return found
