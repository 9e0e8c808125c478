"""Names of our modules, classes and functions that stand in strings: `-m` of a process, tables of rules, patches."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from tests.house.tree import SourceFile, imported_names

# What a string says, whole or up to a slash -> the one module that may say it. Others take its name from there.
SAID_IN: dict[str, str] = {
    "/scribengin": "scribengin.base.names",
    "HADOOP_CONF_DIR": "scribengin.base.jvm",
}

_NAME = re.compile(r"^scribengin(?:_\w+)?(?:\.\w+)+(?::[\w.]+)?$")


def stale_names(file: SourceFile, modules: Mapping[str, SourceFile]) -> Iterator[str]:
    """Strings of a file that read like a name of ours, and name nothing: what was moved, or mistyped."""
    for node in file.nodes:
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or not _NAME.match(node.value):
            continue
        if not _names_something(node.value.replace(":", "."), modules):
            yield f"{file.path}:{node.lineno} {node.value}"


def said_elsewhere(file: SourceFile) -> list[str]:
    """Strings of a file that another one has the name for."""
    return [
        f"{file.path}:{node.lineno} '{node.value}' is said in {place}"
        for node in file.nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for said, place in SAID_IN.items()
        if file.module != place and (node.value == said or node.value.startswith(f"{said}/"))
    ]


def _names_something(name: str, modules: Mapping[str, SourceFile]) -> bool:
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        if (module := modules.get(".".join(parts[:count]))) is not None:
            return set(parts[count:]) <= defined_names(module)
    return False


def defined_names(file: SourceFile) -> set[str]:
    """What a module defines at any depth, or imports."""
    found = set(imported_names(file))
    for node in file.nodes:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found
