"""Segments on HDFS: what a YARN cluster has, with no further system to run. A live segment is a file that one writer
appends to, and what is acknowledged is on the disks of every DataNode of its pipeline (`hsync`).

Fencing is HDFS's own, as for every write-ahead log on it. Whoever fences takes the file's lease; its DataNodes agree
on a length, and the file is closed. That length holds all that was ever acknowledged, because all of them had it. The
old writer's next sync fails, for its block has another generation. So an append that is acknowledged needs no look at
anything: had the segment been closed before the DataNodes had it, they would have refused it. What is acknowledged
while the fence returns stands in the segment that it leaves.

Differences to files (file.py):
- Nothing is written in place, so `.tail` is a file that the writer adds a slot to (layout.py) whenever it shows more.
  The last whole one counts. `hflush` is enough for it: after a power failure it may be behind.
- There is no `.fence`: a closed file is fenced.
- Nobody tells a reader that a tail has moved. It looks from time to time: it asks a DataNode how far `.tail` goes by
  now, and opens nothing anew. What the tail shows all DataNodes have, so the segment's own end is not asked for.
- Blocks of a removed file go from the DataNodes seconds later, under whoever still reads it.
- What nobody writes to any more is read without Java. What is open needs a JVM, in writers and in readers of the tail
  (hdfs_open.py says why).
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pyarrow as pa

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.failpoints import failpoint
from scribengin.base.threads import pause
from scribengin.errors import (
    DataflowError,
    Fenced,
    LogClosed,
    LogNotFound,
    LogWriteFailed,
    OutOfRoom,
    StoreUnreachable,
    SystemUnreachable,
)
from scribengin.filesystems.hdfs import CompleteFile, HdfsFileSystem
from scribengin.filesystems.hdfs_open import OpenFile, OpenFileReader, OpenFiles
from scribengin.log.store.contract import (
    Announced,
    IndexKind,
    PlacedEntry,
    SegmentAppender,
    SegmentLocation,
    SegmentName,
    SegmentStore,
    SegmentView,
    Tail,
)
from scribengin.log.store.index import INTERVAL_BYTES, IndexRow
from scribengin.log.store.layout import (
    INDEX_SUFFIXES,
    SLOT_BYTES,
    SUFFIXES,
    TAIL_BYTES,
    read_tail,
    segments_of,
    slot_of,
)
from scribengin.log.store.mark import another_place

WINDOW_BYTES = 8 * 1024 * 1024
_WHOLE_BYTES_MAX = 2 * 1024 * 1024
RECOVERY_S = 60.0
"""So long DataNodes may take to agree on a file's length before a fence gives up. They need two of their heartbeats."""
_LOOK_S = 0.1
_ANEW_S_MIN, _ANEW_S_MAX = 1.0, 8.0
"""After so long without news of a tail its file is opened anew, and later where that brings none. Its writer may have
left behind the DataNode that is asked, and has gone on with the others."""
_LEASED = (".log", ".tail", ".idx")
_MARK = ".namespace"
_TOKEN = re.compile(r"[0-9a-f]{32}")
_MADE = ".made"
_ANNOUNCED = re.compile(r"(\d+)-(\d{18})")
_LOCATION = re.compile(r"hdfs://([^/\s]*)(/[^\s]*)")


def split_location(location: str) -> tuple[str, str]:
    """Authority and path of `hdfs://<authority>/<path>`, without a slash at the end. Raises ValueError."""
    match = _LOCATION.fullmatch(location)
    if match is None or not match[2].strip("/"):
        raise ValueError(f"'{location}' is no directory of HDFS: write hdfs://<namenode>:<port>/<path>")
    return match[1], match[2].rstrip("/")


