"""A disk that keeps a record: everything that this process changes below one directory, in order.

While a `RecordedDisk` is entered, the functions of `os` (and `open` for writing) are its own; calls that touch its
directory are noted as operations, which `disk_states` turns into what a power failure may leave. Nothing is really
synced: that would only take time. A hook sees every operation before it happens, and may refuse it or cut it short.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from scribengin.testing.memory.disk_states import (
    DIRECTORY,
    Link,
    Operation,
    Outside,
    Rename,
    Sync,
    SyncDirectory,
    Truncate,
    Unlink,
    Write,
)

Hook = Callable[[Operation], int | None]
"""Sees an operation before it happens. It may raise; for a Write it may say how many bytes of it happen."""


@dataclass
class _Open:
    """A file descriptor below the directory."""

    path: str
    inode: int
    append: bool
    position: int = 0


@dataclass
class RecordedDisk:
    """Records what happens below `root`, which must exist. `operations` is the record."""

    root: Path
    hook: Hook | None = None
    operations: list[Operation] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lock = threading.RLock()
        self.names: dict[str, int] = {}
        """What every name below the root is just now."""
        self._files: dict[int, _Open] = {}
        self._patches: list[Any] = []
        self._inodes = 0
        for name in sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*")):
            self.names[name] = DIRECTORY if (self.root / name).is_dir() else self._new_inode()

    def __enter__(self) -> RecordedDisk:
        self.real = {name: getattr(os, name) for name in _REPLACED}
        self._real_open = io.open
        self._patches = [mock.patch.object(os, name, getattr(self, f"_{name}")) for name in _REPLACED]
        self._patches += [mock.patch("io.open", self._io_open), mock.patch("builtins.open", self._io_open)]
        for patch in self._patches:
            patch.start()
        return self

    def __exit__(self, *_exc_info: object) -> None:
        for patch in reversed(self._patches):
            patch.stop()

    def mark(self, event: object) -> None:
        """Note something that is no operation of the disk at its place in the record."""
        with self.lock:
            self.operations.append(Outside(event))

    def _happens(self, operation: Operation) -> int | None:
        """Ask the hook, then note the operation (but a write, which may turn out shorter)."""
        cut = self.hook(operation) if self.hook is not None else None
        if not isinstance(operation, Write):
            self.operations.append(operation)
        return cut

    def _new_inode(self) -> int:
        self._inodes += 1
        return self._inodes

    def _inside(self, path: Any, dir_fd: int | None = None) -> str | None:
        """The path below the root; None if it is not there."""
        if isinstance(path, int):
            return self._files[path].path if path in self._files else None
        text = os.fsdecode(path)
        if dir_fd is not None:
            return f"{self._files[dir_fd].path}/{text}" if dir_fd in self._files else None
        root = f"{self.root}/"
        return text.removeprefix(root) if text.startswith(root) else "." if text == str(self.root) else None

    # --- what stands in for os ---------------------------------------------------------------------------------------

    def _open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        with self.lock:
            name = self._inside(path, dir_fd)
            if name is None:
                return self.real["open"](path, flags, mode, dir_fd=dir_fd)  # type: ignore[no-any-return]
            if flags & os.O_CREAT and name not in self.names:
                Path(self.root / name).parent.stat()  # what is missing is missed before the hook sees anything
                self._happens(Link(name, self._inodes + 1))
                self.names[name] = self._new_inode()
            descriptor: int = self.real["open"](path, flags, mode, dir_fd=dir_fd)
            inode = self.names.get(name, DIRECTORY)
            if flags & os.O_TRUNC and os.fstat(descriptor).st_size == 0 and inode != DIRECTORY:
                self._happens(Truncate(inode, 0, name))
            self._files[descriptor] = _Open(name, inode, bool(flags & os.O_APPEND))
            return descriptor

    def _close(self, descriptor: int) -> None:
        with self.lock:
            self._files.pop(descriptor, None)
            self.real["close"](descriptor)

    def _write(self, descriptor: int, data: Any) -> int:
        return self._written(descriptor, [data], None)

    def _writev(self, descriptor: int, buffers: Sequence[Any]) -> int:
        return self._written(descriptor, buffers, None)

    def _pwrite(self, descriptor: int, data: Any, offset: int) -> int:
        return self._written(descriptor, [data], offset)

    def _written(self, descriptor: int, buffers: Sequence[Any], offset: int | None) -> int:
        with self.lock:
            file = self._files.get(descriptor)
            if file is None:
                if offset is not None:
                    return self.real["pwrite"](descriptor, buffers[0], offset)  # type: ignore[no-any-return]
                return self.real["writev"](descriptor, buffers)  # type: ignore[no-any-return]
            at = offset if offset is not None else os.fstat(descriptor).st_size if file.append else file.position
            data = b"".join(bytes(memoryview(buffer)) for buffer in buffers)
            cut = self._happens(Write(file.inode, at, data, file.path))
            data = data if cut is None else data[:cut]
            self.operations.append(Write(file.inode, at, data, file.path))
            self.real["pwrite" if not file.append else "write"](descriptor, data, *([] if file.append else [at]))
            if offset is None:
                file.position = at + len(data)
            return len(data)

    def _fsync(self, descriptor: int) -> None:
        with self.lock:
            file = self._files.get(descriptor)
            if file is None:
                self.real["fsync"](descriptor)
            elif file.inode == DIRECTORY:
                self._happens(SyncDirectory(file.path))
            else:
                self._happens(Sync(file.inode, file.path))

    _fdatasync = _fsync

    def _ftruncate(self, descriptor: int, size: int) -> None:
        with self.lock:
            file = self._files.get(descriptor)
            if file is not None:
                self._happens(Truncate(file.inode, size, file.path))
            self.real["ftruncate"](descriptor, size)

    def _mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        with self.lock:
            name = self._inside(path, dir_fd)
            if name is not None and name not in self.names and Path(path).parent.is_dir():
                self._happens(Link(name, DIRECTORY))
                self.names[name] = DIRECTORY
            self.real["mkdir"](path, mode, dir_fd=dir_fd)

    def _unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        with self.lock:
            name = self._inside(path, dir_fd)
            if name is not None and name in self.names:
                self._happens(Unlink(name))
                del self.names[name]
            self.real["unlink"](path, dir_fd=dir_fd)

    _remove = _unlink

    def _rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        with self.lock:
            name = self._inside(path, dir_fd)
            self.real["rmdir"](path, dir_fd=dir_fd)
            if name is not None:
                self._happens(Unlink(name))
                del self.names[name]

    def _replace(self, path: Any, target: Any, **directories: int | None) -> None:
        with self.lock:
            names = self._inside(path), self._inside(target)
            if names[0] is not None and names[1] is not None and names[0] in self.names:
                assert self.names[names[0]] != DIRECTORY, "the model knows no renamed directories"
                self._happens(Rename(names[0], names[1]))
                self.names[names[1]] = self.names.pop(names[0])
            self.real["replace"](path, target, **directories)

    _rename = _replace

    def _link(self, path: Any, target: Any, **options: Any) -> None:
        assert self._inside(path) is None, "the model knows no hard links"
        self.real["link"](path, target, **options)

    def _io_open(self, file: Any, mode: str = "r", buffering: int = -1, *more: Any, **options: Any) -> Any:
        if isinstance(file, int) or self._inside(file) is None or not set(mode) & set("wax+"):
            return self._real_open(file, mode, buffering, *more, **options)
        flags = {"w": os.O_CREAT | os.O_TRUNC, "a": os.O_CREAT | os.O_APPEND, "x": os.O_CREAT | os.O_EXCL, "r": 0}
        descriptor = os.open(file, os.O_RDWR | flags[mode.strip("bt+")])
        raw = io.BufferedWriter(_RecordedFile(descriptor))
        return raw if "b" in mode else io.TextIOWrapper(raw, *more, **options)


class _RecordedFile(io.RawIOBase):
    """A file opened for writing with `open`, whose writes go through `os` and so into the record."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def write(self, data: Any) -> int:
        return os.write(self._descriptor, data)

    def close(self) -> None:
        if not self.closed:
            super().close()
            os.close(self._descriptor)


_REPLACED = (
    "open",
    "close",
    "write",
    "writev",
    "pwrite",
    "fsync",
    "fdatasync",
    "ftruncate",
    "mkdir",
    "unlink",
    "remove",
    "rmdir",
    "replace",
    "rename",
    "link",
)
