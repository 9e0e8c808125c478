"""Files on HDFS, through hdfs-native: no Java in the process. It is imported here only (the extra `hdfs`).

What HDFS gives, measured on a real one:
- `create` without overwriting is exclusive, `rename` is atomic and refuses a name that is taken, and what the NameNode
  has answered survives its death: a directory needs no sync.
- `hsync` is an fsync on the DataNodes. A file must be closed, too, before others can read its last block.
- While a file is written to, its size is shown as of the last hsync, and hdfs-native reads of it the blocks that
  are complete, often none (`readable`). Its time of modification does not move until it is closed (`is_complete`).
- A removed file's blocks go from the DataNodes some seconds later, under whoever reads them.
- A writer that lives holds a lease on its open files. It does not keep others from removing or renaming them.
"""

from __future__ import annotations

import errno
import io
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from hdfs_native import Client, FileReader, FileWriter, WriteOptions

from scribengin.base.jvm import named_directory
from scribengin.base.threads import call_with_limit
from scribengin.errors import ConfigInvalid, DataflowError, SystemUnreachable
from scribengin.filesystems.contract import (
    HIDDEN,
    FileInfo,
    NewFile,
    TreeFileSystem,
    clear_errors,
)

ANSWER_S = 60.0
"""So long DataNodes may take for what they were sent: a disk that is busy needs seconds."""


@dataclass(frozen=True, slots=True)
class CompleteFile:
    """A file that nobody writes to any more, as it was when it was opened, wherever its name goes."""

    size_bytes: int
    read: Callable[[int, int], bytes]
    """The bytes [start, end), as many as there are. Raises what the file system does."""


DEFAULT_FILE_SYSTEM = "fs.defaultFS"
DEFAULT_PORT = 8020
_RPC_ADDRESS = "dfs.namenode.rpc-address."
_PATIENCE = {
    "dfs.client.failover.max.attempts": "10",
    "dfs.client.failover.sleep.base.millis": "500",
    "dfs.client.failover.sleep.max.millis": "5000",
}
"""A NameNode that does not answer is asked for about half a minute, long enough for another to take over; hdfs-native's
own default is three minutes. What the cluster's configuration says goes first."""
_RPC_ERROR = re.compile(r'^\w+\("(?:[\w.$]+", ")?(.*?)(?:\\n.*)?"\)$', re.DOTALL)
_PASSING = re.compile(
    r'DataTransferError|OperationFailed|FatalRPCError|RPCError\("[\w.]+\.(Safe|Standby|Retriable|Observer)'
)
"""Errors of a cluster that is not all there: a NameNode that starts, or is not the active one, DataNodes that died."""
_WORDS_MAX = 200
"""Some of hdfs-native's errors hold all it knows of every DataNode."""
_EXISTS = ("AlreadyBeingCreatedException", "FileAlreadyExistsException")
_FULL = ("QuotaExceededException", "could only be written to", "could only be replicated to", "DiskOutOfSpaceException")
_FORBIDDEN = "AccessControlException"
_used_by: list[int] = []
"""The process in which hdfs-native has run: its threads are not there in a child that was forked after that."""


