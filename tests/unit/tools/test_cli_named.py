"""Of all commands a line has the one built that it names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from scribengin_tools.cli import main as cli
from scribengin_tools.cli.catalogue import named_in


def built(words: list[str]) -> Any:
    return typer.main.get_command(named_in(cli.app, words))


def paths(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, below in getattr(command, "commands", {}).items():
        yield from paths(below, (*path, name))


WHOLE = list(paths(built([])))


def test_each_command_is_found_by_its_name_and_alone() -> None:
    for path in WHOLE:
        below = [one for one in WHOLE if one[: len(path)] == path]
        above = [path[:length] for length in range(len(path))]
        assert sorted(paths(built([*path, "--option", "value"]))) == sorted([*above, *below])


@pytest.mark.parametrize("words", [[], ["--help"], ["no-such-command"], ["--registry", "list", "list"], ["list.x"]])
def test_a_line_that_begins_with_none_has_them_all(words: list[str]) -> None:
    assert list(paths(built(words))) == WHOLE


def test_a_group_without_a_command_has_all_of_its_own() -> None:
    of_log = [path for path in WHOLE if path[:1] == ("log",)]
    for words in (["log"], ["log", "--help"], ["log", "no-such-command"]):
        assert sorted(paths(built(words))) == sorted([(), *of_log])
    assert ("list",) in WHOLE
