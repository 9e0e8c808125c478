"""Files of lines as a source: a directory, a file or a glob, followed as it grows.

A file belongs to the stream crc32(name) % streams, where its name is its path below the directory. Lines are records.
New files are found whatever their names, files that grow are read on. A last line without a newline waits until the
file has not been written to for `settle_s`: somebody may be in the middle of it. Should it grow in mid-line after that,
it is an error, because half a line has been read as a record.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
from pydantic import Field, field_validator

from scribengin.clock import Clock
from scribengin.connectors.contract import (
    RECORD_SCHEMA,
    PlannedRange,
    RoundLimits,
    Source,
    SourceConfig,
    SourceStreamDescriptor,
    SourceStreamReader,
)
from scribengin.connectors.files.lines import NEWLINE, LineScan, cut, decode
from scribengin.connectors.files.paths import Pattern, absolute, file_system
from scribengin.connectors.files.position import FilePosition, Unread
from scribengin.connectors.files.system import FileInfo
from scribengin.errors import DataflowError, SourceMissing
from scribengin.model import Position

SPLIT_BYTES = 4 * 1024 * 1024
LAG_BYTES_MAX = 64 * 1024 * 1024
"""Unread bytes beyond this are not counted line by line but estimated from those that were."""
_POLL_MIN_S = 0.01
_POLL_MAX_S = 0.5
_MS_PER_S = 1000
_MANY = 2**62
_ONE = RoundLimits(records_max=1, bytes_max=1)


class FileSourceConfig(SourceConfig):
    """Lines of text in files. Files and directories whose names begin with `_` or `.` are not input."""

    kind: Literal["hdfs"]
    path: str
    """A directory (and all below it), a file, or a glob; a relative path is taken from the current directory."""
    streams: int = Field(default=1, ge=1, le=10_000)
    settle_s: float = Field(default=10.0, ge=0)
    """A last line without a newline is a record once its file has not been written to for this long."""
    follow: bool = True
    """False: the source ends when everything that is there has been read."""

    @field_validator("path")
    @classmethod
    def _absolute_path(cls, value: str) -> str:
        return absolute(value)


@dataclass(frozen=True, slots=True)
class FileSplit:
    """The lines in the bytes [start, end) of one file."""

    path: str
    start: int
    end: int
    records: int

    @property
    def size_bytes(self) -> int:
        return self.end - self.start

    def read(self) -> Iterator[pa.RecordBatch]:
        """One batch. Raises DataflowError when the file is gone or is not what it was when the range was planned."""
        files, path = file_system(self.path)
        try:
            text = files.read(path, self.start, self.end)
        except FileNotFoundError:
            raise DataflowError(
                f"{self.path} was deleted after it was planned; put it back, it is read again"
            ) from None
        batch = decode(text)
        if len(text) != self.size_bytes or batch.num_rows != self.records:
            raise DataflowError(
                f"{self.path} changed after it was planned: bytes {self.start} to {self.end} held {self.records} "
                f"lines, and {len(text)} bytes with {batch.num_rows} are there now; files may only grow"
            )
        yield batch


class FileSource(Source):
    """All files that the configuration means, spread over its streams."""

    def __init__(self, name: str, config: FileSourceConfig, clock: Clock) -> None:
        """Raises ConfigInvalid when no file system opens the path."""
        self._name = name
        self._config = config
        self._clock = clock
        self._listing = Listing(config.path)

    @property
    def schema(self) -> pa.Schema:
        return RECORD_SCHEMA

    def streams(self) -> list[SourceStreamDescriptor]:
        self._listing.check()
        return [SourceStreamDescriptor(source=self._name, name=str(k)) for k in range(self._config.streams)]

    def open_reader(self, stream: SourceStreamDescriptor) -> SourceStreamReader:
        return FileStreamReader(self._config, self._listing, int(stream.name), self._clock)

    def close(self) -> None:
        """Nothing is held."""


class FileStreamReader(SourceStreamReader):
    """Reads the files of one stream. Holds no file open between calls."""

    def __init__(self, config: FileSourceConfig, listing: Listing, stream: int, clock: Clock) -> None:
        self._config = config
        self._listing = listing
        self._stream = stream
        self._clock = clock
        self._what = f"{config.path} (stream {stream})"
        self._closed = threading.Event()

    def initial_position(self) -> Position:
        return FilePosition(self._config.streams).to_position(what=self._what)

    def plan(self, position: Position, limits: RoundLimits) -> PlannedRange | None:
        begin = self._parse(position)
        infos = self._infos()
        read: dict[str, int] = {}
        splits: list[FileSplit] = []
        records = size = 0
        for file in begin.unread(infos, what=self._what):
            left = RoundLimits(limits.records_max - records, limits.bytes_max - size)
            if left.records_max < 1 or left.bytes_max < 1:
                break
            scan = self._scan(file, left, alone=not records)
            if scan.end.records:
                read[file.info.name] = scan.end.offset
                splits += self._splits(file, scan)
                records += scan.end.records
                size += scan.end.offset - scan.start
        if not records:
            return None
        end = begin.moved(read, infos).to_position(what=self._what)
        return PlannedRange(position, end, records, tuple(splits))

    def wait(self, position: Position, timeout_s: float) -> bool:
        deadline_s = self._clock.monotonic_s() + timeout_s
        pause_s = _POLL_MIN_S
        while self.plan(position, _ONE) is None:
            left_s = deadline_s - self._clock.monotonic_s()
            if left_s <= 0 or self._closed.wait(min(pause_s, left_s)):
                return False
            pause_s = min(2 * pause_s, _POLL_MAX_S)
        return True

    def lag(self, position: Position) -> int:
        """Exact up to LAG_BYTES_MAX unread bytes; beyond that estimated from the lines that were counted."""
        counted = records = uncounted = 0
        for file in self._parse(position).unread(self._infos(), what=self._what):
            scan = self._scan(file, RoundLimits(_MANY, LAG_BYTES_MAX - counted), alone=False)
            records += scan.end.records
            counted += scan.end.offset - scan.start
            uncounted += 0 if scan.complete else file.info.size_bytes - scan.end.offset
        return records + (max(1, uncounted * records // max(counted, 1)) if uncounted else 0)

    def ended(self, position: Position) -> bool:
        return not self._config.follow and self.plan(position, _ONE) is None

    def close(self) -> None:
        self._closed.set()

    def _parse(self, position: Position) -> FilePosition:
        return FilePosition.parse(position, streams=self._config.streams, what=self._what)

    def _infos(self) -> list[FileInfo]:
        return [i for i in self._listing.infos() if zlib.crc32(i.name.encode()) % self._config.streams == self._stream]

    def _scan(self, file: Unread, limits: RoundLimits, *, alone: bool) -> LineScan:
        """Find the lines from `file.offset` on, as many as `limits` allow."""
        info, url = file.info, self._listing.url(file.info.name)
        try:
            start = file.offset + self._newline_of_a_settled_line(file, url)
            scan = LineScan(url, start, info.size_bytes, limits, tail_is_line=self._settled(info), alone=alone)
            scan.run(lambda begin, end: self._listing.read(url, begin, end))
        except FileNotFoundError:
            raise DataflowError(f"{url} was deleted while it was read; put it back to go on") from None
        return scan

    def _newline_of_a_settled_line(self, file: Unread, url: str) -> int:
        """1 when the last line read had no newline then and has one now, else 0. Raises when it went on instead."""
        if not file.offset:
            return 0
        around = self._listing.read(url, file.offset - 1, file.offset + 1)
        if around[:1] == NEWLINE:
            return 0
        if around[1:] in (NEWLINE, b""):  # a file that was cut just now is the scan's to find
            return len(around[1:])
        raise DataflowError(
            f"{url}: the line that ended at byte {file.offset} was read as complete when it had stood for "
            f"{self._config.settle_s:g} s without a newline, and has grown since; raise settle_s for so slow a "
            "writer, and give the file a new name"
        )

    def _settled(self, info: FileInfo) -> bool:
        """Whether nobody is writing to the file, as far as its own clock and ours can tell."""
        still_ms = self._clock.now_ms() - info.modified_ms
        return not self._config.follow or still_ms >= self._config.settle_s * _MS_PER_S

    def _splits(self, file: Unread, scan: LineScan) -> list[FileSplit]:
        url = self._listing.url(file.info.name)
        return [FileSplit(url, *piece) for piece in cut(scan.start, scan.marks, SPLIT_BYTES)]


class Listing:
    """The files that a path means, as they are at each call."""

    def __init__(self, path: str) -> None:
        """Raises ConfigInvalid when no file system opens the path."""
        self._pattern = Pattern.of(path)
        self._files, self._base = file_system(self._pattern.base)

    def url(self, name: str) -> str:
        """Where any process finds the file `name`."""
        is_one_file = self._pattern.names is None and not self._files.is_directory(self._base)
        return self._pattern.base if is_one_file else f"{self._pattern.base.rstrip('/')}/{name}"

    def read(self, url: str, start: int, end: int) -> bytes:
        """Some bytes of one of the files. Raises FileNotFoundError."""
        files, path = file_system(url)
        return files.read(path, start, end)

    def check(self) -> None:
        """Raises SourceMissing."""
        if not self._files.is_directory(self._base):
            self.infos()

    def infos(self) -> list[FileInfo]:
        """The files, by name. Raises SourceMissing."""
        try:
            found = self._pattern.matching(self._files.find(self._base, self._pattern.depth_max))
            for info in found:
                info.name.encode()
        except FileNotFoundError:
            raise SourceMissing(
                f"there is no file or directory {self._pattern.base}: create it, or correct the source's path"
            ) from None
        except UnicodeEncodeError as error:
            raise DataflowError(
                f"{self._pattern.base}: the name {error.object!a} is not UTF-8, and no position holds it; rename it"
            ) from None
        return found
