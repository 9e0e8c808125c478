"""What a benchmark has done in a process of its own, and how it hears of the result: the parent's side.

A job is a JSON object, what `python -m scribengin_dev.bench.clients` reads: as an argument ten thousand logs would be
too long. Its last line is its result, as JSON; one that must be up before others begin says `ready` first.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from scribengin.errors import ServerDown

Job = dict[str, object]
_TIMEOUT_S = 600.0
_OURS = (sys.executable, "-m", "scribengin_dev.bench.clients")
_READY = "ready"
_SHOWN_CHARACTERS = 3000
_USER_AT, _KERNEL_AT = 11, 12
"""Behind the name in /proc/PID/stat."""


def run_job(job: Job, program: Sequence[str] = _OURS, environment: Mapping[str, str] | None = None) -> dict[str, float]:
    """Do a job to its end. Raises ServerDown with what it said when it fails. `program` may be one that has nothing of
    ours, with an environment of its own."""
    with started(job, program, environment) as client:
        return client.result()


def run_pair(first: Job, second: Job) -> dict[str, float]:
    """Start the first job, once it is ready do the second to its end, and return the result of the first."""
    with started(first) as reader:
        reader.await_ready()
        run_job(second)
        return reader.result()


class Client:
    """A job that runs."""

    def __init__(self, job: Job, process: subprocess.Popen[str], errors: IO[str]) -> None:
        self._job = job
        self._process = process
        self._errors = errors

    def await_ready(self) -> None:
        """Wait until it has said so."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip() == _READY:
                return
        self._fail()

    def processor_s(self) -> float:
        """The seconds of processor that it has used so far, its own and the kernel's for it."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[_USER_AT]) + int(fields[_KERNEL_AT])) / os.sysconf("SC_CLK_TCK")

    def result(self) -> dict[str, float]:
        """Wait for its end."""
        try:
            output, _ = self._process.communicate(timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._fail()
        lines = output.splitlines()
        if self._process.returncode != 0 or not lines:
            self._fail()
        values = json.loads(lines[-1])
        assert isinstance(values, dict)
        return values

    def _fail(self) -> None:
        self._process.kill()
        self._process.wait()
        self._errors.seek(0)
        said = self._errors.read()[-_SHOWN_CHARACTERS:]
        what = f"{self._job['system']} {self._job['job']}"
        raise ServerDown(f"the client '{what}' failed (exit status {self._process.returncode}). It said:\n{said}")


@contextmanager
def started(job: Job, program: Sequence[str] = _OURS, environment: Mapping[str, str] | None = None) -> Iterator[Client]:
    """Run a job; it is ended when the block is left."""
    with tempfile.TemporaryFile("w+") as told, tempfile.TemporaryFile("w+") as errors:
        json.dump(job, told, default=str)
        told.seek(0)
        process = subprocess.Popen(
            program,
            stdin=told,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
        )
        try:
            yield Client(job, process, errors)
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
