"""What runs the commands of a page in the process of its test."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest
from pyspark.sql import SparkSession

from scribengin.spark import runtime
from tests.integration.cli_runner import CommandLine
from tests.integration.docs.pages import RunsHere, Terminal


@pytest.fixture
def runs_here(spark: SparkSession, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> RunsHere:
    """This process has all modules and a Spark session already: a command takes seconds less."""
    monkeypatch.setattr(runtime, "start", lambda *_arguments, **_options: spark)
    monkeypatch.setattr(runtime, "stop", lambda: None)

    def run(terminal: Terminal, words: Sequence[str]) -> str:
        with monkeypatch.context() as theirs:
            theirs.chdir(terminal.directory)
            for name in os.environ.keys() - terminal.environment.keys():
                theirs.delenv(name)
            for name, value in terminal.environment.items():
                theirs.setenv(name, value)
            return CommandLine(terminal.address, capfd).ok(*words).out

    return run
