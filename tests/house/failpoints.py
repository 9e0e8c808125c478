"""The external failpoints of the tree (scribengin/base/failpoints.py), found by reading it.

The crash tests stop a process before and after each of `failpoint_names()`; `test_failpoints.py` fails when something
in the rooms of the round changes the outside world without such a name.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from tests.house.outside import Outside
from tests.house.tree import SourceFile, called_name, imported_names, resolved, shipped_files

ROOMS = (
    "scribengin.filesystems",
    "scribengin.log",
    "scribengin.proxy",
    "scribengin.connectors",
    "scribengin.dafka",
    "scribengin.dataflow",
)
"""Where a round and its recovery happen."""

_EFFECT = "scribengin.base.failpoints.failpoint"


@dataclass(frozen=True, slots=True)
class OutsideCall:
    """A call that changes the outside world: what it calls, in which function, where, whether a failpoint names it."""

    what: str
    function: str
    place: str
    named: bool


def failpoint_names(beginning: str = "") -> list[str]:
    """The name of every failpoint of the engine, sorted: of those that begin so. Where few do, few files are parsed."""
    files = _engine_files(f'"{beginning}')
    return sorted(name for file in files for name, _ in named_failpoints(file) if name.startswith(beginning))


_LATER_STORES = ("scribengin/log/store/hdfs.py", "scribengin/log/store/bookkeeper/store.py")


def repeated_failpoints() -> list[str]:
    """Names that more than one block carries: a crash test could not tell them apart. A process has one of the stores
    of segments, and each does under a name what the first does."""
    names = Counter(failpoint_names())
    for file in _engine_files():
        if file.path in _LATER_STORES:
            names -= Counter({name for name, _ in named_failpoints(file)})
    return [name for name, count in names.items() if count > 1]


@cache
def named_failpoints(file: SourceFile) -> tuple[tuple[str, str], ...]:
    """Every `with failpoint("name"):` of a file, with its place."""
    named = ((_literal(node), f"{file.path}:{node.lineno}") for node in _failpoint_calls(file))
    return tuple((name, place) for name, place in named if name is not None)


def misused_failpoints(file: SourceFile) -> list[str]:
    """Uses of `failpoint` other than `with failpoint("a literal name without a colon"):`."""
    in_with = {id(item.context_expr) for node in file.nodes if isinstance(node, ast.With) for item in node.items}
    calls = list(_failpoint_calls(file))
    wrong = [
        f"{file.path}:{c.lineno} failpoint is not what a with statement opens" for c in calls if id(c) not in in_with
    ]
    for call in calls:
        name = _literal(call)
        if name is None or not name or ":" in name:
            wrong.append(f"{file.path}:{call.lineno} the name of a failpoint is a literal without a colon")
    return wrong


def outside_calls(file: SourceFile) -> Iterator[OutsideCall]:
    """Every call of a file that changes the outside world."""
    outside, meant = Outside(file), imported_names(file)

    def visit(node: ast.AST, function: str, named: bool) -> Iterator[OutsideCall]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from visit_all([*node.decorator_list, *_defaults(node)], function, named)
            yield from visit_all(node.body, f"{function}.{node.name}", False)
        elif isinstance(node, ast.Lambda):  # it runs later, when the block around it may be over
            yield from visit(node.body, function, False)
        elif isinstance(node, ast.With):
            for item in node.items:  # from left to right: a failpoint names what is opened after it
                yield from visit(item.context_expr, function, named)
                named = named or _is_failpoint(item.context_expr, meant)
            yield from visit_all(node.body, function, named)
        else:
            if isinstance(node, ast.Call) and (what := outside.changes(node)):
                yield OutsideCall(what, function, f"{file.path}:{node.lineno}", named)
            yield from visit_all(ast.iter_child_nodes(node), function, named)

    def visit_all(nodes: object, function: str, named: bool) -> Iterator[OutsideCall]:
        for node in nodes:  # type: ignore[attr-defined]  # some iterable of nodes; ast gives several types of them
            yield from visit(node, function, named)

    return visit_all(file.tree.body, file.module, False)


def in_rooms(file: SourceFile) -> bool:
    """Whether a file belongs to the rooms of the round."""
    return any(file.module == room or file.module.startswith(f"{room}.") for room in ROOMS)


def _engine_files(text: str = "") -> list[SourceFile]:
    """Those with that text."""
    return [file for file in shipped_files(text) if not file.module.startswith("scribengin.testing")]


def _failpoint_calls(file: SourceFile) -> Iterator[ast.Call]:
    meant = imported_names(file)
    return (node for node in file.nodes if isinstance(node, ast.Call) and _is_failpoint(node, meant))


def _is_failpoint(node: ast.expr, meant: dict[str, str]) -> bool:
    return isinstance(node, ast.Call) and resolved(called_name(node), meant) == _EFFECT


def _literal(call: ast.Call) -> str | None:
    one = len(call.args) == 1 and not call.keywords and isinstance(call.args[0], ast.Constant)
    return call.args[0].value if one and isinstance(call.args[0].value, str) else None  # type: ignore[attr-defined]


def _defaults(node: ast.AST) -> list[ast.expr]:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return []
    return [default for default in [*node.args.defaults, *node.args.kw_defaults] if default is not None]
