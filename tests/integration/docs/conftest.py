"""What runs the dear command of many pages in the process of their tests."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pyspark.sql import SparkSession

from scribengin.spark import runtime
from tests.integration.cli_runner import CommandLine
from tests.integration.docs.pages import Explain, Terminal


@pytest.fixture
def explain(spark: SparkSession, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Explain:
    """Runs the command in this process, which has a Spark session already: a page has many of them."""
    monkeypatch.setattr(runtime, "start", lambda *_arguments, **_options: spark)
    monkeypatch.setattr(runtime, "stop", lambda: None)

    def explained(terminal: Terminal, words: Sequence[str]) -> str:
        with monkeypatch.context() as theirs:
            theirs.chdir(terminal.directory)
            for name, value in terminal.environment.items():
                if name == "HOME" or name.startswith("SCRIBENGIN_"):
                    theirs.setenv(name, value)
            return CommandLine(terminal.address, capfd).ok(*words).out

    return explained
