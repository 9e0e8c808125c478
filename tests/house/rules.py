"""House rules about text and calls: each takes one file and returns what is wrong with it, a line each."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from tests.house.tree import CODE_ROOTS, SourceFile, called_name, dotted, enclosing, functions, imported_names, resolved

LINE_COLUMNS_MAX = 120
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
FOLDER_ENTRIES_MAX = 12

TIME_READERS = frozenset(
    [f"time.{name}{unit}" for name in ("time", "monotonic", "perf_counter", "process_time") for unit in ("", "_ns")]
    + [f"datetime.datetime.{name}" for name in ("now", "utcnow", "today")]
    + ["datetime.date.today"]
)
_COUNTED = re.compile(r" (?:records|tasks|workers|logs|segments|streams|rounds|dataflows|chains|masters)\b(?!=)")
_COUNTED_LATER = re.compile(rf"%[,\d]*d{_COUNTED.pattern}")
STARTERS = frozenset({"threading.Thread", "threading.Timer", "threading.Event().wait"})
SKIPPING = frozenset({"skip", "skipif", "skipUnless", "skipIf", "xfail", "importorskip", "expectedFailure"})

# What is written differently here so that this file does not break the rules it states.
_UNFINISHED = re.compile(r"\bTO" + r"DO\b|\bFIX" + r"ME\b|\bXX" + r"X\b|NotImplemented" + r"Error")
_THIS_MACHINE = re.compile(r"(?<![\w.~}])/(?:wor[k]|roo[t]|tmp/brie[f])/")
_PACKAGE_INDEX = re.compile(
    r"pypi\.(?!org/project/)[a-z]|pythonhosted\.|repo1?\.maven|[/.@](?:artifactory|nexus|jfrog)\b"
    r"|--(?:extra-)?index[-]url|--find[-]links|--trusted[-]host|PIP_(?:EXTRA_)?INDEX[_]URL",
    re.IGNORECASE,
)


def full_folders(files: Iterable[SourceFile]) -> dict[str, int]:
    """How many modules and folders each package holds right in it, where those are too many."""
    inside: dict[str, set[str]] = {}
    for module in (file.module for file in files):
        while "." in module:
            package, _, name = module.rpartition(".")
            inside.setdefault(package, set()).add(name)
            module = package
    held = {package: len(names - {"__main__"}) for package, names in inside.items()}
    return {package: count for package, count in held.items() if count > FOLDER_ENTRIES_MAX}


def too_long(file: SourceFile) -> list[str]:
    """Lines, files and functions over their limits."""
    lines = file.text.splitlines()
    wrong = [f"{file.path}:{n} {len(line)} columns" for n, line in enumerate(lines, 1) if len(line) > LINE_COLUMNS_MAX]
    if len(lines) > FILE_LINES_MAX:
        wrong.append(f"{file.path} {len(lines)} lines")
    for function in functions(file):
        if function.lines > FUNCTION_LINES_MAX:
            wrong.append(f"{file.path}:{function.node.lineno} {function.name} {function.lines} lines")
    return wrong


def crowded_assignments(file: SourceFile) -> list[str]:
    """`self.a, self.b = a, b`: two lines that pretend to be one. To swap, or to take and clear, is another thing."""
    return [
        f"{file.path}:{node.lineno} {ast.unparse(node)}"
        for node in file.nodes
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and _crowded(node.targets[0], node.value)
    ]


def bare_counts(file: SourceFile) -> list[str]:
    """`f"{n} records"`, or a log message `"%d records"`: with one there would be `1 records`. What is asked for another
    number than 1 is not meant."""
    guarded = {
        part
        for node in file.nodes
        if isinstance(node, ast.IfExp) or (isinstance(node, ast.Call) and called_name(node) == "which")
        for part in ast.walk(node)
    }
    found = []
    for node in file.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _COUNTED_LATER.search(node.value):
            found.append(f"{file.path}:{node.lineno} {node.value[:40]}")
        for value, text in pairwise(node.values) if isinstance(node, ast.JoinedStr) and node not in guarded else ():
            said = text.value if isinstance(text, ast.Constant) else ""
            if isinstance(value, ast.FormattedValue) and isinstance(said, str) and _COUNTED.match(said):
                found.append(f"{file.path}:{value.lineno} {ast.unparse(value.value)}{said[:40]}")
    return found


def unfinished(text: str) -> list[str]:
    """Marks of work put off."""
    return _matches(_UNFINISHED, text)


def machine_paths(text: str) -> list[str]:
    """Paths that exist on the machine where this was written, and nowhere else."""
    return _matches(_THIS_MACHINE, text)


def package_indexes(text: str) -> list[str]:
    """Hosts and options that say where packages come from: that is the reader's own configuration."""
    return _matches(_PACKAGE_INDEX, text)


def time_readers(file: SourceFile) -> list[str]:
    """Uses of a clock, called or handed on."""
    return _uses(file, TIME_READERS)


def sleepers(file: SourceFile) -> list[str]:
    """Fixed sleeps."""
    return _uses(file, frozenset({"time.sleep", "asyncio.sleep"}))


def thread_starters(file: SourceFile) -> list[str]:
    """Threads and timers that are made, and waits on an event that nobody else has."""
    meant = imported_names(file)
    wrong = []
    for node in file.nodes:
        if not isinstance(node, ast.Call):
            continue
        name = resolved(called_name(node), meant)
        waited = node.func.value if isinstance(node.func, ast.Attribute) and node.func.attr == "wait" else None
        if isinstance(waited, ast.Call) and resolved(called_name(waited), meant) == "threading.Event":
            name = "threading.Event().wait"
        if name in STARTERS:
            wrong.append(f"{file.path}:{node.lineno} {name}")
    return wrong


