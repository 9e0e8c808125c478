"""A disk in memory, for tests and simulations, with the ways of a disk: what was not synced is not safe.

`MemoryDisk` is the disk of one machine: any number of processes, or what stands for them, have its files open at once.
It can be told to lose power (`crash`), to lose what was written and not synced while the power stays (`lose_unsynced`),
to be full (`room_bytes`), to be another one than was expected (`mounted`), and to refuse (`hook`). What it may leave
of files and names is what `disk_states` says of a disk.

`segments.py` keeps the segments of logs on it. It is never what a user runs: nothing of it outlives the process.
"""

from __future__ import annotations

import errno
import os
import posixpath
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from scribengin.testing.memory.disk_states import (
    DIRECTORY,
    Disk,
    Link,
    Operation,
    Rename,
    Sync,
    SyncDirectory,
    Truncate,
    Unlink,
    Write,
)

ROOT = "."
_DISKS: WeakValueDictionary[str, MemoryDisk] = WeakValueDictionary()


def disk_named(name: str) -> MemoryDisk:
    """The disk of this process that was made last with that name. Raises ValueError if there is none."""
    try:
        return _DISKS[name]
    except KeyError:
        raise ValueError(f"there is no disk '{name}' in this process") from None


@dataclass
class _Inode:
    """A file as it is while the power stays on."""

    number: int
    content: bytearray = field(default_factory=bytearray)
    failures: int = 0
    """How often the disk has lost what was written to it."""
    watchers: list[threading.Event] = field(default_factory=list)


