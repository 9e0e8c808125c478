"""Every environment variable of ours: the constants that name one, and the text that stands below each."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import scribengin
import scribengin_dev
import scribengin_registry
import scribengin_tools

_PREFIX = "SCRIBENGIN_"
_SET_BY_US = "Set by Scribengin: "
_HEAD = """# Environment variables

Made from the code by `python -m scribengin_dev.reference`. Beside these, `HADOOP_CONF_DIR` says which cluster of Hadoop
is meant, and `JAVA_HOME` which Java.

| variable | meaning |
|---|---|
"""
_OURS = """
## Set by Scribengin

Containers find these. Nobody else sets them.

| variable | meaning |
|---|---|
"""
_TESTS = """
## Of tests and benchmarks

| variable | meaning |
|---|---|
"""


def page() -> str:
    """The whole page, as Markdown."""
    used = dict(_variables(scribengin, scribengin_registry, scribengin_tools))
    for_people = {name: text for name, text in used.items() if not text.startswith(_SET_BY_US)}
    by_us = {name: _begun(text) for name, text in used.items() if text.startswith(_SET_BY_US)}
    return _HEAD + _rows(for_people) + _OURS + _rows(by_us) + _TESTS + _rows(dict(_variables(scribengin_dev)))


def _begun(text: str) -> str:
    rest = text.removeprefix(_SET_BY_US)
    return rest[0].upper() + rest[1:]


def _rows(found: dict[str, str]) -> str:
    return "".join(f"| `{name}` | {text} |\n" for name, text in sorted(found.items()))


def _variables(*packages: object) -> Iterator[tuple[str, str]]:
    for package in packages:
        (folder,) = package.__path__  # type: ignore[attr-defined]  # a package is a module that has one
        for path in sorted(Path(folder).rglob("*.py")):
            source = path.read_text(encoding="utf-8")
            if f'= "{_PREFIX}' in source:
                yield from _documented(ast.parse(source).body)


def _documented(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for constant, text in pairwise(body):
        if not (isinstance(constant, ast.Assign) and isinstance(constant.value, ast.Constant)):
            continue
        name = str(constant.value.value)
        if name.startswith(_PREFIX) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            yield name, " ".join(str(text.value.value).split())
