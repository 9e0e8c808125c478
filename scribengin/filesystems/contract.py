"""What the file connector asks of a file system: a little for reading, a little more for writing exactly once.

Everything the connector does to files goes through these classes, so that another file system is one more subclass, and
the effects of a round (`files.*`) are the same ones whatever the files stand on. Paths are absolute strings in the
file system's own form. A missing file is FileNotFoundError everywhere, a name that is taken FileExistsError; whatever
else the system raises becomes a DataflowError that names the path, or SystemUnreachable when it is not to be had just
now.
"""

from __future__ import annotations

import posixpath
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from scribengin.base.failpoints import failpoint
from scribengin.errors import DataflowError, OutOfRoom, SystemUnreachable, is_full

HIDDEN = ("_", ".")
"""Files and directories whose names begin with one of these are nobody's input."""


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One file: its name from where the search began, with slashes, its size, and when it was last written to.

    `identity`: what its system knows it by, whatever its name is. One that begins with `~` goes with a rename, and
    changes when the file is written; one that begins with `=` is of its content. "": there is none.
    """

    name: str
    size_bytes: int
    modified_ms: int
    identity: str = ""


def is_lasting(identity: str) -> bool:
    """Whether a file keeps the identity for as long as there is the file, renamed or written to."""
    return bool(identity) and identity[0] not in "~="


def is_time(identity: str) -> bool:
    """Whether the identity is a time of modification: it goes with a rename, and changes when the file is written."""
    return identity.startswith("~")


def is_version(identity: str) -> bool:
    """Whether the identity is of a file's content: a copy has the same."""
    return identity.startswith("=")


class FileSystem(ABC):
    """Reading. Stateless and thread-safe."""

    @abstractmethod
    def is_directory(self, path: str) -> bool:
        """Whether there is a directory of that path."""

    @abstractmethod
    def find(self, root: str, depth_max: int | None = None) -> list[FileInfo]:
        """The files below the directory `root`, at most `depth_max` levels down (1: in it), in order of their names.

        Or the file `root` itself, alone, under its last name. Hidden ones are left out. Links to files count as files,
        links to directories are not followed. Raises FileNotFoundError.
        """

    @abstractmethod
    def read(self, path: str, start: int, end: int) -> bytes:
        """The bytes [start, end), fewer where the file ends before. Raises FileNotFoundError."""

    def read_same(self, path: str, identity: str, start: int, end: int) -> bytes:
        """`read`, of the file of that identity only, where the system can tell. Raises FileNotFoundError when its name
        is another's now."""
        return self.read(path, start, end)

    def path_of(self, path: str, identity: str) -> str | None:
        """Where in its directory the file of that path is now, if it was renamed."""
        directory = posixpath.dirname(path)
        if is_lasting(identity):
            for info in self.find(directory, 1):
                if info.identity == identity:
                    return posixpath.join(directory, info.name)
        return None

    def readable(self, path: str, size_bytes: int) -> int:
        """How much of a file that has `size_bytes` can be read now: all of it, unless somebody is writing to it and the
        system shows a size before it gives the bytes. Raises FileNotFoundError.
        """
        return size_bytes

    def is_complete(self, path: str, info: FileInfo) -> bool:
        """Whether a file is as `info` says and, as far as the system knows, nobody has it open to write more. To be
        asked before what stands at its end is taken for its end. Raises FileNotFoundError.
        """
        return True


