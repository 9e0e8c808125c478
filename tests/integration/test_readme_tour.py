"""The README's blocks, run as they are printed: the tour against a sandbox that its own first block starts."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.house.readme import Block, blocks_run_by
from tests.house.tree import ROOT

HERE = "tests/integration/test_readme_tour.py"
ADDRESS = "127.0.0.1:2181"
"""What the README says the sandbox prints. Where that port is taken, the sandbox prints another one."""


@dataclass
class Terminal:
    """A shell whose exports last from block to block, in a directory that looks like a clone."""

    directory: Path
    environment: dict[str, str]
    address: str = ADDRESS
    shown: dict[str, str] = field(default_factory=dict)

    def run(self, block: Block) -> None:
        """Run a block, and keep what it printed. It must end with 0."""
        text = block.text.replace(ADDRESS, self.address)
        if block.language == "python":
            done = self._execute([sys.executable, "-c", text])
        else:
            kept = self.directory / "environment"
            done = self._execute(["bash", "-euo", "pipefail", "-c", f"{text}\nenv -0 > {kept}"])
            if done.returncode == 0:
                self.environment = dict(pair.split("=", 1) for pair in kept.read_text().split("\0") if "=" in pair)
        assert done.returncode == 0, f"README.md:{block.line}\n{block.text}\n{done.stdout}\n{done.stderr}"
        self.shown[block.name] = done.stdout

    def _execute(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=self.directory, env=self.environment, capture_output=True, text=True, check=False
        )


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    directory = tmp_path / "clone"
    directory.mkdir()
    (directory / "dataflows").symlink_to(ROOT / "dataflows")
    (directory / ".venv").symlink_to(sys.prefix)
    (tmp_path / "home").mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SCRIBENGIN")}
    return Terminal(directory, {**kept, "HOME": str(tmp_path / "home")})


@pytest.fixture
def sandbox(terminal: Terminal) -> Iterator[subprocess.Popen[str]]:
    """The README's first terminal; the address that it prints goes to the second one."""
    (block,) = blocks_run_by(f"{HERE}::sandbox")
    with subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", block.text],
        cwd=terminal.directory,
        env=terminal.environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            terminal.address = printed_address(process)
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)


def printed_address(process: subprocess.Popen[str]) -> str:
    """The address in what a sandbox prints."""
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"export SCRIBENGIN_REGISTRY=(\S+)", line):
            return found[1]
    raise AssertionError("the sandbox ended without a word on how to connect")


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_tour_runs_as_it_is_printed(terminal: Terminal, sandbox: subprocess.Popen[str]) -> None:
    for block in blocks_run_by(f"{HERE}::test_the_tour_runs_as_it_is_printed"):
        terminal.run(block)
    os.killpg(sandbox.pid, signal.SIGINT)
    assert sandbox.wait() == 0
    check_what_was_shown(terminal.shown)


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_operating_runs_as_it_is_printed(terminal: Terminal, sandbox: subprocess.Popen[str]) -> None:
    """With the dataflow of the tour running."""
    before = (
        f"export SCRIBENGIN_REGISTRY={ADDRESS}",
        "export SCRIBENGIN_REGISTRY_AUTH='${file:~/.scribengin/sandbox/credentials}'",
        "export PATH=$PWD/.venv/bin:$PATH",
        "scribengin log create readings/0 readings/1",
        """scribengin log write readings/0 '{"sensor": "oven", "celsius": 210}'""",
        "scribengin submit dataflows/heat_alarm --wait",
        "scribengin log tail alarms/0 --from earliest -n 1",
    )
    terminal.run(Block("bash", "before", "\n".join(before), 0))
    for block in blocks_run_by(f"{HERE}::test_operating_runs_as_it_is_printed"):
        terminal.run(block)
    shown = terminal.shown["operate-config"]
    assert "round.records_max: 100000 -> 5000" in shown
    assert re.search(r"accepted +round.records_max.* drain first", shown)
    assert "is rewound to earliest (2 streams)" in terminal.shown["operate-rewind"]
    assert "'heat_alarm' is running" in terminal.shown["operate-restart"]
    twice = "scribengin log tail alarms/0 --from earliest -n 2; scribengin kill heat_alarm"
    terminal.run(Block("bash", "after", twice, 0))
    assert terminal.shown["after"].count('"oven"') == 2, "what was read again was written again"


def check_what_was_shown(shown: Mapping[str, str]) -> None:
    """What the README says beside each block."""
    assert "celsius DOUBLE" in shown["tour-explain"]
    assert re.search(r"state +running", shown["tour-submit"])
    assert [re.findall(r'"sensor":"(\w+)"', line) for line in shown["tour-tail"].splitlines()] == [["oven"], ["kiln"]]
    assert "this is no reading" in shown["tour-rejected"]
    assert "malformed JSON" in shown["tour-rejected"]
    assert '"sensor":"forge"' in shown["tour-python"]
    assert "worker-1" in shown["tour-look"]
    assert shown["tour-stop"].count("is stopped") == 2
    assert "deleted" in shown["tour-clean"]
    assert "upper" in shown["sql-dataflow"] or "payload STRING" in shown["sql-dataflow"]


def test_the_files_that_are_printed_are_the_files() -> None:
    files = {"heat-alarm-descriptor": "heat_alarm.yaml", "heat-alarm-transformation": "heat_alarm.py"}
    blocks = blocks_run_by(f"{HERE}::test_the_files_that_are_printed_are_the_files")
    assert {block.name for block in blocks} == set(files)
    for block in blocks:
        assert block.text == (ROOT / "dataflows" / "heat_alarm" / files[block.name]).read_text()


def test_the_two_commands_are_commands_of_dev() -> None:
    spec = importlib.util.spec_from_file_location("dev", ROOT / "tools" / "dev.py")
    assert spec is not None
    assert spec.loader is not None
    dev = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(dev)
    (block,) = blocks_run_by(f"{HERE}::test_the_two_commands_are_commands_of_dev")
    for line in block.text.splitlines():
        python, script, command = line.split()
        assert (python, script) == ("python3", "tools/dev.py")
        assert command in dev.COMMANDS