class HdfsFileSystem(TreeFileSystem):
    """One cluster's files. Paths are absolute, without `hdfs://` and the authority. Thread-safe, as the client is."""

    def __init__(self, authority: str) -> None:
        """`authority`: host and port of a NameNode, or the name of a service of the cluster's configuration, or "" for
        its default file system. Raises ConfigInvalid when the configuration has none."""
        settings = site_settings()
        self._url = f"hdfs://{authority}" if authority else settings.get(DEFAULT_FILE_SYSTEM, "")
        self._resource = canonical_cluster(self._url, settings)
        if not self._url.startswith("hdfs://"):
            raise ConfigInvalid(
                "hdfs:/// is the cluster's default file system, and none is known here: let HADOOP_CONF_DIR name the "
                "directory with its core-site.xml, or write hdfs://<namenode>:<port>/<path>"
            )
        self._patience = {name: value for name, value in _PATIENCE.items() if name not in settings}

    @property
    def promise(self) -> str:
        return "hsync"

    @property
    def url(self) -> str:
        """`hdfs://host:port`, or with the name of a service."""
        return self._url

    def resource(self, path: str) -> str:
        return f"{self._resource}/{os.path.normpath(path).strip('/')}"

    def url_of(self, path: str) -> str:
        """As the user has written the cluster: Hadoop's Java client looks for a name service letter by letter."""
        return self._named(path)

    def unwritable(self, path: str) -> str | None:
        """Who deletes a name must be allowed to write into its directory, and the NameNode looks at that first. So it
        is asked to delete what nobody has: it knows the groups of a user, ACLs and superusers, of which the mode of a
        directory says nothing, and whether it looks at permissions at all."""
        there = "/"
        try:
            for below in accumulate(path.strip("/").split("/"), "{}/{}".format, initial=""):
                status = self._status(below or "/")
                if status is None:
                    break
                there = below or "/"
                if not status.isdir:
                    return f"{self._named(path)} cannot be made, for {self._named(there)} is no directory"
            with self._errors("look at", there):
                self._client.delete(f"{there.rstrip('/')}/.nobody-has-{uuid.uuid4().hex}", False)
        except DataflowError as error:
            if not isinstance(error.__cause__, PermissionError):
                raise
            may_not = f"this user may not write into {self._named(there)} ({error.__cause__.strerror})"
            return f"{self._named(path)} cannot be written, for {may_not}"
        return None

    def _named(self, path: str) -> str:
        return f"{self._url.rstrip('/')}{path}"

    def _status(self, path: str) -> Any:
        try:
            with self._errors("look at", path):
                return self._client.get_file_info(path)
        except FileNotFoundError:
            return None

    def is_directory(self, path: str) -> bool:
        try:
            with self._errors("look at", path):
                return bool(self._client.get_file_info(path).isdir)
        except FileNotFoundError:
            return False

    def find(self, root: str, depth_max: int | None = None) -> list[FileInfo]:
        root = root.rstrip("/") or "/"
        with self._errors("look for files in", root):
            status = self._client.get_file_info(root)
            if not status.isdir:
                return [_info(root.rpartition("/")[2], status)]
            return sorted(self._walk(root, "", depth_max), key=lambda info: info.name)

    def _walk(self, directory: str, prefix: str, depth_max: int | None) -> Iterator[FileInfo]:
        deeper = None if depth_max is None else depth_max - 1
        for status in self._client.list_status(directory, False):
            name = status.path.rpartition("/")[2]
            if name.startswith(HIDDEN):
                continue
            if not status.isdir:
                yield _info(prefix + name, status)
            elif deeper != 0:
                try:
                    yield from self._walk(status.path, f"{prefix}{name}/", deeper)
                except FileNotFoundError:
                    continue  # removed since its parent was listed, so it is not there

    def read(self, path: str, start: int, end: int) -> bytes:
        with self._errors("read", path):
            file = self._client.read(path)
            end = min(end, len(file))  # beyond it, hdfs-native panics
            return file.read_range(start, end - start) if start < end else b""

    def readable(self, path: str, size_bytes: int) -> int:
        with self._errors("look at", path):
            return min(size_bytes, len(self._client.read(path)))

    def is_complete(self, path: str, info: FileInfo) -> bool:
        """HDFS tells nobody whether a file is open. But one that is has a last block of which the DataNodes know more
        than the NameNode: what can be read is less than what there is, or a block's worth of room is reserved. Where
        there is no such block (at the very end of one, before the next is begun) a file that has been open since it
        was created has the time of its creation still."""
        with self._errors("look at", path):
            return self._is_complete(path, info.size_bytes, lambda: len(self._client.read(path)))

    def _is_complete(self, path: str, size_bytes: int, readable_bytes: Callable[[], int]) -> bool:
        status = self._client.get_file_info(path)
        size, block = status.length, status.blocksize
        if size != size_bytes or readable_bytes() < size:
            return False
        if not block or size % block:
            return True
        if status.modification_time == status.access_time:
            return False
        reserved = self._client.get_content_summary(path).space_consumed
        return bool(reserved <= size * max(status.replication or 1, 1))

    def open_complete(self, path: str) -> CompleteFile | None:
        """A file that nobody writes to any more; None: somebody may still have it open. Asks the NameNode twice. Raises
        FileNotFoundError."""
        with self._errors("read", path):
            file = self._client.read(path)
            size = len(file)
            if not self._is_complete(path, size, lambda: size):
                return None

        def read(start: int, end: int) -> bytes:
            with self._errors("read", path):
                return file.read_range(start, min(end, size) - start) if start < min(end, size) else b""

        return CompleteFile(size, read)

    def recover_lease(self, path: str) -> bool:
        """Take a file from whoever has it open: nothing that this writer syncs from here on succeeds. Whether the file
        is closed already: else its DataNodes agree on its length, which takes seconds; ask again.

        Raises FileNotFoundError.
        """
        with self._errors("take over", path):
            return bool(self._client.recover_lease(path))

    def replace(self, path: str, to: str) -> None:
        with self._errors("move", path):
            self._client.rename(path, to, True)

    def remove_tree(self, path: str) -> None:
        with suppress(FileNotFoundError), self._errors("delete", path):
            self._client.delete(path, True)

    def remove_directory(self, path: str) -> None:
        try:
            with suppress(FileNotFoundError), self._errors("delete", path):
                self._client.delete(path, False)
        except DataflowError:
            if not self.names(path):
                raise

    def snapshots(self, paths: Sequence[str]) -> list[Iterator[bytes]]:
        opened = []
        for path in paths:
            with self._errors("read", path):
                opened.append(self._client.read(path))
        return [self._blocks(path, file) for path, file in zip(paths, opened, strict=True)]

    def _blocks(self, path: str, file: FileReader) -> Iterator[bytes]:
        try:
            with self._errors("read", path):
                yield from file.read_range_stream(0, len(file))
        except (DataflowError, SystemUnreachable):
            if self.size(path) is None:
                raise FileNotFoundError(errno.ENOENT, "was removed while it was read", path) from None
            raise

    def _make_directory(self, path: str) -> None:
        with self._errors("create the directory", path):
            self._client.mkdirs(path, 0o755, True)

    def _names(self, path: str) -> list[str]:
        with self._errors("list", path):
            return [status.path.rpartition("/")[2] for status in self._client.list_status(path, False)]

    def _size(self, path: str) -> int:
        with self._errors("look at", path):
            return int(self._client.get_file_info(path).length)

    def _create(self, path: str) -> NewFile:
        with self._errors("create", path):
            options = WriteOptions(overwrite=False, create_parent=False)
            return _HdfsFile(path, _left_to_its_owner(self._client.create(path, options)))

    def _sync_directory(self, path: str) -> None:
        """Nothing: the NameNode has written what it has answered into its journal."""

    def _rename(self, path: str, to: str) -> None:
        with self._errors("move", path):
            self._client.rename(path, to, False)

    def _remove(self, path: str) -> None:
        with self._errors("delete", path):
            self._client.delete(path, False)

    @property
    def _client(self) -> Any:
        """The process's own client. Raises DataflowError in a process that was forked after its parent used one."""
        pid = os.getpid()
        if not _used_by:
            _used_by.append(pid)
        if _used_by[0] != pid:
            raise DataflowError(
                f"{self._url}: process {pid} was forked from {_used_by[0]}, which had used HDFS before, and "
                "hdfs-native would wait for ever; start processes anew (multiprocessing's `spawn`)"
            )
        return _client(self._url, tuple(sorted(self._patience.items())))

    @contextmanager
    def _errors(self, act: str, path: str) -> Iterator[None]:
        with clear_errors(act, self._named(path)), plain_errors(path):
            yield


