"""Files in memory, for tests and simulations, with the ways of a disk: what was not synced is not safe.

They pass the conformance suite that the real file systems pass (`conformance.files`), and random histories on them and
on the local ones are compared (`tests/property/test_memory_files.py`). They are never what a user runs: nothing of them
outlives the process.

`crash` is a power failure. What it may leave is what `disk_states` says of a disk: bytes that were not synced are
lost, torn at a sector, or there; names whose directory was not synced are there in any subset. Beside that the system
can be told to be `away`, to have no room left (`room_bytes`), and to lose requests and replies (`lose`).
"""

from __future__ import annotations

import errno
import os
import posixpath
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.filesystems.contract import HIDDEN, FileInfo, NewFile, TreeFileSystem, clear_errors
from scribengin.filesystems.paths import opened_by
from scribengin.testing.memory.disk_states import (
    DIRECTORY,
    Disk,
    Link,
    Operation,
    Rename,
    Sync,
    SyncDirectory,
    Unlink,
    Write,
)
from scribengin.testing.memory.registry import Loss

_BLOCK_BYTES = 1024 * 1024


@dataclass
class _Inode:
    """A file as it is while the power stays on."""

    number: int
    modified_ms: int
    content: bytearray = field(default_factory=bytearray)

    @property
    def identity(self) -> str:
        return f"{self.number:x}"


