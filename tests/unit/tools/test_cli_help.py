"""What the command line says of itself: groups, examples, its version, completion; where `--registry` may stand."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import typer

from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry.descriptors import DataflowState
from scribengin.dataflow.registry.view import DataflowView
from scribengin.operations.chain.config import ChainConfig
from scribengin.operations.chain.registry import descriptor_of, path_of
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin_registry.contract import Registry
from scribengin_tools.cli import main as cli
from scribengin_tools.cli.catalogue import EXAMPLES, PANELS
from scribengin_tools.cli.dataflow import status as status_commands
from scribengin_tools.cli.registry import nodes as registry_commands
from tests.house.tree import ROOT as ROOT_FOLDER

ROOT: Any = typer.main.get_command(cli.app)


def leaves() -> dict[str, Any]:
    found = {}
    for name, command in ROOT.commands.items():
        below = getattr(command, "commands", {})
        found |= {f"{name} {child}": one for child, one in below.items()} if below else {name: command}
    return found


LEAVES = leaves()


def test_every_command_stands_in_one_group_and_has_an_example() -> None:
    assert LEAVES.keys() == EXAMPLES.keys()
    named = [name for names in PANELS.values() for name in names]
    assert sorted(named) == sorted(ROOT.commands)


def test_help_shows_the_groups_in_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    cli.run(["--help"])
    out = capsys.readouterr().out
    places = [out.index(f" {panel} ─") for panel in PANELS]
    assert places == sorted(places)


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_an_example_is_a_command_line_that_there_is(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(EXAMPLES[name].partition(" > ")[0])
    path, rest = name.split(), words[len(name.split()) :]
    assert words[: len(path)] == path
    with LEAVES[name].make_context(name, list(rest)) as context:
        assert not context.args
    cli.run([*path, "--help"])
    assert f"Example: scribengin {EXAMPLES[name]}" in capsys.readouterr().out, "it is broken into lines: shorten it"


def not_there(text: str) -> Iterator[str]:
    """The commands that a text names, and that there are not, or not with these options."""
    for quoted in re.findall(r"`(scribengin [^`]*)`", re.sub(r'"\s*\n\s*f?"', "", text)):
        words, command = quoted.split()[1:], ROOT
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        name = words[0] if words and getattr(command, "commands", {}) else ""
        unknown = bool(re.match(r"[a-z]", name)) and "|" not in name  # else it is a word that stands for many
        meant = [command, *getattr(command, "commands", {}).values()]  # of a group, any of its commands
        options = {option for one in meant for p in one.params for option in (*p.opts, *p.secondary_opts)} | {"--help"}
        if unknown or {word.partition("=")[0] for word in words if word.startswith("--")} - options:
            yield quoted


def test_what_pages_and_messages_name_is_there() -> None:
    texts = [*ROOT_FOLDER.glob("*.md"), *(ROOT_FOLDER / "docs").rglob("*.md")]
    for folder in ("scribengin", "registry", "tools"):
        texts += [*(ROOT_FOLDER / folder).rglob("*.py"), *(ROOT_FOLDER / folder).rglob("*.js")]
    assert {path.name: found for path in texts if (found := [*not_there(path.read_text(encoding="utf-8"))])} == {}
    assert [*not_there("`scribengin log create --config A=B`, `scribengin log destroy`, `scribengin log list`")] == [
        "scribengin log create --config A=B",
        "scribengin log destroy",
    ]


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_paragraphs_fill_the_width_of_a_terminal_whatever_it_is(name: str) -> None:
    assert all("\n" not in paragraph for paragraph in (LEAVES[name].help or "").split("\n\n"))


@pytest.mark.parametrize(
    ("line", "command"),
    [
        (["log", "write", "a", "--key"], "scribengin log write"),
        (["log", "write", "a", "--kye", "k"], "scribengin log write"),
        (["stop"], "scribengin stop"),
        (["--registry"], "scribengin"),
    ],
)
def test_a_wrong_line_leads_to_the_help_of_its_command(
    line: list[str], command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(line) == 2
    assert capsys.readouterr().err.strip().endswith(f"See `{command} --help`")


def test_it_says_which_version_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("scribengin ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_are_told_how_to_complete(shell: str) -> None:
    found = completing({"_SCRIBENGIN_COMPLETE": f"source_{shell}"})
    assert "_SCRIBENGIN_COMPLETE=complete_" in found


def test_commands_are_completed() -> None:
    asked = {"_SCRIBENGIN_COMPLETE": "complete_bash", "COMP_WORDS": "scribengin config ro", "COMP_CWORD": "2"}
    assert completing(asked).split() == ["rollback"]


def completing(variables: dict[str, str]) -> str:
    command = [sys.executable, "-m", "scribengin_tools"]
    environment = {**os.environ, **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The registries that commands were told to use."""
    hosts: list[str | None] = []
    session = MemoryEnsemble().connect()

    @contextmanager
    def connected(given: str | None, **_options: object) -> Iterator[Registry]:
        hosts.append(given)
        yield session

    monkeypatch.setattr(status_commands, "connected", connected)
    monkeypatch.setattr(registry_commands, "connected", connected)
    return hosts


@pytest.mark.parametrize(
    ("line", "host"),
    [
        (["--registry", "a:1", "list"], "a:1"),
        (["list", "--registry", "b:1"], "b:1"),
        (["--registry", "a:1", "list", "--registry", "b:1"], "b:1"),
        (["--registry", "a:1", "registry", "tree"], "a:1"),
        (["list"], "variable:1"),
    ],
)
def test_the_registry_may_stand_before_the_command_or_behind_it(
    asked: list[str | None], line: list[str], host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRIBENGIN_REGISTRY", "variable:1")
    assert cli.run(line) == 0
    assert asked == [host]


def config(name: str) -> DataflowConfig:
    keys = {
        "name": name,
        "sources": {"words": {"kind": "log", "logs": "words/*"}},
        "sinks": {"loud": {"kind": "log", "log": name}},
        "sql": "SELECT payload FROM words",
    }
    return DataflowConfig.parse(keys, source="the test")


@pytest.mark.parametrize(("state", "code"), [("failed", 1), ("running", 0), ("stopped", 0), ("finished", 0)])
def test_status_ends_with_1_when_the_dataflow_or_one_of_the_chain_has_failed(
    state: DataflowState, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = MemoryEnsemble().connect()

    @contextmanager
    def connected(_given: str | None, **_options: object) -> Iterator[Registry]:
        yield session

    monkeypatch.setattr(status_commands, "connected", connected)
    views = [DataflowView(session, name) for name in ("pair-first", "pair-last")]
    for view in views:
        view.submit(config(view.dataflow), [], 0)
    views[1].set_status(views[1].status().model_copy(update={"state": state}))
    whole = ChainConfig.parse(
        {"name": "pair", "dataflows": {v.dataflow[5:]: config(v.dataflow).model_dump(mode="json") for v in views}},
        source="the test",
    )
    described = descriptor_of(whole, 0)
    session.create(path_of("pair"), described.to_bytes(), parents=True)
    assert cli.run(["status", "pair-first"]) == 0
    assert cli.run(["status", "pair-last"]) == code
    assert cli.run(["status", "pair-last", "--json"]) == code
    assert cli.run(["status", "pair"]) == code
