"""Files of this machine, or of what is mounted on it: plain system calls."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import IO

from scribengin.connectors.files.system import HIDDEN, DurableFileSystem, FileInfo, NewFile, clear_errors
from scribengin.effect import effect

_BLOCK_BYTES = 1024 * 1024
_NS_PER_MS = 1_000_000


class LocalFileSystem(DurableFileSystem):
    """The operating system's own files."""

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def find(self, root: str, depth_max: int | None = None) -> list[FileInfo]:
        with clear_errors("look for files in", root):
            status = os.stat(root)
            if not stat.S_ISDIR(status.st_mode):
                return [_info(os.path.basename(root), status)]
            return sorted(_walk(root, "", depth_max), key=lambda info: info.name)

    def read(self, path: str, start: int, end: int) -> bytes:
        with clear_errors("read", path), open(path, "rb") as file:
            file.seek(start)
            return file.read(end - start)

    def make_directories(self, path: str) -> None:
        with clear_errors("create the directory", path):
            parent = os.path.dirname(path)
            if os.path.isdir(path):
                # Made a moment ago, perhaps, by somebody who was killed before it was durable.
                if os.access(parent, os.R_OK):
                    self.sync_directory(parent)
                return
            self.make_directories(parent)
            with effect("files.make_directory"):
                os.makedirs(path, exist_ok=True)
        self.sync_directory(parent)

    def names(self, path: str) -> list[str]:
        try:
            with clear_errors("list", path):
                return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def size(self, path: str) -> int | None:
        try:
            with clear_errors("look at", path):
                return os.stat(path).st_size
        except FileNotFoundError:
            return None

    def create(self, path: str) -> NewFile:
        with clear_errors("create", path), effect("files.create"):
            return _LocalFile(path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))

    def sync_directory(self, path: str) -> None:
        with clear_errors("sync the directory", path):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                with effect("files.sync_directory"):
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def rename(self, path: str, to: str) -> None:
        # Names are never used twice, so that nobody can create `to` between the look and the call.
        if os.path.lexists(path) and os.path.lexists(to):
            raise FileExistsError(to)
        with clear_errors("move", path), effect("files.rename"):
            os.rename(path, to)  # raises FileNotFoundError when it was moved before

    def remove(self, path: str) -> None:
        try:
            with clear_errors("delete", path), effect("files.remove"):
                os.unlink(path)
        except FileNotFoundError:
            return

    def snapshots(self, paths: Sequence[str]) -> list[Iterator[bytes]]:
        with ExitStack() as opened:
            files = []
            for path in paths:
                with clear_errors("read", path):
                    files.append(opened.enter_context(open(path, "rb")))
            opened.pop_all()
        return [_blocks(path, file) for path, file in zip(paths, files, strict=True)]


class _LocalFile(NewFile):
    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def append(self, data: bytes | memoryview) -> None:
        left = memoryview(data)
        with clear_errors("write to", self._path), effect("files.append"):
            while left:  # a short write comes before the error that says why
                left = left[os.write(self._descriptor, left) :]

    def sync(self) -> None:
        with clear_errors("sync", self._path), effect("files.sync"):
            os.fsync(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _walk(directory: str, prefix: str, depth_max: int | None) -> Iterator[FileInfo]:
    deeper = None if depth_max is None else depth_max - 1
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.startswith(HIDDEN):
                continue
            try:
                if entry.is_dir(follow_symlinks=False):
                    if deeper != 0:
                        yield from _walk(entry.path, f"{prefix}{entry.name}/", deeper)
                elif entry.is_file():
                    yield _info(prefix + entry.name, entry.stat())
            except FileNotFoundError:
                continue  # removed since the directory was read, so it is not there


def _info(name: str, status: os.stat_result) -> FileInfo:
    return FileInfo(name, status.st_size, status.st_mtime_ns // _NS_PER_MS)


def _blocks(path: str, file: IO[bytes]) -> Iterator[bytes]:
    with file, clear_errors("read", path):
        while block := file.read(_BLOCK_BYTES):
            yield block
