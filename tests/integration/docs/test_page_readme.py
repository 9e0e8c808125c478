"""The README, run as it is printed: its tour in a sandbox that its own first block starts."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
from pathlib import Path

import pytest

from tests.house.pages import blocks_of
from tests.house.tree import ROOT
from tests.integration.docs.pages import RunsHere, Terminal, sandbox_of, terminal_in

PAGE = "README.md"
TWO_COMMANDS = "python3 tools/dev.py demo"


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_readme_runs_as_it_is_printed(tmp_path: Path, runs_here: RunsHere | None) -> None:
    with terminal_in(tmp_path) as terminal, sandbox_of(terminal) as sandbox:
        terminal.runs_here = runs_here
        terminal.run_page(PAGE, without=(TWO_COMMANDS,))
        os.killpg(sandbox.pid, signal.SIGINT)
        assert sandbox.wait() == 0
    check_what_was_shown(terminal)


def check_what_was_shown(terminal: Terminal) -> None:
    """What the README says beside each block."""
    submitted = terminal.shown("scribengin submit")
    assert "celsius DOUBLE" in submitted
    assert re.search(r"state +running", submitted)
    *alarms, rejected = terminal.shown("scribengin log tail").splitlines()
    assert [re.findall(r'"sensor":"(\w+)"', line) for line in alarms] == [["oven"], ["kiln"]]
    assert "this is no reading" in rejected
    assert "malformed JSON" in rejected
    assert terminal.shown("scribengin stop").count("is stopped") == 2
    assert "deleted" in terminal.shown("scribengin delete")


def test_the_two_commands_are_commands_of_dev() -> None:
    """What they do is tested by the demo's tests, and by this run."""
    spec = importlib.util.spec_from_file_location("dev", ROOT / "tools" / "dev.py")
    assert spec is not None
    assert spec.loader is not None
    dev = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(dev)
    (block,) = [block for block in blocks_of(PAGE) if block.text.startswith(TWO_COMMANDS)]
    for line in block.text.splitlines():
        python, script, command = line.split()
        assert (python, script) == ("python3", "tools/dev.py")
        assert command in dev.COMMANDS
