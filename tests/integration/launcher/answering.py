"""A program that answers line by line, with JSON: there is one JVM a process, and it takes seconds to start."""

from __future__ import annotations

import json
import subprocess
from typing import Any


class Program:
    """What was started, with pipes for all of its text."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def hear(self) -> Any:
        """Its next line."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self._process.communicate()[1]
        return json.loads(line)

    def ask(self, value: object = None) -> Any:
        """Its answer to a value."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(value) + "\n")
        self._process.stdin.flush()
        return self.hear()

    def end(self) -> None:
        """Ask no more, and wait for its end, which must be a good one."""
        _, error = self._process.communicate()
        assert self._process.returncode == 0, error
