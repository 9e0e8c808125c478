"""HDFS itself, for what our logs have there: their bytes written again with as many hsyncs, and read again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.filesystems.hdfs import HdfsFileSystem
from scribengin.filesystems.hdfs_open import OpenFiles
from scribengin_tools.logs.benchmark import checksum, group_sizes_of
from scribengin_tools.logs.pacing import send_paced, ways_of

_WINDOW_BYTES = 8 * 1024 * 1024
_PLACE = "/itself"

Values = Mapping[str, Any]


def _append(job: Values) -> dict[str, float]:
    """The groups of our logs, in a file each, with an hsync behind each group. What was read is in memory before."""
    files, cluster = _files(job), OpenFiles(job["url"])
    files.make_directories(_PLACE)
    took_s = 0.0
    for number, (path, size) in enumerate(_segments(job, files)):
        data = memoryview(files.read(path, 0, size))
        sizes = group_sizes_of(data)
        file = cluster.create(f"{_PLACE}/{number}")
        file.hsync()  # its pipeline stands: our segment's did, too
        begun_s = SYSTEM_CLOCK.monotonic_s()
        at = 0
        for group in sizes:
            file.write(bytes(data[at : at + group]))
            file.hsync()
            at += group
        took_s += SYSTEM_CLOCK.monotonic_s() - begun_s
        file.close()
        files.remove(f"{_PLACE}/{number}")
    return {"seconds": took_s}


def _read(job: Values) -> dict[str, float]:
    """The files of our logs, the second time in this process, and what their CRC-32C costs."""
    files = _files(job)
    segments = _segments(job, files)
    took_s = 0.0
    for _ in range(2):
        begun_s = SYSTEM_CLOCK.monotonic_s()
        for path, size in segments:
            found = 0
            for at in range(0, size, _WINDOW_BYTES):
                found = checksum(files.read(path, at, min(size, at + _WINDOW_BYTES)), found)
        took_s = SYSTEM_CLOCK.monotonic_s() - begun_s
    return {"seconds": took_s}


def _sync(job: Values) -> dict[str, float]:
    """Records at a steady rate, each with its hsync."""
    files, cluster = _files(job), OpenFiles(job["url"])
    files.make_directories(_PLACE)
    file = cluster.create(f"{_PLACE}/sync")
    ways_s: list[float] = []

    def send(data: bytes) -> None:
        begun_s = SYSTEM_CLOCK.monotonic_s()
        file.write(data)
        file.hsync()
        ways_s.append(SYSTEM_CLOCK.monotonic_s() - begun_s)

    send_paced(send, job["records"], job["per_s"], job["record_bytes"])
    file.close()
    files.remove(f"{_PLACE}/sync")
    return ways_of(ways_s)


JOBS: Mapping[str, Callable[[Values], dict[str, float]]] = {"append": _append, "read": _read, "sync": _sync}


def _files(job: Values) -> HdfsFileSystem:
    return HdfsFileSystem(urlsplit(job["url"]).netloc)


def _segments(job: Values, files: HdfsFileSystem) -> list[tuple[str, int]]:
    """The path and size of each segment of our logs there."""
    found = [(f"{job['directory']}/{info.name}", info.size_bytes) for info in files.find(job["directory"])]
    segments = sorted(one for one in found if one[0].endswith(".log") and one[1])
    assert segments, "there is a log"
    return segments
