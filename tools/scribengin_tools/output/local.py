"""The output of a dataflow's processes, told apart by their names."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scribengin.launcher.contract import ContainerDescriptor, ContainerExit
from scribengin.launcher.local.launcher import LocalLauncher, scribengin_home
from scribengin.launcher.local.output import output_files, rotated
from scribengin_tools.rendering.text import moment, print_line
from scribengin_tools.terminal import check_read, visible_on

LINES_SHOWN = 300
"""Of each process, where output is shown as a whole: in the monitor, on the page."""
_POLL_S = 0.2
_RELIST_POLLS = 10
_TAIL_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class ProcessOutput:
    """One container, where its output is, and how it ended (None: it runs)."""

    container: ContainerDescriptor
    files: tuple[Path, ...]
    exit: ContainerExit | None

    @property
    def heading(self) -> str:
        """What it is, since when, and how it is, on one line."""
        state = "running" if self.exit is None else self.exit.reason
        return f"{self.container.name}, launched {moment(self.container.launched_ms)} ({state})"


def outputs_of(hosts: str, dataflow: str, since_ms: int) -> list[ProcessOutput]:
    """The processes of a dataflow on this machine, oldest first, ended ones too.

    Those from before `since_ms`, when it was submitted, were another's of that name: one that was deleted, or that of
    an earlier registry at the same address.
    """
    with closing(LocalLauncher(scribengin_home())) as launcher:
        found = []
        for container in launcher.all_containers(dataflow):
            if container.registry != hosts or container.launched_ms < since_ms:
                continue
            logs = launcher.logs(container)
            found.append(ProcessOutput(container, (logs.stdout, logs.stderr), launcher.poll(container)))
        return found


def container_facts(output: ProcessOutput) -> dict[str, Any]:
    """For JSON."""
    container, ended = output.container, output.exit
    return {
        "name": container.name,
        "id": container.id,
        "pid": container.pid,
        "launched_ms": container.launched_ms,
        "running": ended is None,
        "exit": None if ended is None else {"kind": ended.kind, "code": ended.code, "reason": ended.reason},
        "stdout": str(output.files[0]),
        "stderr": str(output.files[1]),
    }


def print_output(outputs: Sequence[ProcessOutput], lines: int) -> None:
    """The last lines of each process, below its heading."""
    for output in outputs:
        print_line(f"== {output.heading}")
        sys.stdout.write(visible_on(sys.stdout, text_of(output, lines)))


def text_of(output: ProcessOutput, lines: int) -> str:
    """The last lines of one process: of its standard output, then of its standard error."""
    return "".join(_text(_tail(file, lines)) for file in output.files)


def follow_output(hosts: str, dataflow: str, since_ms: int, worker: str | None, lines: int) -> None:
    """The last lines of every process, then what comes, each line behind the process's name. Never returns.

    Raises BrokenPipeError where nobody reads stdout any more.
    """
    followed: dict[Path, FollowedOutput] = {}
    for polls in itertools.count():
        if polls % _RELIST_POLLS == 0:
            found = outputs_of(hosts, dataflow, since_ms)
            outputs = [output for output in found if worker in (None, output.container.name)]
        for output in outputs:
            for file in output.files:
                if file not in followed:
                    followed[file] = FollowedOutput(file, lines if polls == 0 else None)
                for line in _text(followed[file].new()).splitlines():
                    print(f"{output.container.name} | {visible_on(sys.stdout, line)}")
        sys.stdout.flush()
        threading.Event().wait(_POLL_S)
        check_read(sys.stdout)


class FollowedOutput:
    """What comes into a file of output, also across the moment when it becomes the older one."""

    def __init__(self, file: Path, lines: int | None) -> None:
        """Begin at the last `lines` lines; None: at the beginning."""
        self._file = file
        self._inode, size = _inode_and_size(file)
        self._first = b"" if lines is None else _tail(file, lines)
        self._place = 0 if lines is None else size

    def new(self) -> bytes:
        """The whole lines that came since the last call."""
        found, self._first = self._first, b""
        inode, _ = _inode_and_size(self._file)
        if self._inode not in (None, inode):
            older = rotated(self._file)
            if _inode_and_size(older)[0] == self._inode:
                found += _read(older, self._place)
            self._place = 0
        self._inode = inode
        data = _whole_lines(_read(self._file, self._place))
        self._place += len(data)
        return found + data


def _inode_and_size(file: Path) -> tuple[int | None, int]:
    try:
        found = file.stat()
    except FileNotFoundError:
        return None, 0
    return found.st_ino, found.st_size


def _tail(file: Path, lines: int) -> bytes:
    """The last `lines` lines of the output in a file and the one before it; no more than _TAIL_BYTES_MAX of each is
    looked at."""
    pieces = [_read(part, max(0, _inode_and_size(part)[1] - _TAIL_BYTES_MAX)) for part in output_files(file)]
    return last_lines_of(b"".join(pieces), lines)


def last_lines_of(data: bytes, lines: int) -> bytes:
    """The last `lines` lines of what was read."""
    return b"".join(data.splitlines(keepends=True)[-lines:] if lines else ())


def _read(file: Path, offset: int) -> bytes:
    try:
        with file.open("rb") as stream:
            stream.seek(offset)
            return stream.read()
    except FileNotFoundError:
        return b""  # not made yet, or cleaned away


def _whole_lines(data: bytes) -> bytes:
    return data[: data.rfind(b"\n") + 1]


def _text(data: bytes) -> str:
    text = data.decode(errors="replace")
    return text if not text or text.endswith("\n") else f"{text}\n"