def _info(name: str, status: Any) -> FileInfo:
    """hdfs-native does not say a file's number. Its time of modification goes with it when it is renamed."""
    return FileInfo(name, status.length, status.modification_time, f"~{status.modification_time}")


def _left_to_its_owner(file: FileWriter) -> FileWriter:
    """The file, which nobody closes but who has it. Python closes an open stream that nobody holds any more, on the
    thread that happens to collect garbage. hdfs-native's would wait there for DataNodes that have died, without a
    limit, and no other thread could collect meanwhile. A stream that Python takes for closed is left alone."""
    io.RawIOBase.close(file)
    return file


class _HdfsFile(NewFile):
    def __init__(self, path: str, file: FileWriter) -> None:
        super().__init__(path)
        self._file = file
        self._failed = False

    def _append(self, data: memoryview) -> None:
        with self._failing():
            within_limit(lambda: self._file.write(data))

    def _sync(self) -> None:
        with self._failing():
            within_limit(self._file.hsync)

    def _close(self) -> None:
        if not self._failed:  # else there is nothing to end properly, and it would fail again
            with self._failing():
                within_limit(self._file.close)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            with plain_errors(self._path):
                yield
        except FileNotFoundError:
            self._failed = True
            raise OSError(errno.ESTALE, "it was deleted while it was written to") from None
        except OSError:
            self._failed = True
            raise


