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
from scribengin.launcher.local import LocalLauncher, scribengin_home

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
        """What it is and how it is, on one line."""
        return f"{self.container.name} ({'running' if self.exit is None else self.exit.reason})"


def outputs_of(hosts: str, dataflow: str) -> list[ProcessOutput]:
    """The processes of a dataflow on this machine, oldest first, ended ones too."""
    with closing(LocalLauncher(scribengin_home())) as launcher:
        found = []
        for container in launcher.all_containers(dataflow):
            if container.registry != hosts:
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
        print(f"== {output.heading}")
        sys.stdout.write(text_of(output, lines))


def text_of(output: ProcessOutput, lines: int) -> str:
    """The last lines of one process: of its standard output, then of its standard error."""
    return "".join(_text(_read(file, _start_of_last(file, lines))) for file in output.files)


def follow_output(hosts: str, dataflow: str, worker: str | None, lines: int) -> None:
    """The last lines of every process, then what comes, each line behind the process's name. Never returns."""
    places: dict[Path, int] = {}
    for polls in itertools.count():
        if polls % _RELIST_POLLS == 0:
            outputs = [output for output in outputs_of(hosts, dataflow) if worker in (None, output.container.name)]
        for output in outputs:
            for file in output.files:
                if file not in places:
                    places[file] = _start_of_last(file, lines) if polls == 0 else 0
                new = _whole_lines(_read(file, places[file]))
                places[file] += len(new)
                for line in _text(new).splitlines():
                    print(f"{output.container.name} | {line}")
        sys.stdout.flush()
        threading.Event().wait(_POLL_S)


def _start_of_last(file: Path, lines: int) -> int:
    """Where the last `lines` lines of a file begin; no more than _TAIL_BYTES_MAX is looked at."""
    size = file.stat().st_size if file.exists() else 0
    return max(0, size - len(last_lines_of(_read(file, max(0, size - _TAIL_BYTES_MAX)), lines)))


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
