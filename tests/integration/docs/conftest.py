"""What runs the commands of a page in the process of its test."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

from tests.integration.cli_runner import CommandLine
from tests.integration.docs.pages import RunsHere, Terminal


@pytest.fixture(params=["here", pytest.param("in a shell", marks=pytest.mark.full)])
def runs_here(
    request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> RunsHere | None:
    """This process has all modules and a Spark session already: a command takes seconds less. None: a shell runs all,
    as a reader's does."""
    if request.param != "here":
        return None
    request.getfixturevalue("session_of_commands")

    def run(terminal: Terminal, words: Sequence[str]) -> str:
        with monkeypatch.context() as theirs:
            theirs.chdir(terminal.directory)
            for name in os.environ.keys() - terminal.environment.keys():
                theirs.delenv(name)
            for name, value in terminal.environment.items():
                theirs.setenv(name, value)
            return CommandLine(terminal.address, capfd).ok(*words).out

    return run
