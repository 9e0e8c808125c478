"""Files of this machine, or of what is mounted on it: plain system calls."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import IO, Any

from scribengin.filesystems.birth import file_status
from scribengin.filesystems.contract import HIDDEN, FileInfo, NewFile, TreeFileSystem, clear_errors

_BLOCK_BYTES = 1024 * 1024
_NS_PER_MS = 1_000_000
_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
"""Removed since its directory was read, or a link that leads nowhere: to what is gone, through a file, in a circle."""


class LocalFileSystem(TreeFileSystem):
    """The operating system's own files. It promises all that is asked, and a removed file can be read to its end."""

    @property
    def promise(self) -> str:
        return "fsync"

    def resource(self, path: str) -> str:
        return f"file:{self.canonical(path)}"

    def canonical(self, path: str) -> str:
        return os.path.realpath(path)

    def unwritable(self, path: str) -> str | None:
        return why_unwritable(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def find(self, root: str, depth_max: int | None = None) -> list[FileInfo]:
        with clear_errors("look for files in", root):
            if not stat.S_ISDIR(os.stat(root).st_mode):
                return [_info(os.path.basename(root), root)]
            return sorted(_walk(root, "", depth_max), key=lambda info: info.name)

    def read(self, path: str, start: int, end: int) -> bytes:
        with clear_errors("read", path), open(path, "rb") as file:
            file.seek(start)
            return file.read(end - start)

    def is_complete(self, path: str, info: FileInfo) -> bool:
        with clear_errors("look at", path):
            return _info(info.name, path) == info

    def read_same(self, path: str, identity: str, start: int, end: int) -> bytes:
        with clear_errors("read", path), open(path, "rb") as file:
            if _info("", file.fileno()).identity != identity:
                raise FileNotFoundError(errno.ENOENT, "another file has its name now", path)
            file.seek(start)
            return file.read(end - start)

    def replace(self, path: str, to: str) -> None:
        with clear_errors("move", path):
            os.replace(path, to)

    def remove_tree(self, path: str) -> None:
        with clear_errors("delete", path):
            shutil.rmtree(path, onerror=_pass_over_what_came_or_went)

    def remove_directory(self, path: str) -> None:
        with suppress(FileNotFoundError), clear_errors("delete", path):
            try:
                os.rmdir(path)
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:
                    raise

    def snapshots(self, paths: Sequence[str]) -> list[Iterator[bytes]]:
        with ExitStack() as opened:
            files = []
            for path in paths:
                with clear_errors("read", path):
                    files.append(opened.enter_context(open(path, "rb")))
            opened.pop_all()
        return [_blocks(path, file) for path, file in zip(paths, files, strict=True)]

    def _make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def _settle_directory(self, parent: str) -> None:
        if os.access(parent, os.R_OK):
            self.sync_directory(parent)

    def _names(self, path: str) -> list[str]:
        return os.listdir(path)

    def _size(self, path: str) -> int:
        try:
            return os.stat(path).st_size
        except NotADirectoryError:  # a file stands where a directory above it should
            raise FileNotFoundError(path) from None

    def _create(self, path: str) -> NewFile:
        return _LocalFile(path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))

    def _sync_directory(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _rename(self, path: str, to: str) -> None:
        # Names are never used twice, so that nobody can create `to` between the look and the call.
        if os.path.lexists(path) and os.path.lexists(to):
            raise FileExistsError(to)
        os.rename(path, to)  # raises FileNotFoundError when it was moved before

    def _remove(self, path: str) -> None:
        os.unlink(path)


class _LocalFile(NewFile):
    def __init__(self, path: str, descriptor: int) -> None:
        super().__init__(path)
        self._descriptor = descriptor

    def _append(self, data: memoryview) -> None:
        while data:  # a short write comes before the error that says why
            data = data[os.write(self._descriptor, data) :]

    def _sync(self) -> None:
        os.fsync(self._descriptor)

    def _close(self) -> None:
        os.close(self._descriptor)


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
                    yield _info(prefix + entry.name, entry.path)
            except OSError as error:
                if error.errno not in _NOT_THERE:
                    raise


def _info(name: str, file: str | int) -> FileInfo:
    """A file by its path or its descriptor. An inode's number is given again once its file is gone, so the time of the
    file's birth goes with it."""
    found = file_status(file)
    identity = f"{found.inode:x}" if found.born_ns is None else f"{found.inode:x}.{found.born_ns:x}"
    return FileInfo(name, found.size_bytes, found.modified_ns // _NS_PER_MS, identity)


def _blocks(path: str, file: IO[bytes]) -> Iterator[bytes]:
    with file, clear_errors("read", path):
        while block := file.read(_BLOCK_BYTES):
            yield block


def _pass_over_what_came_or_went(_call: object, _path: str, raised: Any) -> None:
    """While a directory is deleted, somebody else may write there, or delete it, too."""
    error = raised[1]
    if not isinstance(error, FileNotFoundError) and error.errno != errno.ENOTEMPTY:
        raise error


def why_unwritable(path: str) -> str | None:
    """Why this user cannot write into a directory, or make it: see `DurableFileSystem.unwritable`."""
    there = path
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    if not os.path.isdir(there):
        return f"{path} cannot be made, for {there} is no directory"
    if not os.access(there, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
        return f"{path} cannot be written, for this user may not write into {there}"
    return None
