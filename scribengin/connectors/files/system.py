"""What the file connector asks of a file system: a little for reading, a little more for writing exactly once.

Everything the connector does to files goes through these two classes, so that another file system is one more class.
Paths are absolute strings in the file system's own form. A missing file is FileNotFoundError everywhere, a name that is
taken FileExistsError; whatever else the system raises becomes a DataflowError that names the path.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from scribengin.errors import DataflowError

HIDDEN = ("_", ".")
"""Files and directories whose names begin with one of these are nobody's input."""


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One file: its name from where the search began, with slashes, its size, and when it was last written to."""

    name: str
    size_bytes: int
    modified_ms: int


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


class NewFile(ABC):
    """A file that this process has created, and nobody else writes."""

    @abstractmethod
    def append(self, data: bytes | memoryview) -> None:
        """Write all of `data` behind what was written."""

    @abstractmethod
    def sync(self) -> None:
        """Return once everything that was appended survives a power failure. After an error here the file is lost."""

    @abstractmethod
    def close(self) -> None:
        """Let go of it. Idempotent."""


class DurableFileSystem(FileSystem):
    """Writing so that a crash leaves what was promised: an exclusive create, a real sync, an atomic rename."""

    @abstractmethod
    def make_directories(self, path: str) -> None:
        """Create a directory and what is missing above it, durably. Idempotent."""

    @abstractmethod
    def names(self, path: str) -> list[str]:
        """The names in a directory, sorted; none when there is no such directory."""

    @abstractmethod
    def size(self, path: str) -> int | None:
        """The size of a file in bytes, or None when it is not there."""

    @abstractmethod
    def create(self, path: str) -> NewFile:
        """A new file. Raises FileExistsError, FileNotFoundError (its directory)."""

    @abstractmethod
    def sync_directory(self, path: str) -> None:
        """Return once all that was created, renamed or removed in it survives a power failure."""

    @abstractmethod
    def rename(self, path: str, to: str) -> None:
        """Move a file, atomically. Raises FileNotFoundError (no `path`), FileExistsError (a `to` already)."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Delete a file. One that is not there is fine."""

    @abstractmethod
    def snapshots(self, paths: Sequence[str]) -> list[Iterator[bytes]]:
        """The contents of files in blocks, as of now, even if they are removed meanwhile. Raises FileNotFoundError."""


@contextmanager
def clear_errors(act: str, path: str) -> Iterator[None]:
    """Turn what a system raises into one line that says what was tried; a missing file and a taken name stay."""
    try:
        yield
    except (FileNotFoundError, FileExistsError):
        raise
    except OSError as error:
        why = error.strerror or str(error) or type(error).__name__
        raise DataflowError(f"cannot {act} {path}: {why}; make that possible, and start the dataflow again") from error


def is_hidden(name: str) -> bool:
    """Whether any part of a relative name is hidden."""
    return any(part.startswith(HIDDEN) for part in name.split("/"))
