"""What runs the commands of a page in the process of its test."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

from tests.integration.cli_runner import CommandLine
from tests.integration.docs.pages import RunsHere, Terminal


@pytest.fixture
def runs_here(
    session_of_commands: None, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> RunsHere:
    """This process has all modules and a Spark session already: a command takes seconds less."""

    def run(terminal: Terminal, words: Sequence[str]) -> str:
        with monkeypatch.context() as theirs:
            theirs.chdir(terminal.directory)
            for name in os.environ.keys() - terminal.environment.keys():
                theirs.delenv(name)
            for name, value in terminal.environment.items():
                theirs.setenv(name, value)
            return CommandLine(terminal.address, capfd).ok(*words).out

    return run
