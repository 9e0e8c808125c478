"""What a container prints, in files of bounded size.

A container writes into a pipe, and its keeper writes files: so a full disk is the keeper's trouble and nobody else's,
and nobody who prints has to know how large his file is. `stdout.log` that is full becomes `stdout.log.1`, in place of
an older one; a line is never cut in two, unless it is very long. A process that has no keeper (a master on YARN) looks
at its own files after each line that it says.

What a full disk does not take is counted, and the file says so once there is room again.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from scribengin_registry.threads import background

OUTPUT_BYTES_MAX = 8 << 20
"""From so many bytes on a file is rotated, at the end of a line. There are two of each kind."""
_LINE_BYTES_MAX = 1 << 20
_CHUNK_BYTES = 64 << 10


def rotated(path: Path) -> Path:
    """Where the output goes that stood in `path` before it was full."""
    return path.with_name(f"{path.name}.1")


def output_files(path: Path) -> list[Path]:
    """The files of one kind of output that are there, in the order in which they were written."""
    return [file for file in (rotated(path), path) if file.exists()]


class OutputFile:
    """Takes what a container prints. For one thread. Never raises for a disk that does not take it."""

    def __init__(self, path: Path, bytes_max: int = OUTPUT_BYTES_MAX) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._descriptor = -1
        self._size = 0
        self._lost = 0

    def write(self, data: bytes) -> None:
        """Append these bytes, or count them as lost."""
        if self._size >= self._bytes_max:
            line, newline, rest = data.partition(b"\n")
            if newline or self._size >= self._bytes_max + _LINE_BYTES_MAX:
                self._append(line + newline)
                self._rotate()
                data = rest
        self._append(data)

    def close(self) -> None:
        """Let the file go. What is written later opens it again."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with contextlib.suppress(OSError):  # what a disk says late of what it has taken: it is lost either way
                os.close(descriptor)

    def _append(self, data: bytes) -> None:
        try:
            if self._descriptor < 0:
                self._open()
            if self._lost:
                os.write(self._descriptor, f"[{self._lost} bytes of output are lost here: no room]\n".encode())
                self._lost = 0
            while data:
                written = os.write(self._descriptor, data)
                self._size += written
                data = data[written:]
        except OSError:
            self._lost += len(data)
            self.close()

    def _open(self) -> None:
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._size = os.fstat(self._descriptor).st_size

    def _rotate(self) -> None:
        self.close()
        with contextlib.suppress(OSError):  # then this file grows further
            os.replace(self._path, rotated(self._path))
            self._size = 0


def regular_file(descriptor: int) -> Path | None:
    """The file that stands behind a descriptor; None: a terminal, a pipe."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return None
    return Path(os.readlink(f"/proc/self/fd/{descriptor}"))


class Pumps:
    """Pipes for what a process is to print, and a thread for each that writes it into its file."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._pipes = [os.pipe() for _ in files]
        self.ends = [end for _, end in self._pipes]
        """For the process to print into."""
        self._threads = [
            background(file.name, partial(pump, source, OutputFile(file)))
            for (source, _), file in zip(self._pipes, files, strict=True)
        ]

    def start(self) -> None:
        """The process has its ends now, or could not be started."""
        for end in self.ends:
            os.close(end)
        for thread in self._threads:
            thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait until all was printed and written."""
        for thread in self._threads:
            thread.join(timeout_s)


def rotation_of_own_files(bytes_max: int = OUTPUT_BYTES_MAX) -> Callable[[int], None]:
    """What keeps the files bounded that this process prints into as its stdout and stderr: to be called with either
    descriptor after a line. What else writes there without lines of its own, as a Java machine inside, goes along."""
    files = {descriptor: file for descriptor in (1, 2) if (file := regular_file(descriptor)) is not None}

    def rotate(descriptor: int) -> None:
        file = files.get(descriptor)
        if file is None or os.fstat(descriptor).st_size < bytes_max:
            return
        fresh = file.with_name(f"{file.name}.new")
        opened = os.open(fresh, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            os.replace(file, rotated(file))
            os.replace(fresh, file)
            os.dup2(opened, descriptor)
        finally:
            os.close(opened)

    return rotate


def pump(source: int, target: OutputFile) -> None:
    """Read `source` to its end into `target`, which is there from the start, and close both."""
    target.write(b"")
    try:
        while data := os.read(source, _CHUNK_BYTES):
            target.write(data)
    finally:
        os.close(source)
        target.close()
