"""The one command that a line names. To build all of them, as typer does, takes longer than most of them run."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import typer
from typer.main import get_command_name
from typer.models import CommandInfo


def named_in(app: typer.Typer, words: Sequence[str]) -> typer.Typer:
    """`app` without the commands that `words` do not begin with: itself, if they begin with none, as with an option."""
    first = words[0] if words else ""
    commands = [command for command in app.registered_commands if _name_of(command) == first]
    groups = [copy.copy(group) for group in app.registered_groups if group.name == first]
    if not commands and not groups:
        return app
    for group in groups:
        assert group.typer_instance is not None
        group.typer_instance = named_in(group.typer_instance, words[1:])
    narrow = copy.copy(app)
    narrow.registered_commands, narrow.registered_groups = commands, groups
    return narrow


def _name_of(command: CommandInfo) -> str:
    return command.name or get_command_name(str(getattr(command.callback, "__name__", "")))
