"""Runs the blocks of a page as a reader does: from top to bottom, in one shell, one folder and one Python session."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from scribengin.dataflow.config import DataflowConfig
from scribengin.log import LogNamespace
from scribengin_registry.contract import Registry
from tests.house.pages import OUTPUT, Block, blocks_of
from tests.house.tree import ROOT
from tests.processes import Process

ADDRESS = "127.0.0.1:2181"
"""What pages say the sandbox prints. Where that port is taken, the sandbox prints another one."""

FIRST_TERMINAL = "First terminal"
"""The title of the block that starts the sandbox."""

_LEAST_DESCRIPTOR = {
    "name": "hot",
    "sources": {"in": {"kind": "log", "logs": "in"}},
    "sinks": {"out": {"kind": "log", "log": "out"}},
    "sql": "SELECT payload FROM in",
}
_OF_THE_SHELL = frozenset("$&|<>*")
_PYTHON = """
import contextlib, io, json, os, sys, traceback
answers = os.fdopen(int(sys.argv[1]), "w")
names = {"__name__": "__main__"}
for line in sys.stdin:
    printed, failure = io.StringIO(), ""
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(json.loads(line), "<page>", "exec"), names)
    except BaseException:
        failure = traceback.format_exc()
    answers.write(json.dumps([printed.getvalue(), failure]) + "\\n")
    answers.flush()
"""


class PythonSession:
    """A Python that runs one block after the other, as a reader's does. A context manager."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        answers, theirs = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PYTHON, str(theirs)],
            stdin=subprocess.PIPE,
            pass_fds=(theirs,),
            cwd=directory,
            env=environment,
            text=True,
        )
        os.close(theirs)
        self._answers = os.fdopen(answers)

    def run(self, text: str) -> tuple[str, str]:
        """What a block prints, and why it failed ("": it did not)."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(text) + "\n")
        self._process.stdin.flush()
        printed, failure = json.loads(self._answers.readline())
        return printed, failure

    def close(self) -> None:
        """End it, as a reader does with Ctrl-D."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._answers.close()


@dataclass
class Terminal:
    """A shell whose exports last from block to block, in a directory that looks like a clone. A context manager."""

    directory: Path
    environment: dict[str, str]
    address: str = ADDRESS
    runs_here: RunsHere | None = None
    """What runs plain commands of ours in place of the shell. Then each line of a block is a whole command."""
    printed: list[tuple[Block, str]] = field(default_factory=list)
    _python: PythonSession | None = None

    def run_page(self, page: str, *, without: tuple[str, ...] = ()) -> None:
        """Run, save and compare all blocks of a page, but those that begin with a text of `without`, and that of the
        sandbox's own terminal."""
        for block in blocks_of(page):
            if block.title == OUTPUT:
                printed = self.printed[-1][1]
                assert self._as_printed(block.text) == printed, f"{block.place}: what was printed is\n{printed}"
            elif block.title != FIRST_TERMINAL and not block.text.startswith(without):
                self.run(block)

    def run(self, block: Block) -> None:
        """Run a block and keep what it printed, or save it. It must succeed. What only shows something is passed by."""
        if block.is_file:
            self.save(block)
        elif block.language == "yaml":
            keys = yaml.safe_load(block.text)
            DataflowConfig.parse({**_LEAST_DESCRIPTOR, **keys}, source=block.place)
        elif block.language == "python":
            if self._python is None:
                self._python = PythonSession(self.directory, self.environment)
            printed, failure = self._python.run(self._as_printed(block.text))
            assert not failure, f"{block.place}\n{block.text}\n{printed}\n{failure}"
            self.printed.append((block, printed))
        elif block.language == "bash":
            self.printed.append((block, self._lines(block) if self.runs_here else self._shell(block, block.text)))

    def save(self, block: Block) -> None:
        """Write the file that a block shows. One that the clone has must be what is shown."""
        path = self.directory / block.title
        if path.resolve().is_relative_to(ROOT):
            assert path.read_text() == block.text, f"{block.place}: {block.title} is not what is printed"
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._as_printed(block.text))

    def shown(self, command: str) -> str:
        """What the one block printed that has `command` in it."""
        (printed,) = [printed for block, printed in self.printed if command in block.text]
        return printed

    def close(self) -> None:
        """End the Python session, if there is one."""
        if self._python is not None:
            self._python.close()

    def _lines(self, block: Block) -> str:
        assert self.runs_here is not None
        printed = ""
        for line in block.text.splitlines():
            words = shlex.split(line, comments=True)
            plain = words[:1] == ["scribengin"] and not any(set(word) & _OF_THE_SHELL for word in words)
            printed += self.runs_here(self, words[1:]) if plain else self._shell(block, line)
        return printed

    def _shell(self, block: Block, text: str) -> str:
        kept = self.directory / "environment"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f"{self._as_printed(text)}\nenv -0 > {kept}"],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{block.place}\n{block.text}\n{done.stdout}\n{done.stderr}"
        self.environment = dict(pair.split("=", 1) for pair in kept.read_text().split("\0") if "=" in pair)
        return done.stdout

    def _as_printed(self, text: str) -> str:
        return text.replace(ADDRESS, self.address)


RunsHere = Callable[[Terminal, Sequence[str]], str]
"""Runs a command of a terminal, by its words; what it prints."""


@contextmanager
def terminal_in(directory: Path) -> Iterator[Terminal]:
    """A terminal in a new clone below `directory`, of somebody with a home of their own."""
    clone, home = directory / "clone", directory / "home"
    clone.mkdir()
    home.mkdir()
    for name in ("dataflows", "docs"):
        (clone / name).symlink_to(ROOT / name)
    (clone / ".venv").symlink_to(sys.prefix)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SCRIBENGIN")}
    scripts = str(Path(sys.executable).parent)
    opened = Terminal(clone, {**kept, "HOME": str(home), "PATH": f"{scripts}{os.pathsep}{kept['PATH']}"})
    try:
        yield opened
    finally:
        opened.close()


@contextmanager
def sandbox_of(terminal: Terminal) -> Iterator[subprocess.Popen[str]]:
    """The first terminal of the README; the address that it prints goes to `terminal`."""
    (block,) = [block for block in blocks_of("README.md") if block.title == FIRST_TERMINAL]
    with Process(
        ["bash", "-euo", "pipefail", "-c", block.text],
        cwd=terminal.directory,
        env=terminal.environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            terminal.address = _printed_address(process)
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)


def stand_in_for_sandbox(terminal: Terminal, registry: Registry) -> None:
    """Have `terminal` use a registry that runs already, for a page that starts no dataflow: its nodes are anybody's."""
    terminal.address = registry.hosts
    credentials = Path(terminal.environment["HOME"], ".scribengin", "sandbox", "credentials")
    credentials.parent.mkdir(parents=True)
    credentials.write_text("")
    LogNamespace.bind("/logs", terminal.directory.parent / "logs", registry=registry)


def end_background(terminal: Terminal) -> None:
    """End what a page has started in the background and written down as `*.pid`: it does so itself, unless it fails
    before."""
    for file in terminal.directory.glob("*.pid"):
        with suppress(ProcessLookupError):
            os.kill(int(file.read_text()), signal.SIGTERM)


def _printed_address(process: subprocess.Popen[Any]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"export SCRIBENGIN_REGISTRY=(\S+)", line):
            return found[1]
    raise AssertionError("the sandbox ended without a word on how to connect")
