"""Everything else that fsspec opens: for reading always, for writing where it is known how files are moved.

fsspec is imported in this folder only, and its file systems only when a path names them.
"""

from __future__ import annotations

import errno
import posixpath
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import zip_longest
from typing import Any

import fsspec
from fsspec.asyn import AsyncFileSystem
from fsspec.core import url_to_fs
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from scribengin.errors import ConfigInvalid, DataflowError, ScribenginError
from scribengin.filesystems.contract import (
    DurableFileSystem,
    FileInfo,
    FileSystem,
    NewFile,
    clear_errors,
    is_hidden,
)
from scribengin.filesystems.local import why_unwritable

OBJECT_STORES = frozenset({"memory", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss"})
"""A file appears whole, once it is complete, and is moved by a copy that appears whole, and a deletion."""
RENAMING = frozenset({"file", "local", "sftp", "ssh", "smb"})
"""Files are moved by a rename of the server's."""
_SEAM = "::"
_BLOCK_BYTES = 1024 * 1024
_MS_PER_S = 1000
_MODIFIED_KEYS = ("mtime", "LastModified", "last_modified", "updated", "modificationTime", "modified")
"""Where the file systems of fsspec say when a file was written to; each has its own word."""

_VERSION_KEYS = ("generation", "ETag", "etag", "content_md5", "created")

_FORBIDDEN = frozenset({401, 403})
_PASSING = frozenset({408, 429})
_SERVER_ERROR = 500
_PASSING_KIND = re.compile("Connect|Timeout|TimedOut|Transport|HTTPClient|Payload|ServiceRequest|ServiceResponse")
"""Errors without an answer, by the names of classes in botocore, gcsfs, aiohttp, google-auth and azure-core."""


def open_url(url: str) -> tuple[FileSystem, str]:
    """The file system of a URL, and the path in it. Raises ConfigInvalid when fsspec does not know the protocol or
    misses a package for it."""
    protocol = url.partition("://")[0]
    opened, below = _unjoined(url)
    try:
        fs, path = url_to_fs(opened)
    except (ValueError, ImportError) as error:
        raise ConfigInvalid(f"'{protocol}://' cannot be opened here: {error}") from None
    kind = FsspecDurableFileSystem if protocol in OBJECT_STORES | RENAMING else FsspecFileSystem
    return kind(fs), f"{str(path).rstrip('/')}/{below}" if below else str(path)


def _unjoined(url: str) -> tuple[str, str]:
    """What fsspec is to open of a URL, and the path below it. Within a path it takes `::` for the seam of two URLs, and
    a name may hold that. Raises ConfigInvalid where it is a seam."""
    protocol, _, path = url.partition("://")
    plain, seam, rest = path.partition(_SEAM)
    if not seam:
        return url, ""
    if "://" in rest:
        raise ConfigInvalid(
            f"{url} is a URL within another one, and packed files are not read: name files that are not packed"
        )
    folder = plain.rpartition("/")[0]
    return f"{protocol}://{folder}", path[len(folder) :].lstrip("/")


class FsspecFileSystem(FileSystem):
    """One file system of fsspec's, for reading. Paths are in the form that it returns."""

    def __init__(self, fs: fsspec.AbstractFileSystem) -> None:
        self._fs: Any = fs

    def _named(self, path: str) -> str:
        return str(self._fs.unstrip_protocol(path))

    @contextmanager
    def _errors(self, act: str, path: str) -> Iterator[None]:
        with clear_errors(act, self._named(path)), plain_errors():
            yield

    def is_directory(self, path: str) -> bool:
        with self._errors("look at", path):
            self._fs.invalidate_cache()
            return bool(self._fs.isdir(path))

    def find(self, root: str, depth_max: int | None = None) -> list[FileInfo]:
        root = str(self._fs._strip_protocol(root)).rstrip("/")  # the form in which fsspec returns paths
        with self._errors("look for files in", root):
            self._fs.invalidate_cache()
            found = self._found(root, depth_max)
            if not found and not self._fs.exists(root):
                raise FileNotFoundError(errno.ENOENT, "there is no such file", root)
        shown = {path: info for path, info in found.items() if path == root or not is_hidden(_below(root, path))}
        infos = [_info(root, path, info) for path, info in shown.items() if info["type"] == "file"]
        return sorted(infos, key=lambda info: info.name)

    def _found(self, root: str, depth_max: int | None) -> dict[str, dict[str, Any]]:
        """fsspec's own way of finding takes a directory that cannot be listed for an empty one: its files would be
        forgotten, and read once more. So where a file system has none of its own, this is it."""
        find = getattr(type(self._fs), "_find", type(self._fs).find)
        if find not in (AbstractFileSystem.find, AsyncFileSystem._find):
            return dict(self._fs.find(root, maxdepth=depth_max, detail=True))
        if self._fs.isfile(root):
            return {root: self._fs.info(root)}
        found: dict[str, dict[str, Any]] = {}
        left = [(root, 1)]
        while left:
            folder, depth = left.pop()
            with suppress(FileNotFoundError):  # deleted since it was seen
                below = {str(info["name"]).rstrip("/"): info for info in self._fs.ls(folder, detail=True)}
                found.update((path, info) for path, info in below.items() if info["type"] != "directory")
                folders = [path for path, info in below.items() if info["type"] == "directory" and path != folder]
                left += [(path, depth + 1) for path in folders if depth_max is None or depth < depth_max]
        return found

    def read(self, path: str, start: int, end: int) -> bytes:
        with self._errors("read", path):
            return bytes(self._fs.cat_file(path, start=start, end=end))


class FsspecDurableFileSystem(FsspecFileSystem, DurableFileSystem):
    """Writing where fsspec can, with what it cannot promise.

    - `create` looks first and creates then: nothing but our own unique names keeps two writers apart.
    - `sync` ends the file. It is as durable then as the system makes what it has taken: an object store has it on
      several machines, `memory` in this process only, a server behind sftp or smb in its cache perhaps.
    - `rename` on an object store is a copy and a deletion. What a crash leaves between the two is two equal files, and
      the next `rename` ends that. Nobody sees half a file.
    """

    @property
    def promise(self) -> str:
        protocol = self._protocol
        if protocol in OBJECT_STORES:
            return f"{protocol}: durable once the store has a file; moved by a copy and a deletion"
        return f"{protocol}: as durable as its server makes it, without a sync"

    def resource(self, path: str) -> str:
        path = self.canonical(path)
        host, port = (self._fs.storage_options.get(name) for name in ("host", "port"))
        if self._protocol in RENAMING and host:  # fsspec's own URL of it leaves the server out
            address = str(host).lower() if port is None else f"{str(host).lower()}:{port}"
            return f"{self._protocol}://{address}/{path.strip('/')}"
        return str(self._fs.unstrip_protocol(path)).rstrip("/")

    def unwritable(self, path: str) -> str | None:
        """Whoever writes lists the directory as well. A store that says no to that, that has no such bucket, or that
        was opened without credentials, says so here; what else it refuses is seen when it is written to."""
        if self._protocol in ("file", "local"):
            return why_unwritable(path)
        options = self._fs.storage_options
        if options.get("anon") is True or options.get("token") == "anon":
            return f"{self._named(path)} cannot be written, for it is opened without credentials (anonymously)"
        try:
            if not self.names(path) and self._protocol in OBJECT_STORES - {"memory"}:
                bucket = path.strip("/").partition("/")[0]
                with self._errors("look at", bucket):
                    if not self._fs.exists(bucket):
                        return f"{self._named(path)} cannot be written, for there is no {self._named(bucket)}"
        except DataflowError as error:
            if not isinstance(error.__cause__, PermissionError):
                raise
            return f"{self._named(path)} cannot be written, for this user may not list it ({error.__cause__})"
        return None

    def canonical(self, path: str) -> str:
        """What names a file on an object store is no path: it is taken as it is."""
        return path if self._protocol in OBJECT_STORES else super().canonical(path)

    @property
    def _protocol(self) -> str:
        protocol = self._fs.protocol
        return str(protocol if isinstance(protocol, str) else protocol[0])

    def snapshots(self, paths: Sequence[str]) -> list[Iterator[bytes]]:
        opened = []
        for path in paths:
            with self._errors("read", path):
                opened.append(self._fs.open(path, "rb"))
        return [self._blocks(path, file) for path, file in zip(paths, opened, strict=True)]

    def _blocks(self, path: str, file: Any) -> Iterator[bytes]:
        with file:
            while True:
                with self._errors("read", path):
                    block = bytes(file.read(_BLOCK_BYTES))
                if not block:
                    return
                yield block

    def _make_directory(self, path: str) -> None:
        with self._errors("create the directory", path):
            self._fs.makedirs(path, exist_ok=True)

    def _settle_directory(self, parent: str) -> None:
        """Nothing: there is no sync."""

    def _names(self, path: str) -> list[str]:
        with self._errors("list", path):
            self._fs.invalidate_cache()
            found = [posixpath.basename(str(name).rstrip("/")) for name in self._fs.ls(path, detail=False)]
            return [name for name in found if name]

    def _size(self, path: str) -> int:
        with self._errors("look at", path):
            self._fs.invalidate_cache()
            return int(self._fs.info(path)["size"])

    def _create(self, path: str) -> NewFile:
        if self.size(path) is not None:
            raise FileExistsError(errno.EEXIST, "is there already", path)
        with self._errors("create", path):
            return _FsspecFile(self._named(path), self._fs.open(path, "wb"))

    def _sync_directory(self, path: str) -> None:
        """Nothing: there is no sync."""

    def _rename(self, path: str, to: str) -> None:
        with self._errors("move", path):
            size, moved = self._size(path), self.size(to)
            if moved is not None:
                if size != moved or not self._equal(path, to):
                    raise FileExistsError(errno.EEXIST, "is there already", to)
                self._fs.rm_file(path)  # the copy was made, and its maker died before it could delete
                return
            if self._protocol in RENAMING:
                self._fs.mv(path, to)
                return
            self._fs.cp_file(path, to)  # where there is no rename, `mv` takes the path for a pattern, and deletes by it
            self._fs.rm_file(path)

    def _equal(self, path: str, other: str) -> bool:
        return all(a == b for a, b in zip_longest(*self.snapshots([path, other])))

    def _remove(self, path: str) -> None:
        with self._errors("delete", path):
            self._fs.rm_file(path)


class _FsspecFile(NewFile):
    def __init__(self, path: str, file: Any) -> None:
        super().__init__(path)
        self._file = file
        self._failed = False

    def _append(self, data: memoryview) -> None:
        with self._failing():
            self._file.write(data)

    def _sync(self) -> None:
        self._end()

    def _close(self) -> None:
        if not self._failed:
            self._end()

    def _end(self) -> None:
        """Complete the file; after an error there is nothing to complete."""
        with self._failing():
            self._file.close()

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            with plain_errors():
                yield
        except OSError:
            self._give_up()
            raise

    def _give_up(self) -> None:
        """An object that is garbage, and not closed, is completed by fsspec: with what there is of it, in whatever
        thread collects garbage, which then waits for the store."""
        self._failed = True
        if isinstance(self._file, AbstractBufferedFile):
            self._file.closed = True


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn what the packages behind fsspec raise in classes of their own into OSErrors, with their words."""
    try:
        yield
    except (OSError, ScribenginError, MemoryError):
        raise
    except Exception as error:
        raise _os_error(error) from error


def _os_error(error: Exception) -> OSError:
    """By the status that the server has answered with, or, where none has, by the names of its classes."""
    why, status = str(error) or type(error).__name__, _status(error)
    if status in _FORBIDDEN:
        return PermissionError(why)
    if status is None:
        passing = any(_PASSING_KIND.search(kind.__name__) for kind in type(error).__mro__)
    else:
        passing = status in _PASSING or status >= _SERVER_ERROR
    return ConnectionError(why) if passing else OSError(errno.EIO, why)


def _status(error: Exception) -> int | None:
    """The HTTP status within an error: each package has its own word for it."""
    response = getattr(error, "response", None)
    said = response.get("ResponseMetadata", {}) if isinstance(response, dict) else {}
    found = [getattr(error, name, None) for name in ("code", "status_code", "status")]
    return next((int(str(code)) for code in (*found, said.get("HTTPStatusCode")) if str(code).isdecimal()), None)


def _info(root: str, path: str, info: dict[str, Any]) -> FileInfo:
    name = _below(root, path) or root.rpartition("/")[2]
    return FileInfo(name, int(info["size"]), _modified_ms(info), _identity(info))


def _identity(info: dict[str, Any]) -> str:
    """An inode, or what an object store calls a version of an object: those are written as a whole."""
    if info.get("ino"):
        return f"{info['ino']:x}"
    version = next((info[key] for key in _VERSION_KEYS if info.get(key)), "")
    return f"={version}" if version else ""


def _below(root: str, path: str) -> str:
    return path.removeprefix(root).lstrip("/")


def _modified_ms(info: dict[str, Any]) -> int:
    """0 where it is not said: such a file's last line counts as complete at once."""
    value = next((info[key] for key in _MODIFIED_KEYS if info.get(key) is not None), 0)
    if isinstance(value, datetime):
        value = value.timestamp()
    try:
        return int(float(value) * _MS_PER_S)
    except ValueError:
        return int(datetime.fromisoformat(str(value).replace("Z", "+00:00")).timestamp() * _MS_PER_S)