class MemoryFiles(TreeFileSystem):
    """One file system. Thread-safe. A number is an inode's for ever, so files keep their identities over renames."""

    def __init__(self, name: str = "files", clock: Clock = SYSTEM_CLOCK) -> None:
        """`name`: tells it from others in its `resource`. `clock`: what files' times of modification are read from."""
        self.away = False
        """Whether it answers nobody: everything that it is asked is SystemUnreachable."""
        self.room_bytes: int | None = None
        """How many bytes can be written still, OutOfRoom beyond that; None: there is no limit."""
        self.lose: Callable[[str, str], Loss | None] = lambda _act, _path: None
        """Called with every change (what, and which path): what becomes of it."""
        self.hook: Callable[[Operation], object] = lambda _operation: None
        """Sees every operation of the disk before it happens, and may raise. Paths are those below the root."""
        self._name = name
        self._clock = clock
        self._lock = threading.RLock()
        self._disk = Disk()
        self._inodes: dict[int, _Inode] = {}
        self._directories: dict[str, dict[str, int]] = {"/": {}}
        """Every directory: the inode of each name in it."""
        self._made = 0
        self._boots = 0

    @contextmanager
    def opened_by(self, protocol: str) -> Iterator[str]:
        """Let URLs of that protocol mean these files while the block lasts: the URL of their root."""
        with opened_by(protocol, self):
            yield f"{protocol}://"

    def crash(self, seed: int) -> None:
        """Lose power, and be back at once with what that left. Whatever was open is not any more."""
        with self._lock:
            self._boots += 1
            self._disk.fail(random.Random(seed))
            found = [(f"/{path}", inode) for path, inode in self._disk.names.items()]
            self._directories = {"/": {}, **{path: {} for path, inode in found if inode == DIRECTORY}}
            for path, inode in found:
                self._directories[posixpath.dirname(path)][posixpath.basename(path)] = inode
            self._inodes = {number: self._restored(number) for number in self._disk.files}

    def _restored(self, number: int) -> _Inode:
        return _Inode(number, self._inodes[number].modified_ms, bytearray(self._disk.files[number].durable))

    # -- reading

    @property
    def promise(self) -> str:
        return "the memory of a test"

    def resource(self, path: str) -> str:
        return f"memory-files://{self._name}{self.canonical(path)}"

    def unwritable(self, path: str) -> str | None:
        with self._asked("look at", path):
            return None

    def is_directory(self, path: str) -> bool:
        with self._asked("look at", path):
            return _at(path) in self._directories

    def find(self, root: str, depth_max: int | None = None) -> list[FileInfo]:
        with self._asked("look for files in", root):
            at = _at(root)
            if at not in self._directories:
                return [_info(posixpath.basename(at), self._inode(root))]
            return sorted(self._walk(at, "", depth_max), key=lambda info: info.name)

    def _walk(self, directory: str, prefix: str, depth_max: int | None) -> Iterator[FileInfo]:
        deeper = None if depth_max is None else depth_max - 1
        for name, number in self._directories[directory].items():
            if name.startswith(HIDDEN):
                continue
            if number != DIRECTORY:
                yield _info(prefix + name, self._inodes[number])
            elif deeper != 0:
                yield from self._walk(posixpath.join(directory, name), f"{prefix}{name}/", deeper)

    def read(self, path: str, start: int, end: int) -> bytes:
        with self._asked("read", path):
            return bytes(self._inode(path).content[start:end])

    def read_same(self, path: str, identity: str, start: int, end: int) -> bytes:
        with self._asked("read", path):
            inode = self._inode(path)
            if inode.identity != identity:
                raise FileNotFoundError(errno.ENOENT, "another file has its name now", path)
            return bytes(inode.content[start:end])

    def is_complete(self, path: str, info: FileInfo) -> bool:
        with self._asked("look at", path):
            return _info(info.name, self._inode(path)) == info

    def snapshots(self, paths: Sequence[str]) -> list[Iterator[bytes]]:
        opened = []
        for path in paths:
            with self._asked("read", path):
                opened.append((path, self._inode(path)))
        return [self._blocks(path, inode, self._boots) for path, inode in opened]

    def _blocks(self, path: str, inode: _Inode, boot: int) -> Iterator[bytes]:
        at = 0
        while True:
            with self._asked("read", path):
                self._refuse_older(boot)
                block = bytes(inode.content[at : at + _BLOCK_BYTES])
            if not block:
                return
            yield block
            at += len(block)

    # -- writing

    def _make_directory(self, path: str) -> None:
        with self._changing("make a directory", path):
            names, name = self._place(path)
            if names.get(name) == DIRECTORY:
                return  # somebody else has made it meanwhile
            if name in names:
                raise _os_error(FileExistsError, errno.EEXIST, path)
            self._happens(Link(_inside(path), DIRECTORY))
            names[name] = DIRECTORY
            self._directories[_at(path)] = {}

    def _names(self, path: str) -> list[str]:
        with self._answering():
            return list(self._directory(path))

    def _size(self, path: str) -> int:
        with self._answering():
            if _at(path) in self._directories:
                return 0
            try:
                return len(self._inode(path).content)
            except NotADirectoryError:  # a file stands where a directory above it should
                raise _os_error(FileNotFoundError, errno.ENOENT, path) from None

    def _create(self, path: str) -> NewFile:
        with self._changing("create", path):
            names, name = self._place(path)
            if name in names:
                raise _os_error(FileExistsError, errno.EEXIST, path)
            self._happens(Link(_inside(path), self._made + 1))
            self._made += 1
            names[name] = self._made
            inode = self._inodes[self._made] = _Inode(self._made, self._clock.now_ms())
            return _MemoryFile(path, self, inode, self._boots)

    def _sync_directory(self, path: str) -> None:
        with self._changing("sync a directory", path):
            self._directory(path)
            self._happens(SyncDirectory(_inside(path)))

    def _rename(self, path: str, to: str) -> None:
        with self._changing("rename", path):
            (names, name), (names_to, name_to) = self._place(path), self._place(to)
            if name not in names:
                raise _os_error(FileNotFoundError, errno.ENOENT, path)
            if name_to in names_to:
                raise _os_error(FileExistsError, errno.EEXIST, to)
            below = _at(path)
            if names[name] == DIRECTORY and f"{_at(to)}/".startswith(f"{below}/"):
                raise _os_error(OSError, errno.EINVAL, to)
            self._happens(Rename(_inside(path), _inside(to)))
            names_to[name_to] = names.pop(name)
            for moved in [one for one in self._directories if one == below or one.startswith(f"{below}/")]:
                self._directories[_at(to) + moved.removeprefix(below)] = self._directories.pop(moved)

    def _remove(self, path: str) -> None:
        with self._changing("remove", path):
            self._unlink(path)

    def _unlink(self, path: str) -> None:
        inode = self._inode(path)
        self._happens(Unlink(_inside(path)))
        names, name = self._place(path)
        del names[name]
        self._take_room(-len(inode.content))

    def replace(self, path: str, to: str) -> None:
        with clear_errors("move", path), self._changing("replace", path):
            inode = self._inode(path)
            (names, name), (names_to, name_to) = self._place(path), self._place(to)
            replaced = self._inode(to) if name_to in names_to else None
            self._happens(Rename(_inside(path), _inside(to)))
            del names[name]
            names_to[name_to] = inode.number
            if replaced is not None and replaced is not inode:
                self._take_room(-len(replaced.content))

    def remove_tree(self, path: str) -> None:
        with suppress(FileNotFoundError), clear_errors("delete", path), self._changing("remove a tree", path):
            self._remove_tree(path)

    def _remove_tree(self, path: str) -> None:
        for name in list(self._directory(path)):
            below = posixpath.join(path, name)
            if _at(below) in self._directories:
                self._remove_tree(below)
            else:
                self._unlink(below)
        self._remove_directory(path)

    def remove_directory(self, path: str) -> None:
        with suppress(FileNotFoundError), clear_errors("delete", path), self._changing("remove a directory", path):
            if not self._directory(path):
                self._remove_directory(path)

    def _remove_directory(self, path: str) -> None:
        self._happens(Unlink(_inside(path)))
        names, name = self._place(path)
        del names[name], self._directories[_at(path)]

    def put(self, path: str, data: bytes) -> None:
        """A file of somebody else's, whole, with what is missing above it, also in place of another one. Passes no
        failpoint, and nothing of it is safe."""
        with self._answering():
            for above in reversed([*map(str, PurePosixPath(_at(path)).parents)]):
                if above not in self._directories:
                    self._make_directory(above)
            names, name = self._place(path)
            if name in names:
                self._unlink(path)
            self._create(path)._append(memoryview(data))

    def write(self, path: str, inode: _Inode, boot: int, data: memoryview) -> None:
        """For a file that is open: append to it as much as there is room for."""
        with self._changing("append", path):
            self._refuse_older(boot)
            fits = len(data) if self.room_bytes is None else max(0, min(len(data), self.room_bytes))
            if fits:
                part = bytes(data[:fits])
                self._happens(Write(inode.number, len(inode.content), part, _inside(path)))
                inode.content += part
                inode.modified_ms = self._clock.now_ms()
                self._take_room(fits)
            if fits < len(data):
                raise _os_error(OSError, errno.ENOSPC, path)

    def sync(self, path: str, inode: _Inode, boot: int) -> None:
        """For a file that is open: make it durable."""
        with self._changing("sync", path):
            self._refuse_older(boot)
            self._happens(Sync(inode.number, _inside(path)))

    # -- under the lock

    @contextmanager
    def _answering(self) -> Iterator[None]:
        with self._lock:
            if self.away:
                raise ConnectionError("the files in memory are away")
            yield

    @contextmanager
    def _asked(self, act: str, path: str) -> Iterator[None]:
        with clear_errors(act, path), self._answering():
            yield

    @contextmanager
    def _changing(self, act: str, path: str) -> Iterator[None]:
        loss = self.lose(act, path)
        if loss == "request":
            raise ConnectionError("a request was lost")
        with self._answering():
            yield
        if loss == "reply":
            raise ConnectionError("a reply was lost")

    def _happens(self, operation: Operation) -> None:
        self.hook(operation)
        self._disk.apply(operation)

    def _directory(self, path: str) -> dict[str, int]:
        """The names in a directory. Raises FileNotFoundError, NotADirectoryError."""
        at = _at(path)
        if at not in self._directories:
            self._inode(path)
            raise _os_error(NotADirectoryError, errno.ENOTDIR, path)
        return self._directories[at]

    def _place(self, path: str) -> tuple[dict[str, int], str]:
        """The names in the directory of a path, and its own. Raises as `_directory`."""
        at = _at(path)
        return self._directory(posixpath.dirname(at)), posixpath.basename(at)

    def _inode(self, path: str) -> _Inode:
        """The file of that path. Raises FileNotFoundError, NotADirectoryError, IsADirectoryError."""
        if _at(path) in self._directories:
            raise _os_error(IsADirectoryError, errno.EISDIR, path)
        names, name = self._place(path)
        if name not in names:
            raise _os_error(FileNotFoundError, errno.ENOENT, path)
        return self._inodes[names[name]]

    def _take_room(self, size_bytes: int) -> None:
        if self.room_bytes is not None:
            self.room_bytes -= size_bytes

    def _refuse_older(self, boot: int) -> None:
        if boot != self._boots:
            raise ConnectionError("the power failed since it was opened")


class _MemoryFile(NewFile):
    def __init__(self, path: str, files: MemoryFiles, inode: _Inode, boot: int) -> None:
        super().__init__(path)
        self._files = files
        self._inode = inode
        self._boot = boot

    def _append(self, data: memoryview) -> None:
        self._files.write(self._path, self._inode, self._boot, data)

    def _sync(self) -> None:
        self._files.sync(self._path, self._inode, self._boot)

    def _close(self) -> None:
        """Nothing is held."""


def _at(path: str) -> str:
    """The one spelling of a path."""
    return posixpath.normpath(f"/{path.lstrip('/')}")


def _inside(path: str) -> str:
    """A path as the disk has it: below its root, which is `.`."""
    return _at(path)[1:] or "."


def _os_error(kind: type[OSError], number: int, path: str) -> OSError:
    return kind(number, os.strerror(number), path)


def _info(name: str, inode: _Inode) -> FileInfo:
    return FileInfo(name, len(inode.content), inode.modified_ms, inode.identity)
