"""How commands and processes end: their codes, and which errors end with which."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from scribengin import errors
from scribengin.base.process import lifetime
from scribengin.errors import ScribenginError
from scribengin.launcher.yarn.application_master import container
from scribengin_registry import errors as registry_errors
from scribengin_tools.cli import main as cli

_HEAD = """# Exit codes

Made from the code by `python -m scribengin_dev.reference`.

## Of the command `scribengin`

| code | meaning |
|---|---|
"""
_PROCESSES = """
## Of masters and workers

`scribengin history NAME` and `scribengin logs NAME` say how a process has ended. By signal *n*, a shell says 128 + *n*.

| code | meaning |
|---|---|
"""
_ERRORS = """
## Errors

An error's class says what a command that fails by it ends with. Every other one ends with 1. Python imports them from
`scribengin.errors` and `scribengin_registry.errors`.

| error | code | meaning |
|---|---|---|
"""
_OF_PROCESSES = {
    lifetime.EXIT_OK: "it was removed, or told to end, and has given everything back",
    lifetime.EXIT_FAILED: "an error, which is the last thing in its log",
    errors.ConfigError.exit_code: "the config is to blame, or what it names is not there",
    lifetime.EXIT_SESSION_LOST: "a worker's session with the registry expired; a new worker takes its place",
    lifetime.EXIT_REGISTRY_GONE: "the registry was away for longer than `SCRIBENGIN_REGISTRY_PATIENCE_S`",
    container.OVER_MEMORY: "on YARN: it held more than `container.memory_mb`",
}


def page() -> str:
    """The whole page, as Markdown."""
    of_commands = "".join(f"| {code} | {meaning} |\n" for code, meaning in cli.EXIT_CODE_MEANINGS.items())
    of_processes = "".join(f"| {code} | {meaning} |\n" for code, meaning in _OF_PROCESSES.items())
    of_errors = "".join(f"| `{kind.__name__}` | {kind.exit_code} | {_meaning(kind)} |\n" for kind in _errors())
    return _HEAD + of_commands + _PROCESSES + of_processes + _ERRORS + of_errors


def _errors() -> Iterator[type[ScribenginError]]:
    found = {**vars(registry_errors), **vars(errors)}
    for name in sorted(found):
        kind = found[name]
        if inspect.isclass(kind) and issubclass(kind, ScribenginError):
            yield kind


def _meaning(kind: type[ScribenginError]) -> str:
    return " ".join((kind.__doc__ or "").split())