def skippers(file: SourceFile) -> list[str]:
    """Tests that are left out, or may fail."""
    meant = imported_names(file)
    wrong = []
    for node in file.nodes:
        if isinstance(node, ast.Attribute | ast.Name) and (name := resolved(dotted(node), meant)):
            first, last = name.split(".")[0], name.split(".")[-1]
            if first in ("pytest", "unittest") and last in SKIPPING:
                wrong.append(f"{file.path}:{node.lineno} {name}")
    return wrong


def blanket_handlers(file: SourceFile) -> Iterator[tuple[str, str]]:
    """Handlers that catch everything and go on: (`module:function`, place). One that raises again swallows nothing."""
    for node in file.nodes:
        if isinstance(node, ast.ExceptHandler) and _catches_everything(node) and not _raises_again(node):
            yield f"{file.module}:{enclosing(file, node)}", f"{file.path}:{node.lineno}"
        if isinstance(node, ast.Call) and called_name(node).split(".")[-1] == "suppress" and _any_blanket(node.args):
            yield f"{file.module}:{enclosing(file, node)}", f"{file.path}:{node.lineno}"


def hand_made_races(file: SourceFile) -> Iterator[tuple[str, str]]:
    """Loops that catch VersionConflict and go round again: (`module:function`, place)."""
    for loop in file.nodes:
        if not isinstance(loop, ast.For | ast.While):
            continue
        for node in ast.walk(loop):
            if not isinstance(node, ast.ExceptHandler) or isinstance(node.body[-1], ast.Raise):
                continue
            if node.type is not None and _names(node.type, "VersionConflict"):
                yield f"{file.module}:{enclosing(file, node)}", f"{file.path}:{node.lineno}"


def kinds_asked(file: SourceFile) -> list[str]:
    """`isinstance` of one connector's configuration: an endpoint tells what a source or sink is, of any kind."""
    wrong = []
    for node in file.nodes:
        if isinstance(node, ast.Call) and called_name(node) == "isinstance":
            names = [n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)]
            wrong += [f"{file.path}:{node.lineno} {n}" for n in names if n.endswith(("SourceConfig", "SinkConfig"))]
    return wrong


def printers(file: SourceFile) -> list[str]:
    """Calls of `print`, and uses of it as a value."""
    return _uses(file, frozenset({"print", "builtins.print"}))


def wrong_exports(file: SourceFile) -> list[str]:
    """Where a package's `__all__` is not what its `__init__` re-exports and defines."""
    declared = _declared(file.tree)
    offered = _offered(file.tree)
    if declared is None:
        return [f"{file.path} re-exports {sorted(offered)} without __all__"] if offered else []
    wrong = [f"{file.path} __all__ names {name}, which is not there" for name in sorted(set(declared) - offered)]
    wrong += [f"{file.path} {name} is not in __all__" for name in sorted(offered - set(declared))]
    return wrong + [
        f"{file.path} __all__ names {n} twice" for n in sorted({n for n in declared if declared.count(n) > 1})
    ]


def _matches(pattern: re.Pattern[str], text: str) -> list[str]:
    return [f"{n}: {m.group()}" for n, line in enumerate(text.splitlines(), 1) for m in pattern.finditer(line)]


def _uses(file: SourceFile, names: frozenset[str]) -> list[str]:
    meant = imported_names(file)
    return [
        f"{file.path}:{node.lineno} {name}"
        for node in file.nodes
        if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load)
        if (name := resolved(dotted(node), meant)) in names
    ]


def _catches_everything(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or _any_blanket([handler.type])


def _any_blanket(types: Iterable[ast.expr]) -> bool:
    flat = [t for node in types for t in (node.elts if isinstance(node, ast.Tuple) else [node])]
    return any(dotted(t).split(".")[-1] in ("Exception", "BaseException") for t in flat)


def _names(kinds: ast.expr, name: str) -> bool:
    return any(dotted(kind) == name for kind in (kinds.elts if isinstance(kinds, ast.Tuple) else [kinds]))


def _raises_again(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and (last.exc is None or last.cause is not None)


def _declared(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            return [str(name) for name in ast.literal_eval(node.value)]
    return None


def _offered(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in _at_hand(tree):
        if isinstance(node, ast.ImportFrom) and _is_ours(node):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return {name for name in names if not name.startswith("_")}


def _at_hand(tree: ast.Module) -> Iterator[ast.stmt]:
    """The statements of a module; of one that imports when it is asked (`__getattr__`), what it tells a type checker of
    that, too."""
    lazy = any(isinstance(node, ast.FunctionDef) and node.name == "__getattr__" for node in tree.body)
    for node in tree.body:
        yield node
        if lazy and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from node.body


def _is_ours(node: ast.ImportFrom) -> bool:
    return node.level > 0 or (node.module or "").split(".")[0] in CODE_ROOTS


def _crowded(target: ast.expr, value: ast.expr) -> bool:
    if not (isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)):
        return False
    set_here = {ast.unparse(one) for one in target.elts if isinstance(one, ast.Attribute)}
    used = {ast.unparse(part) for one in value.elts for part in ast.walk(one) if isinstance(part, ast.Attribute)}
    return len(set_here) == len(target.elts) and not set_here & used
