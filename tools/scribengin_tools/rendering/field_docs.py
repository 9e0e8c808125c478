"""What the keys of a configuration mean, in the words that stand below each field in its class.

Pydantic could collect these texts when it makes the classes, but that reads every source file at each start of a
process. Here they are read by who shows them.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

from pydantic import BaseModel

from scribengin.base.model import models_in


@cache
def field_docs(model: type[BaseModel]) -> dict[str, str]:
    """The text of each field that has one, the fields of base classes among them, each in a line."""
    found: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        if issubclass(kind, BaseModel) and kind.__module__.startswith("scribengin"):
            found |= dict(_documented(_class_node(kind)))
    return {name: found[name] for name in model.model_fields if name in found}


def described_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema of `model`, with the text of each field as its description: editors show it."""
    schema = model.model_json_schema()
    kinds = {kind.__name__: kind for kind in [model, *_below(model)]}
    for name, part in {model.__name__: schema, **schema.get("$defs", {})}.items():
        for field, text in field_docs(kinds[name]).items() if name in kinds else ():
            part["properties"][field]["description"] = text
    return schema


def _below(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for field in model.model_fields.values():
        for kind in models_in(field.annotation):
            yield kind
            yield from _below(kind)


def _class_node(kind: type) -> ast.ClassDef:
    tree = _module_tree(kind.__module__)
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind.__name__)


@cache
def _module_tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(sys.modules[module]))


def _documented(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """The fields of a class that a text follows."""
    for field, text in pairwise(node.body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        ):
            yield field.target.id, " ".join(text.value.value.split())
