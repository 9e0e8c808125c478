"""The commands, made from themselves."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer

from scribengin_tools.cli import main as cli
from scribengin_tools.cli.catalogue import PANELS

_HEAD = """# The commands of `scribengin`

Made from the commands by `python -m scribengin_dev.reference`; `scribengin COMMAND --help` shows the same.

- Every command takes `--help`, and `-v` or `--verbose` anywhere: it shows the traceback behind an error.
- `scribengin --install-completion` lets your shell complete commands and options; `--show-completion` shows how.
- Which registry: `--registry`, before the command or behind it, else the variable
  `SCRIBENGIN_REGISTRY`. Other variables are in [environment.md](environment.md).
- {exit_codes} [More on them](exit-codes.md).
"""


def page() -> str:
    """The whole page, as Markdown."""
    root = typer.main.get_command(cli.app)
    leaves = list(_leaves(root, ("scribengin",)))
    sections = []
    for panel, names in PANELS.items():
        sections.append(f"## {panel}\n")
        sections += [_section(path, command) for name in names for path, command in leaves if path[1] == name]
    return "\n".join([_HEAD.format(exit_codes=cli.EXIT_CODES), *sections])


def _leaves(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    below = getattr(command, "commands", None)
    if below is None:
        yield path, command
        return
    for name, child in below.items():
        yield from _leaves(child, (*path, name))


def _section(path: tuple[str, ...], command: Any) -> str:
    shown = [parameter for parameter in command.params if "--help" not in parameter.opts]
    arguments = [p for p in shown if p.param_type_name == "argument"]
    options = [p for p in shown if p.param_type_name == "option"]
    usage = [*path, *(_argument_name(argument) for argument in arguments), *(["[OPTIONS]"] if options else [])]
    lines = [f"### {' '.join(path)}", "", f"    {' '.join(usage)}", "", inspect.cleandoc(command.help or ""), ""]
    lines += [command.epilog, ""]
    lines += [f"- `{_argument_name(argument)}`: {argument.help}" for argument in arguments]
    lines += [f"- `{_option_name(option)}`: {option.help}{_default(option)}" for option in options]
    return "\n".join([*lines, ""]) if shown else "\n".join(lines)


def _argument_name(argument: Any) -> str:
    name = str(argument.metavar or argument.name.upper())
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _option_name(option: Any) -> str:
    names = ", ".join(option.opts) + "".join(f" / {name}" for name in option.secondary_opts)
    return names if option.is_flag else f"{names} {option.metavar or 'VALUE'}"


def _default(option: Any) -> str:
    if option.is_flag or option.default in (None, "") or not option.show_default:
        return ""
    return f" Default: {option.default}."