def within_limit(call: Callable[[], object]) -> None:
    """Make a call of hdfs-native that waits for DataNodes. Raises ConnectionError when nothing comes of it for
    ANSWER_S: some of its calls wait for ever for a DataNode that has died. The file is given up with it."""
    try:
        call_with_limit(call, ANSWER_S)
    except TimeoutError:
        raise ConnectionError(f"the DataNodes have not answered for {ANSWER_S:g} s; has one of them died?") from None


@contextmanager
def plain_errors(path: str) -> Iterator[None]:
    """Turn what hdfs-native raises into OSErrors with the path, and the first line of what the server said."""
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "there is no such file", path) from None
    except FileExistsError:
        raise FileExistsError(errno.EEXIST, "is there already", path) from None
    except PermissionError:
        raise
    except (OSError, RuntimeError) as error:
        text = str(error)
        match = _RPC_ERROR.match(text)
        why = (match[1] if match else text).partition("\n")[0][:_WORDS_MAX]
        passing = isinstance(error, OSError) or _PASSING.match(text) is not None
        raise os_error(path, text, why, passing=passing) from error


def os_error(path: str, text: str, why: str, *, passing: bool) -> OSError:
    """What an error of HDFS is in the words of Python: `text` is all that the cluster said, `why` is for people.
    `passing`: it may go by itself, unless it is one that is known."""
    if any(name in text for name in _EXISTS):
        return FileExistsError(errno.EEXIST, "is there already", path)
    if _FORBIDDEN in text:
        return PermissionError(errno.EACCES, why.replace('\\"', '"'))
    if any(words in text for words in _FULL):
        return OSError(errno.ENOSPC, why)
    return ConnectionError(why) if passing else OSError(errno.EIO, why)


def canonical_cluster(url: str, settings: Mapping[str, str]) -> str:
    """The URL of a cluster in the one spelling that all its URLs have: a name service for each of its NameNodes, else
    host and port. `settings` are those of the cluster's configuration. Asks nobody: two names of one host stay two."""
    authority = url.removeprefix("hdfs://").partition("/")[0].rpartition("@")[2].lower()
    services = {name.strip().lower() for name in settings.get("dfs.nameservices", "").split(",") if name.strip()}
    if authority in services:
        return f"hdfs://{authority}"
    address = _with_port(authority)
    for name, value in settings.items():
        service = name.lower().removeprefix(_RPC_ADDRESS).partition(".")[0]
        if name.lower().startswith(_RPC_ADDRESS) and service in services and _with_port(value.lower()) == address:
            return f"hdfs://{service}"
    return f"hdfs://{address}"


def _with_port(authority: str) -> str:
    return authority if re.search(r":\d+$", authority) else f"{authority}:{DEFAULT_PORT}"


def site_settings() -> dict[str, str]:
    """What core-site.xml and hdfs-site.xml say, in the directory that HADOOP_CONF_DIR (or HADOOP_HOME) names.

    Raises ConfigInvalid for a file that is no XML.
    """
    home = os.environ.get("HADOOP_HOME")  # where hdfs-native looks as well; Hadoop's Java client does not
    directory = named_directory() or (Path(home, "etc", "hadoop") if home else None)
    settings: dict[str, str] = {}
    for name in ("core-site.xml", "hdfs-site.xml"):
        if directory is None or not (path := directory / name).is_file():
            continue
        try:
            properties = ElementTree.parse(path).getroot().iter("property")
        except ElementTree.ParseError as error:
            raise ConfigInvalid(f"{path} is not XML: {error}") from None
        settings.update({p.findtext("name", "").strip(): p.findtext("value", "").strip() for p in properties})
    return settings


@cache
def _client(url: str, settings: tuple[tuple[str, str], ...]) -> Any:
    return Client(url, dict(settings))