class NewFile(ABC):
    """A file that this process has created, and nobody else writes: append*, sync, close."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._open = True

    def append(self, data: bytes | memoryview) -> None:
        """Write all of `data` behind what was written. Never after `sync`: some systems end a file there."""
        unsigned = memoryview(data).cast("B")  # Arrow calls its bytes signed, and hdfs-native takes that at its word
        with clear_errors("write to", self._path), failpoint("files.append"):
            self._append(unsigned)

    def sync(self) -> None:
        """Return once everything that was appended survives a power failure. After an error here the file is lost."""
        with clear_errors("sync", self._path), failpoint("files.sync"):
            self._sync()

    def close(self) -> None:
        """Let go of it. Idempotent. After an `append` or a `sync` that failed it does not raise."""
        if self._open:
            self._open = False
            with clear_errors("close", self._path), failpoint("files.close"):
                self._close()

    @abstractmethod
    def _append(self, data: memoryview) -> None: ...

    @abstractmethod
    def _sync(self) -> None: ...

    @abstractmethod
    def _close(self) -> None: ...


class DurableFileSystem(FileSystem):
    """Writing so that a crash leaves what was promised: an exclusive create, a real sync, an atomic rename.

    A subclass says what it cannot promise in its docstring, and `promise` is the same for people, in a line.
    """

    @property
    @abstractmethod
    def promise(self) -> str:
        """What a sink's guarantee rests on, in a few words for people, as `explain` shows them."""

    @abstractmethod
    def resource(self, path: str) -> str:
        """The physical place of a path, as a URL: the same for everybody who means the same place."""

    def unwritable(self, path: str) -> str | None:
        """Why this user cannot write into the directory `path`, or make it, as far as that can be seen without trying;
        None: nothing speaks against it. Changes nothing."""
        return None

    def canonical(self, path: str) -> str:
        """The one spelling of a path that is written to, without `..`, links and the like."""
        normal = posixpath.normpath(path)
        return f"/{normal.lstrip('/')}" if normal.startswith("//") else normal  # which POSIX leaves as it is

    def make_directories(self, path: str) -> None:
        """Create a directory and what is missing above it, durably. Idempotent."""
        parent = posixpath.dirname(path)
        if parent == path or self.is_directory(path):
            self._settle_directory(parent)
            return
        self.make_directories(parent)
        with clear_errors("create the directory", path), failpoint("files.make_directory"):
            self._make_directory(path)
        self.sync_directory(parent)

    def names(self, path: str) -> list[str]:
        """The names in a directory, sorted; none when there is no such directory."""
        try:
            with clear_errors("list", path):
                return sorted(self._names(path))
        except FileNotFoundError:
            return []

    def size(self, path: str) -> int | None:
        """The size of a file in bytes, or None when it is not there."""
        try:
            with clear_errors("look at", path):
                return self._size(path)
        except FileNotFoundError:
            return None

    def create(self, path: str) -> NewFile:
        """A new file. Raises FileExistsError, FileNotFoundError (its directory, where there are such)."""
        with clear_errors("create", path), failpoint("files.create"):
            return self._create(path)

    def sync_directory(self, path: str) -> None:
        """Return once all that was created, renamed or removed in it survives a power failure."""
        with clear_errors("sync the directory", path), failpoint("files.sync_directory"):
            self._sync_directory(path)

    def rename(self, path: str, to: str) -> None:
        """Move a file, atomically. Raises FileNotFoundError (no `path`), FileExistsError (a `to` already)."""
        with clear_errors("move", path), failpoint("files.rename"):
            self._rename(path, to)

    def remove(self, path: str) -> None:
        """Delete a file. One that is not there is fine."""
        try:
            with clear_errors("delete", path), failpoint("files.remove"):
                self._remove(path)
        except FileNotFoundError:
            return

    @abstractmethod
    def snapshots(self, paths: Sequence[str]) -> list[Iterator[bytes]]:
        """The contents of files in blocks, as of now. Raises FileNotFoundError.

        Some systems drop the contents of a file that is removed under those who read it: then an iterator ends with
        FileNotFoundError, and never in silence.
        """

    # What a subclass does; errors as above, effects and sentences are the caller's.

    @abstractmethod
    def _make_directory(self, path: str) -> None: ...

    def _settle_directory(self, parent: str) -> None:
        """A directory in `parent` was found: made a moment ago, perhaps, by somebody who died before it was durable."""
        self.sync_directory(parent)

    @abstractmethod
    def _names(self, path: str) -> list[str]: ...

    @abstractmethod
    def _size(self, path: str) -> int: ...

    @abstractmethod
    def _create(self, path: str) -> NewFile: ...

    @abstractmethod
    def _sync_directory(self, path: str) -> None: ...

    @abstractmethod
    def _rename(self, path: str, to: str) -> None: ...

    @abstractmethod
    def _remove(self, path: str) -> None: ...


class TreeFileSystem(DurableFileSystem):
    """Whole directories, too: `rename` moves one as it moves a file, atomically, with all that is below it. What is
    here stands in a failpoint of the caller's."""

    def url_of(self, path: str) -> str:
        """The place of a path as a URL for programs that open it by themselves. `resource` may fold what these do not:
        it is for comparing."""
        return self.resource(path)

    @abstractmethod
    def replace(self, path: str, to: str) -> None:
        """Move a file, in place of what had the name, atomically. Raises FileNotFoundError."""

    @abstractmethod
    def remove_tree(self, path: str) -> None:
        """Delete a directory with all in it. One that is not there is fine; what somebody writes there meanwhile may
        stay."""

    @abstractmethod
    def remove_directory(self, path: str) -> None:
        """Delete a directory that nothing is in. One that is not there, or has something in it, is fine."""


@contextmanager
def clear_errors(act: str, path: str) -> Iterator[None]:
    """Turn what a system raises into one line that says what was tried; a missing file and a taken name stay."""
    try:
        yield
    except (FileNotFoundError, FileExistsError):
        raise
    except (ConnectionError, TimeoutError) as error:
        raise SystemUnreachable(f"cannot {act} {path}: {error}; a task tries again until its system answers") from error
    except OSError as error:
        why = error.strerror or str(error) or type(error).__name__
        if str(error.filename).startswith(f"{path}/"):
            why = f"{error.filename}: {why}"  # what is in the way, of all that is below
        if is_full(error):
            raise OutOfRoom(f"cannot {act} {path}: {why}; it goes on when there is room") from error
        raise DataflowError(f"cannot {act} {path}: {why}; make that possible, and start the dataflow again") from error


def is_hidden(name: str) -> bool:
    """Whether any part of a relative name is hidden."""
    return any(part.startswith(HIDDEN) for part in name.split("/"))