class MemoryDisk:
    """One disk. Thread-safe. Paths are those below its root, which is `.`; what is refused is an OSError."""

    def __init__(self, name: str = "disk") -> None:
        """A disk that is empty. It can be found by its name from now on, and no other of that name."""
        self.name = name
        self.mounted = True
        self.retired = 0
        """How many namespaces were moved away from it: each was bound by another token."""
        """Whether it is there: an empty directory is seen in its place else."""
        self.room_bytes: int | None = None
        """How many bytes its files may still grow by; None: there is no limit."""
        self.hook: Callable[[Operation], object] = lambda _operation: None
        """Sees every operation of the disk before it happens, and may raise an OSError."""
        self._lock = threading.RLock()
        self._disk = Disk()
        self._names: dict[str, _Inode | None] = {ROOT: None}
        """What every name is just now: a file, or a directory (None)."""
        self._inodes: dict[int, _Inode] = {}
        self._made = self._processes = self._boots = 0
        _DISKS[name] = self

    def next_process(self) -> int:
        """A number that nobody else has got."""
        with self._lock:
            self._processes += 1
            return self._processes

    # -- what happens to it

    def crash(self, seed: int) -> None:
        """Lose power, and be back at once with what that left. Whatever was open is not any more.

        The processes of a machine end with its power: whoever simulates that ends them, too.
        """
        with self._lock:
            self._boots += 1
            self._disk.fail(random.Random(seed))
            self._inodes = {
                number: _Inode(number, bytearray(file.durable)) for number, file in self._disk.files.items()
            }
            self._names = {ROOT: None}
            self._names.update((path, self._inodes.get(number)) for path, number in self._disk.names.items())

    def lose_unsynced(self, seed: int, suffix: str = ".log") -> int:
        """Fail to write what was not synced of the files whose names end so: some of it is lost, and how many were hit.

        It is read until the power fails or somebody reads past the cache. Whoever has a file open is told by his next
        sync, and by no other; what is lost is lost, however many syncs follow.
        """
        chosen = random.Random(seed)
        with self._lock:
            hit = 0
            for number, file in sorted(self._disk.files.items()):
                if any(isinstance(change, Write) and change.path.endswith(suffix) for change in file.pending):
                    self._inodes[number].failures += 1
                    self._lose(number, chosen)
                    hit += 1
            return hit

    def _lose(self, number: int, chosen: random.Random) -> None:
        """Let one write or more come to nothing but for the size."""
        file = self._disk.files[number]
        writes = [at for at, change in enumerate(file.pending) if isinstance(change, Write)]
        lost = set(writes if chosen.random() < 0.5 else chosen.sample(writes, chosen.randint(1, len(writes))))
        size = len(file.durable)
        for at, change in enumerate(file.pending):
            if isinstance(change, Write):
                size = max(size, change.offset + len(change.data))
                if at in lost:
                    file.pending[at] = Truncate(number, size, change.path)

    def damage(self, path: str, at: int) -> None:
        """Change one byte of a file, as a bad disk does. Raises FileNotFoundError."""
        with self._lock:
            inode = self._file(path)
            inode.content[at] ^= 0xFF
            self._disk.apply(Write(inode.number, at, bytes(inode.content[at : at + 1]), path))

    # -- names

    def exists(self, path: str) -> bool:
        """Whether there is a file or a directory of that name."""
        with self._lock:
            return path in self._seen()

    def is_directory(self, path: str) -> bool:
        """Whether that is a directory."""
        with self._lock:
            return path in self._seen() and self._names[path] is None

    def list(self, path: str) -> list[str]:
        """The names in a directory. Raises FileNotFoundError, NotADirectoryError."""
        with self._lock:
            self._check_directory(path)
            return sorted(posixpath.basename(name) for name in self._seen() if name != ROOT and _above(name) == path)

    def make_directory(self, path: str) -> None:
        """Raises FileExistsError, FileNotFoundError."""
        with self._lock:
            self._check_free(path)
            self._happens(Link(path, DIRECTORY))
            self._names[path] = None

    def sync_directory(self, path: str) -> None:
        """Make what was made, renamed or removed in a directory durable. Raises FileNotFoundError."""
        with self._lock:
            self._check_directory(path)
            self._happens(SyncDirectory(path))

    def rename(self, path: str, to: str) -> None:
        """Name a file anew, in place of what had that name. Raises FileNotFoundError."""
        with self._lock:
            inode = self._file(path)
            self._check_directory(_above(to))
            self._happens(Rename(path, to))
            del self._names[path]
            self._names[to] = inode

    def unlink(self, path: str) -> None:
        """Remove a file. Raises FileNotFoundError."""
        with self._lock:
            inode = self._file(path)
            self._happens(Unlink(path))
            del self._names[path]
            self._take_room(-len(inode.content))

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all that is in it. Raises FileNotFoundError, NotADirectoryError."""
        with self._lock:
            for name in self.list(path):
                below = _join(path, name)
                if self.is_directory(below):
                    self.remove_tree(below)
                else:
                    self.unlink(below)
            self._happens(Unlink(path))
            del self._names[path]

    # -- files

    def create(self, path: str) -> MemoryFile:
        """Make a file that must not be there, and open it. Raises FileExistsError, FileNotFoundError."""
        with self._lock:
            self._check_free(path)
            number = self._made + 1
            self._happens(Link(path, number))
            self._made = number
            self._names[path] = self._inodes[number] = _Inode(number)
            return self.open(path)

    def open(self, path: str) -> MemoryFile:
        """Open a file that is there, for reading and writing. Raises FileNotFoundError."""
        with self._lock:
            return MemoryFile(self, self._file(path), path, self._boots)

    def open_or_create(self, path: str) -> MemoryFile:
        """Either of the two. Raises FileNotFoundError: there is no directory for it."""
        with self._lock:
            return self.open(path) if path in self._seen() else self.create(path)

    @contextmanager
    def using(self, boot: int) -> Iterator[Disk]:
        """For a file that was opened in that boot: the disk while it is changed or looked at. Raises OSError."""
        with self._lock:
            if boot != self._boots:
                raise _power_failed()
            yield self._disk

    def write(self, inode: _Inode, path: str, boot: int, data: bytes, offset: int | None) -> None:
        """For a file that is open: write as much as there is room for. Raises OSError."""
        with self.using(boot):
            start = len(inode.content) if offset is None else offset
            grows = max(0, start + len(data) - len(inode.content))
            short = 0 if self.room_bytes is None else max(0, grows - max(0, self.room_bytes))
            part = data[: len(data) - short]
            if part:
                self._happens(Write(inode.number, start, part, path))
                inode.content.extend(bytes(max(0, start - len(inode.content))))
                inode.content[start : start + len(part)] = part
                self._take_room(grows - short)
            watchers = list(inode.watchers)
        for watcher in watchers:
            watcher.set()
        if short:
            raise _os_error(OSError, errno.ENOSPC, path)

    def read(self, inode: _Inode, boot: int, start: int, end: int) -> bytes:
        """For a file that is open: the bytes [start, end), as far as there are any. Raises OSError. Readers that wait
        ask all the time: without `using`, this costs half as much."""
        with self._lock:
            if boot != self._boots:
                raise _power_failed()
            return bytes(inode.content[start:end])

    def sync(self, inode: _Inode, path: str, boot: int) -> None:
        """For a file that is open: make it durable, as far as it is not lost. Raises OSError."""
        with self.using(boot):
            self._happens(Sync(inode.number, path))

    # -- under the lock

    def _seen(self) -> dict[str, _Inode | None]:
        return self._names if self.mounted else {ROOT: None}

    def _happens(self, operation: Operation) -> None:
        self.hook(operation)
        self._disk.apply(operation)

    def _file(self, path: str) -> _Inode:
        inode = self._seen().get(path)
        if inode is None:
            raise _os_error(*((IsADirectoryError, errno.EISDIR) if path in self._seen() else _MISSING), path)
        return inode

    def _check_directory(self, path: str) -> None:
        if path not in self._seen():
            raise _os_error(*_MISSING, path)
        if self._names[path] is not None:
            raise _os_error(NotADirectoryError, errno.ENOTDIR, path)

    def _check_free(self, path: str) -> None:
        self._check_directory(_above(path))
        if path in self._seen():
            raise _os_error(FileExistsError, errno.EEXIST, path)

    def _take_room(self, size_bytes: int) -> None:
        if self.room_bytes is not None:
            self.room_bytes -= size_bytes


class MemoryFile:
    """A file that is open. It stays readable when its name is gone. Everything raises OSError once the power failed."""

    def __init__(self, disk: MemoryDisk, inode: _Inode, path: str, boot: int) -> None:
        self._disk = disk
        self._inode = inode
        self._path = path
        self._boot = boot
        self._told = inode.failures

    def write(self, data: bytes, offset: int | None = None) -> None:
        """Write there, or at the end. Part of it may be written when it raises."""
        self._disk.write(self._inode, self._path, self._boot, data, offset)

    def sync(self) -> None:
        """Make it durable. Raises OSError, once, when the disk has lost something of it since it was opened."""
        self._disk.sync(self._inode, self._path, self._boot)
        if self._inode.failures > self._told:
            self._told = self._inode.failures
            raise _os_error(OSError, errno.EIO, self._path)

    def size(self) -> int:
        """How many bytes it has."""
        with self._disk.using(self._boot):
            return len(self._inode.content)

    def read(self, start: int, end: int) -> bytes:
        """The bytes [start, end), as far as there are any."""
        return self._disk.read(self._inode, self._boot, start, end)

    def read_past_cache(self, start: int, end: int) -> bytes:
        """The same as the disk has it: zeros where it has lost something."""
        with self._disk.using(self._boot) as disk:
            return disk.files[self._inode.number].versions()[-1][start:end]

    def watch(self, event: threading.Event) -> Callable[[], None]:
        """Set `event` at every write, until what this returns is called."""
        with self._disk.using(self._boot):
            self._inode.watchers.append(event)
        return lambda: self._inode.watchers.remove(event)


_MISSING: tuple[type[OSError], int] = (FileNotFoundError, errno.ENOENT)


def _power_failed() -> OSError:
    return _os_error(OSError, errno.EIO, "the power failed since it was opened")


def _above(path: str) -> str:
    return posixpath.dirname(path) or ROOT


def _join(path: str, name: str) -> str:
    return name if path == ROOT else f"{path}/{name}"


def _os_error(kind: type[OSError], number: int, path: str) -> OSError:
    return kind(number, os.strerror(number), path)
