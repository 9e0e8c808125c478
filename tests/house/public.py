"""The modules that users import, and what of them has no docstring."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from typing import Any

from tests.house.tree import parse


def undocumented(module: str) -> Iterator[str]:
    """Each public name of a module, and of its public classes, that says nothing of itself."""
    names = public_names(module)
    for name, value in names.items():
        if inspect.isclass(value):
            if not _own_text(value, name):
                yield f"{module}.{name}"
            yield from (f"{module}.{name}.{member}" for member in _silent_members(value))
        elif inspect.isfunction(value):
            if not value.__doc__:
                yield f"{module}.{name}"
        elif name not in _described_constants(module, name):
            yield f"{module}.{name}"


def public_names(module: str) -> dict[str, Any]:
    """What `from module import *` gives: of `__all__`, or all of its own that has no underscore."""
    found = import_module(module)
    declared = getattr(found, "__all__", None)
    if declared is None:
        tree = parse(inspect.getsource(found)).tree
        kinds = (ast.ClassDef, ast.FunctionDef)
        declared = [node.name for node in tree.body if isinstance(node, kinds)] + list(_assigned(tree))
    return {name: getattr(found, name) for name in declared if not name.startswith("_")}


def _own_text(kind: type, name: str) -> bool:
    text = vars(kind).get("__doc__") or ""
    return bool(text) and not text.startswith(f"{name}(")  # which dataclass writes where there is none


def _silent_members(kind: type) -> Iterator[str]:
    for name, member in vars(kind).items():
        function = getattr(member, "fget", None) or getattr(member, "__func__", member)
        if not name.startswith("_") and inspect.isfunction(function) and not inspect.getdoc(getattr(kind, name)):
            yield name


def _described_constants(module: str, name: str) -> set[str]:
    """The constants that a text follows, in the module where this one is made."""
    tree = parse(inspect.getsource(sys.modules[module])).tree
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and any((alias.asname or alias.name) == name for alias in node.names):
            return _described_constants(str(node.module), name)
    return {
        target
        for one, text in pairwise(tree.body)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
        for target in _targets(one)
    }


def _assigned(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        yield from _targets(node)


def _targets(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    is_named = isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    return [node.target.id] if is_named else []  # type: ignore[attr-defined]  # is_named says that it has one