@contextmanager
def _refusals(doing: str) -> Iterator[None]:
    """What HDFS refuses in the block becomes LogWriteFailed: StoreUnreachable where it may answer later. A missing file
    and a name that is taken stay."""
    try:
        yield
    except (FileNotFoundError, FileExistsError):
        raise
    except OutOfRoom as error:
        raise LogWriteFailed(f"cannot {doing}: {error}") from error
    except (ConnectionError, TimeoutError, SystemUnreachable) as error:
        raise StoreUnreachable(f"cannot {doing}: {error}; is HDFS running, with enough DataNodes?") from error
    except (OSError, DataflowError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise LogWriteFailed(f"cannot {doing}: {why}; make room or mend HDFS, then open a new writer") from error


@dataclass(frozen=True, slots=True)
class HdfsLocation(SegmentLocation):
    """A file of a cluster, which any process reads that reaches the cluster."""

    authority: str
    path: str

    def open(self) -> SegmentView:
        return HdfsView(HdfsFileSystem(self.authority), self.path)

    def __str__(self) -> str:
        return f"hdfs://{self.authority}{self.path}"


class HdfsSegmentStore(SegmentStore):
    """Segments as files below one directory of a cluster. With a `token`, only while that stands there."""

    def __init__(self, location: str, token: str | None = None) -> None:
        self._authority, self._root = split_location(location)
        self._token = token
        self._files = HdfsFileSystem(self._authority)
        self._open_files = OpenFiles(self._files.url)

    def mark(self) -> str:
        """Make the directory, and its token if it has none: what stands there. Raises LogWriteFailed."""
        path = f"{self._root}/{_MARK}"
        with _refusals(f"mark {self._named(path)}"), failpoint("log.mark"):
            self._files.make_directories(self._root)
            private = f"{path}-{uuid.uuid4().hex}"
            _write_file(self._files, private, uuid.uuid4().hex.encode("ascii"))
            try:
                self._files.rename(private, path)
            except FileExistsError:  # whoever came first has said it
                self._files.remove(private)
        token = self._read_mark()
        if token is None:
            raise LogWriteFailed(f"{self._named(path)} holds no token: another program's file? use another directory")
        return token

    def unmark(self) -> None:
        """Remove the token, if it stands there. Idempotent. Raises LogWriteFailed."""
        path = f"{self._root}/{_MARK}"
        with _refusals(f"remove {self._named(path)}"), failpoint("log.unmark"):
            if self._read_mark() == self._token:
                self._files.remove(path)

    def _read_mark(self) -> str | None:
        try:
            found = _TOKEN.search(self._files.read(f"{self._root}/{_MARK}", 0, 1024).decode("ascii", "replace"))
        except FileNotFoundError:
            return None
        return found[0] if found is not None else None

    def check_mounted(self) -> None:
        if self._token is None:
            return
        found = self._read_mark()
        if found != self._token:
            what = f"{self._named(self._root)} is not the directory of this namespace: its file {_MARK}"
            otherwise = "it is another cluster, or if it is the right one, write that token there"
            raise another_place(what, self._token, found, otherwise)

    def why_unwritable(self) -> str | None:
        return self._files.unwritable(self._root)

    def create_log(self, directory: str) -> None:
        self.check_mounted()
        self._make_directory(f"{self._root}/{directory}")

    def _make_directory(self, path: str) -> None:
        with _refusals(f"make the log directory {self._named(path)}"):
            if not self._files.is_directory(path):
                with failpoint("log.log_directory"):
                    self._files.make_directories(path)

    def delete_log(self, directory: str) -> None:
        self.check_mounted()
        path = f"{self._root}/{directory}"
        with _refusals(f"remove {self._named(path)}"), failpoint("log.log_directory_remove"):
            self._files.remove_tree(path)

    def create(self, name: SegmentName, *, fsync: bool) -> SegmentAppender:
        self.check_mounted()
        path = self._path(name)
        try:
            if not name.copy:
                self._announce(name)
            with _refusals(f"create segment {self._named(path)}"), failpoint("log.segment_create"):
                file = self._open_files.create(path)
        except FileNotFoundError:
            self.check_mounted()
            raise Fenced(
                f"the log directory {self._named(f'{self._root}/{name.directory}')} is gone: the log was deleted; "
                "create it again"
            ) from None
        except FileExistsError:
            raise LogWriteFailed(f"cannot create segment {self._named(path)}: it is there already") from None
        return HdfsAppender(self._open_files, path, file, fsync=fsync, check_mounted=self.check_mounted)

    def fence(self, name: SegmentName) -> None:
        path = self._path(name)
        left = list(_LEASED)
        until_s = SYSTEM_CLOCK.monotonic_s() + RECOVERY_S
        with _refusals(f"fence segment {self._named(path)}"), failpoint("log.fence"):
            while True:
                left = [suffix for suffix in left if not self._is_taken(_beside(path, suffix))]
                if not left:
                    return
                if SYSTEM_CLOCK.monotonic_s() > until_s:
                    raise TimeoutError(f"its DataNodes have not agreed on its length for {RECOVERY_S:g} s")
                pause(_LOOK_S)

    def _is_taken(self, path: str) -> bool:
        """Whether nobody has that file open any more. Begins to take it from whoever has."""
        try:
            return self._files.recover_lease(path)
        except FileNotFoundError:
            return True

    def make_durable(self, name: SegmentName) -> None:
        """What was only flushed is in the memory of DataNodes: the file's last block is opened once more, and synced.

        One whose writer still has it open is left to it.
        """
        path = self._path(name)
        try:
            with _refusals(f"make segment {self._named(path)} durable"), failpoint("log.settle"):
                try:
                    file = self._open_files.append(path)
                except FileExistsError:
                    return
                file.hsync()
                file.close()
        except FileNotFoundError:
            raise LogWriteFailed(f"cannot make segment {self._named(path)} durable: it is gone") from None

    def open(self, name: SegmentName, *, from_disk: bool = False) -> SegmentView:
        try:
            return HdfsView(self._files, self._path(name))
        except LogNotFound:
            self.check_mounted()
            raise

    def location(self, name: SegmentName) -> HdfsLocation:
        return HdfsLocation(self._authority, self._path(name))

    def _path(self, name: SegmentName) -> str:
        return f"{self._root}/{name}.log"

    def _named(self, path: str) -> str:
        return f"{self._files.url.rstrip('/')}{path}"

    def load_index(self, name: SegmentName, kind: IndexKind = "positions") -> bytes:
        try:
            view = HdfsView(self._files, _beside(self._path(name), INDEX_SUFFIXES[kind]))
            try:
                return bytes(view.read(0, view.size()))
            finally:
                view.close()
        except (LogNotFound, LogWriteFailed, OSError, DataflowError):
            return b""

    def save_index(self, name: SegmentName, index: bytes, kind: IndexKind = "positions") -> bool:
        path = _beside(self._path(name), INDEX_SUFFIXES[kind])
        private = f"{path}-{uuid.uuid4().hex}"
        try:
            with _refusals(f"keep {self._named(path)}"), failpoint("log.index_save"):
                _write_file(self._files, private, index)
                self._files.replace(private, path)
        except (LogWriteFailed, OSError):
            return False
        return True

    def names(self, directory: str) -> list[SegmentName]:
        self.check_mounted()
        return segments_of(directory, self._files.names(f"{self._root}/{directory}"))

    def announce(self, name: SegmentName) -> None:
        self.check_mounted()
        try:
            self._announce(name)
        except FileNotFoundError:
            raise LogWriteFailed(
                f"cannot announce a segment of {name.directory}: the log's directory is gone"
            ) from None

    def _announce(self, name: SegmentName) -> None:
        """Raises FileNotFoundError: the log has no directory. See announced.py for what the names mean."""
        log = f"{self._root}/{name.directory}"
        path = f"{log}/{_MADE}/{name.epoch}-{name.segment:018d}"
        with _refusals(f"announce a segment in {self._named(log)}"):
            if not self._files.is_directory(f"{log}/{_MADE}"):
                if not self._files.is_directory(log):
                    raise FileNotFoundError(log)
                self._files.make_directories(f"{log}/{_MADE}")
            with failpoint("log.announce"), suppress(FileExistsError):
                file = self._open_files.create(path)
                file.write(b"%d\n" % self._open_files.number(path))
                file.close()
            with failpoint("log.announced_remove"):
                for lower in [there for there in self._made(log) if there < (name.epoch, name.segment)]:
                    self._files.remove(f"{log}/{_MADE}/{lower[0]}-{lower[1]:018d}")

    def announced(self, directory: str) -> Announced:
        self.check_mounted()
        log = f"{self._root}/{directory}"
        with _refusals(f"look at {self._named(log)}"):
            epoch, segment = max(self._made(log), default=(0, 0))
            if not epoch:
                return Announced(0, None)
            path = f"{log}/{_MADE}/{epoch}-{segment:018d}"
            try:  # a copy of it has another number: it may be older than the files that were copied with it
                is_original = self._files.read(path, 0, 64) == b"%d\n" % self._open_files.number(path)
            except FileNotFoundError:
                is_original = False
            return Announced(epoch, segment if is_original else None)

    def _made(self, log: str) -> list[tuple[int, int]]:
        found = map(_ANNOUNCED.fullmatch, self._files.names(f"{log}/{_MADE}"))
        return [(int(name[1]), int(name[2])) for name in found if name is not None]

    def remove(self, name: SegmentName) -> int:
        self.check_mounted()
        path = self._path(name)
        with _refusals(f"remove segment {self._named(path)}"):
            size = self._files.size(path) or 0
            with failpoint("log.segment_remove"):
                for suffix in SUFFIXES:  # the segment itself goes last: what a crash leaves is found by its name
                    self._files.remove(_beside(path, suffix))
        return size

    def move(self, name: SegmentName, to: SegmentName) -> None:
        old, new = self._path(name), self._path(to)
        self._make_directory(new.rpartition("/")[0])
        with _refusals(f"move segment {self._named(old)} to {self._named(new)}"), failpoint("log.segment_move"):
            for suffix in SUFFIXES:  # the segment itself goes last: what a crash leaves is found by its name
                with suppress(FileNotFoundError):
                    self._files.rename(_beside(old, suffix), _beside(new, suffix))


class HdfsAppender(SegmentAppender):
    """Writes one segment's file, which it has just created, its tail and its index."""

    def __init__(
        self, files: OpenFiles, path: str, file: OpenFile, *, fsync: bool, check_mounted: Callable[[], None]
    ) -> None:
        self._files = files
        self._path = path
        self._file = file
        self._fsync = fsync
        self._check_mounted = check_mounted
        self._tail_file: OpenFile | None = None
        self._index_file: OpenFile | None = None
        self._closed = self._index_failed = False
        self._indexed_end = 0
        self._index_rows: list[IndexRow] = []

    def write(self, entries: Sequence[PlacedEntry]) -> None:
        buffers: list[bytes | memoryview] = []
        for entry in entries:
            buffers.append(entry.header.to_bytes())
            buffers.extend(memoryview(buffer) for buffer in entry.encoded.buffers if len(buffer))
            if entry.offset - self._indexed_end >= INTERVAL_BYTES:
                self._index_rows.append(IndexRow.of(entry.header, entry.offset))
                self._indexed_end = entry.offset
        with self._failing("write to"), failpoint("log.segment_write"):
            self._file.write(b"".join(buffers))

    def sync(self) -> None:
        with self._failing("sync"), failpoint("log.segment_sync"):
            if self._fsync:
                self._file.hsync()
            else:
                self._file.hflush()

    def make_durable(self) -> None:
        with self._failing("sync"), failpoint("log.segment_settle"):
            self._file.hsync()

    def publish(self, tail: Tail) -> None:
        with self._failing("write the tail of"), failpoint("log.tail_write"):
            if self._tail_file is None:
                self._tail_file = self._files.create(_beside(self._path, ".tail"))
            self._tail_file.write(slot_of(tail))
            self._tail_file.hflush()
        if self._index_rows and not self._index_failed:
            self._write_index_rows()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for file in (self._file, self._tail_file, self._index_file):
            if file is not None:
                with suppress(OSError):  # it was taken over, or HDFS is away: whoever recovers it closes it
                    file.close()

    def _write_index_rows(self) -> None:
        """A hint: where it cannot be kept, as where a reader has put a whole one in its place, there is none."""
        rows = b"".join(row.to_bytes() for row in self._index_rows)
        self._index_rows.clear()
        try:
            with failpoint("log.index_write"):
                if self._index_file is None:
                    self._index_file = self._files.create(_beside(self._path, ".idx"))
                self._index_file.write(rows)
                self._index_file.hflush()
        except OSError:
            self._index_failed = True

    @contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        """An error of a file that was closed by somebody else, or is gone, is the fence."""
        try:
            with _refusals(f"{what} segment {self._path}"):
                yield
        except (LogWriteFailed, FileNotFoundError, FileExistsError) as error:
            if self._is_closed():
                self._check_mounted()
                raise Fenced(
                    f"segment {self._path} was fenced: another writer owns the log now; open a new writer to go on"
                ) from error
            if isinstance(error, LogWriteFailed):
                raise
            raise LogWriteFailed(f"cannot {what} segment {self._path}: {error}; open a new writer") from error

    def _is_closed(self) -> bool:
        try:
            return self._files.is_closed(self._path)
        except OSError:
            return False  # nobody can tell: the error says what it is


class HdfsView(SegmentView):
    """One segment's file: without Java once nobody writes to it any more."""

    def __init__(self, files: HdfsFileSystem, path: str) -> None:
        self._files = files
        self._open_files = OpenFiles(files.url)
        self._path = path
        self._open = True
        self._opened: OpenFileReader | None = None
        self._tails: OpenFileReader | None = None
        self._tail: Tail | None = None
        self._tail_end = 0
        """So many bytes of its file are known."""
        self._looked_s = 0.0
        """When its file was opened, or news was read of it."""
        self._anew_after_s = _ANEW_S_MIN
        self._window: pa.Buffer | None = None
        self._window_start = 0
        self._complete: CompleteFile | None = None
        """Where nobody writes to it any more."""
        try:
            with _refusals(f"open segment {path}"):
                self._complete = files.open_complete(path)
        except FileNotFoundError:
            raise LogNotFound(
                f"segment {files.url}{path} is gone: its log was deleted or truncated; list the logs there are"
            ) from None

    def tail(self) -> Tail | None:
        self._check_open()
        with _refusals(f"read the tail of segment {self._path}"):
            file = self._tail_now()
            end = 0 if file is None else file.size - file.size % SLOT_BYTES
            if file is not None and end > self._tail_end:
                self._tail = read_tail(self._read_of(file, max(0, end - TAIL_BYTES), end)) or self._tail
                self._tail_end = end
                self._anew_after_s = _ANEW_S_MIN
                self._looked_s = SYSTEM_CLOCK.monotonic_s()
        return self._tail

    def leave_tail(self) -> None:
        if self._tails is not None:
            self._drop(self._tails)

    def _tail_now(self) -> OpenFileReader | None:
        """The file of the tail with all that it has by now. None: there is none."""
        now_s = SYSTEM_CLOCK.monotonic_s()
        file, anew_s = self._tails, self._looked_s + self._anew_after_s
        if file is not None and file.look() and (file.size >= self._tail_end + SLOT_BYTES or now_s < anew_s):
            return file
        try:
            opened = self._open_files.open(_beside(self._path, ".tail"))
        except FileNotFoundError:
            return None
        self._tails = opened
        self._anew_after_s = min(2 * self._anew_after_s, _ANEW_S_MAX)
        self._looked_s = now_s
        if file is not None:
            opened.take_over(file)
        return opened

    def watch_tail(self, moved: threading.Event) -> Callable[[], None] | None:
        return None

    def size(self) -> int:
        self._check_open()
        return self._reopened().size if self._complete is None else self._complete.size_bytes

    def read(self, offset: int, length: int) -> pa.Buffer:
        self._check_open()
        window = self._window
        if window is None or not self._has(window, offset, length):
            begin = 0 if self._is_small() else offset
            end = max(offset + length, begin + WINDOW_BYTES)
            window = self._window = pa.py_buffer(self._fetched(begin, end, offset + length))
            self._window_start = begin
        start = min(offset - self._window_start, window.size)
        return window.slice(start, min(length, window.size - start))

    def close(self) -> None:
        self._open = False
        self._window = self._complete = None
        for file in (self._opened, self._tails):
            if file is not None:
                self._drop(file)

    def _fetched(self, start: int, end: int, wanted_end: int) -> bytes:
        """The bytes [start, end), as many as there are; those before `wanted_end` also where they are new."""
        with _refusals(f"read segment {self._path}"):
            if self._complete is not None:
                return self._complete.read(start, end)
            opened = self._opened
            if opened is None or not (opened.size >= wanted_end or self._shows(opened, wanted_end)):
                opened = self._reopened()
            return self._read_of(opened, start, end)

    def _read_of(self, file: OpenFileReader, start: int, end: int) -> bytes:
        """Raises OSError: the file is opened anew then when it is read again."""
        try:
            return file.read(start, end)
        except OSError:
            self._drop(file)
            raise

    def _drop(self, file: OpenFileReader) -> None:
        if file is self._opened:
            self._opened = None
        else:
            self._tails = None
        with suppress(OSError):
            file.close()

    def _shows(self, opened: OpenFileReader, end: int) -> bool:
        """Let it read as far as the tail says, if that is far enough: so far every DataNode has the bytes."""
        return self._tail is not None and end <= self._tail.end and opened.extend(self._tail.end)

    def _reopened(self) -> OpenFileReader:
        """The file with all that it has now."""
        try:
            with _refusals(f"read segment {self._path}"):
                opened = self._open_files.open(self._path)
        except FileNotFoundError:
            raise LogNotFound(f"segment {self._files.url}{self._path} is gone; list the logs there are") from None
        before, self._opened = self._opened, opened
        if before is not None:
            before.close()
        return opened

    def _has(self, window: pa.Buffer, offset: int, length: int) -> bool:
        """Whether the window holds these bytes, or as many of them as there are."""
        inside = self._window_start <= offset and offset + length <= self._window_start + window.size
        return inside or self._is_small()

    def _is_small(self) -> bool:
        """Whether it is read whole at once: a reader looks at its end before it begins."""
        return self._complete is not None and self._complete.size_bytes <= _WHOLE_BYTES_MAX

    def _check_open(self) -> None:
        if not self._open:
            raise LogClosed(f"segment {self._path} is closed; open a new reader")


def _beside(path: str, suffix: str) -> str:
    return f"{path.removesuffix('.log')}{suffix}"


def _write_file(files: HdfsFileSystem, path: str, data: bytes) -> None:
    """A small file, whole and durable."""
    file = files.create(path)
    try:
        if data:
            file.append(data)
        file.sync()
    finally:
        file.close()
