"""Runs the real command line: in this process where that is enough, as a process of its own where it must be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from scribengin.dataflow.config import DataflowConfig, load_config
from scribengin_registry.contract import Registry
from scribengin_tools.cli import main as cli
from scribengin_tools.rendering.text import SILENT_VARIABLE
from tests.processes import Process


def quiet_config(*, session_timeout_s: float) -> DataflowConfig:
    """A dataflow without workers, from the logs `words/*` to the log `loud`."""
    return load_config(
        {
            "name": "quiet",
            "sources": {"words": {"kind": "log", "logs": "words/*"}},
            "sinks": {"loud": {"kind": "log", "log": "loud"}},
            "sql": "SELECT payload FROM words",
            "workers": 0,
            "session_timeout_s": session_timeout_s,
        }
    )


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its output as JSON."""
        return json.loads(self.out)


class CommandLine:
    """Commands for one registry."""

    def __init__(self, hosts: str, capture: pytest.CaptureFixture[str]) -> None:
        self.hosts = hosts
        self._capture = capture

    def __call__(self, *line: str) -> Done:
        """Run a command in this process."""
        self._capture.readouterr()
        code = cli.run(line)
        out, err = self._capture.readouterr()
        return Done(code, out, err)

    def ok(self, *line: str) -> Done:
        """Run a command that must work."""
        done = self(*line)
        assert done.code == 0, done.err
        return done

    def process(self, *line: str, **options: Any) -> Process[str]:
        """Start a command as a process, whose pipes are buffered, as a user's are."""
        usual = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        return Process(
            command(line),
            env={**usual, "SCRIBENGIN_REGISTRY": self.hosts},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    def fed(self, text: str, *line: str) -> Done:
        """Run a command as a process that reads `text`."""
        with self.process(*line, stdin=subprocess.PIPE) as process:
            out, err = process.communicate(text)
        return Done(process.returncode, out, err)


def expect_registry_away(line: CommandLine, *words: str) -> None:
    """With a registry that is away a command says what it waits for, and then in one line that nobody answers."""
    hosts = "127.0.0.1:1"
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(SILENT_VARIABLE, "0.001")
        done = line(*words, "--registry", hosts)
    waiting, away = done.err.splitlines()
    assert (done.code, done.out) == (2, "")
    assert waiting == f"waiting for the registry at {hosts} ..."
    assert away.startswith(f"scribengin: no ZooKeeper server answered at {hosts} within 5 s: ")


def command(line: Sequence[str]) -> list[str]:
    """The arguments of a process that runs a command."""
    return [sys.executable, "-m", "scribengin_tools", *line]


def whole_tree(registry: Registry, path: str = "/") -> dict[str, bytes]:
    """Every node of a registry below `path`, with its data."""
    below = {
        node: data
        for child in registry.children(path)
        for node, data in whole_tree(registry, f"{path.rstrip('/')}/{child}").items()
    }
    return {path: registry.get(path).data, **below}


def assert_ends_unread(process: subprocess.Popen[str], first: str) -> None:
    """It has printed a line with `first` in it, and is waiting for more when its reader goes, as `head -1` does."""
    assert process.stdout is not None
    assert first in process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert process.wait(120) == 0
