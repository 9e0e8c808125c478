"""The tree as the house rules see it: every file of ours, parsed once."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE_ROOTS = {
    "scribengin": ".",
    "scribengin_registry": "registry",
    "scribengin_tools": "tools",
    "scribengin_dev": "tools",
}
"""Import name -> the folder that holds it."""

_NOT_OURS = frozenset({"__pycache__", "build", "dist", "var", "spark-warehouse", "metastore_db", "node_modules"})
_DOT_FOLDERS_OF_OURS = frozenset({".ci", ".github"})
_TEXT = frozenset({".py", ".md", ".toml", ".yaml", ".yml", ".txt", ".json", ".csv", ".sh", ".cfg", ".ini", ""})


@dataclass(frozen=True, eq=False)
class SourceFile:
    """A Python file: its path from the root, its module name, its text and its syntax tree."""

    path: str
    module: str
    text: str
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        """Whether this is a package's `__init__.py`."""
        return self.path.endswith("__init__.py")

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """The whole tree, as `ast.walk` goes through it: most rules do."""
        return tuple(ast.walk(self.tree))


@dataclass(frozen=True, slots=True)
class Function:
    """A function or method with its name as seen from the module: `Writer.close`, `outer.inner`."""

    name: str
    node: ast.FunctionDef | ast.AsyncFunctionDef

    @property
    def lines(self) -> int:
        """How many lines it takes, decorators not counted."""
        return (self.node.end_lineno or self.node.lineno) - self.node.lineno + 1


def parse(text: str, module: str = "example", path: str = "example.py") -> SourceFile:
    """A source file from its text; the rules' own tests hand in small ones."""
    return SourceFile(path, module, text, ast.parse(text, filename=path))


@cache
def text_files() -> tuple[Path, ...]:
    """Every text file of the project: nothing fetched, built or cached."""
    return tuple(path for path in _walk(ROOT) if path.suffix in _TEXT)


def python_files() -> list[SourceFile]:
    """Every Python file of the project."""
    return _source_files([path for path in text_files() if path.suffix == ".py"])


@cache
def modules_that_ship() -> frozenset[str]:
    """The names of what `shipped_files` are."""
    return frozenset(file.module for file in shipped_files())


def shipped_files(text: str = "") -> list[SourceFile]:
    """What the wheel installs, and scribengin_dev: the files with that text. Nothing else is parsed, as the crash tests
    ask for it, too, some while tests are collected."""
    paths = [path for path in text_files() if path.suffix == ".py"]
    modules = {path: _module_name(path.relative_to(ROOT)) for path in paths}
    shipped = [path for path, module in modules.items() if module.split(".")[0] in CODE_ROOTS]
    return _source_files([path for path in shipped if not text or text in _text(path)])


def files_of_tests() -> list[SourceFile]:
    """What stands under tests/, these rules included."""
    return [file for file in python_files() if file.path.startswith("tests/")]


def expect_none(wrong: Iterable[str]) -> None:
    """Fail with everything that is wrong, a line each; pytest would cut the list short."""
    lines = list(wrong)
    assert not lines, "\n" + "\n".join(lines)


def files_that_run() -> list[SourceFile]:
    """Everything but the tests: what ships, the ready dataflows, tools/dev.py."""
    return [file for file in python_files() if not file.path.startswith("tests/")]


@cache
def functions(file: SourceFile) -> tuple[Function, ...]:
    """Every function of a file, also those inside of classes and functions."""
    return tuple(_functions(file.tree, ""))


def enclosing(file: SourceFile, node: ast.AST) -> str:
    """The name of the innermost function or class around `node`, "" at the module's own level."""
    line = getattr(node, "lineno", 0)
    around = [name for name, first, last in _scopes(file) if first <= line <= last]
    return around[-1] if around else ""


def called_name(call: ast.Call) -> str:
    """What is called, as it is written: `os.fsync`, `self._registry.commit`, "" when that is no plain name."""
    return dotted(call.func)


def dotted(node: ast.expr) -> str:
    """`a.b.c` of a chain of names, "" of anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (base := dotted(node.value)):
        return f"{base}.{node.attr}"
    return ""


@cache
def imported_names(file: SourceFile) -> dict[str, str]:
    """What a name of this file stands for: {"fsync": "os.fsync", "pa": "pyarrow"}."""
    meant: dict[str, str] = {}
    for node in file.nodes:
        if isinstance(node, ast.Import):
            meant |= {alias.asname or alias.name.split(".")[0]: _bound(alias) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            meant |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return meant


def resolved(name: str, meant: dict[str, str]) -> str:
    """`name` as seen from outside of the file: its first part replaced by what was imported under it."""
    first, dot, rest = name.partition(".")
    return meant.get(first, first) + dot + rest


def _bound(alias: ast.alias) -> str:
    return alias.name if alias.asname else alias.name.split(".")[0]


def _functions(node: ast.AST, prefix: str) -> Iterator[Function]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Function(prefix + child.name, child)
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        else:
            yield from _functions(child, prefix)


def _scopes(file: SourceFile) -> Iterator[tuple[str, int, int]]:
    def below(node: ast.AST, prefix: str) -> Iterator[tuple[str, int, int]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = prefix + child.name
                yield name, child.lineno, child.end_lineno or child.lineno
                yield from below(child, f"{name}.")
            else:
                yield from below(child, prefix)

    return below(file.tree, "")


def _walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_symlink() or path.name in _NOT_OURS or path.name.endswith(".egg-info"):
            continue
        if path.is_dir():
            if not path.name.startswith(".") or path.name in _DOT_FOLDERS_OF_OURS:
                yield from _walk(path)
        elif path.is_file():
            yield path


def _source_files(paths: list[Path]) -> list[SourceFile]:
    """The trees are a million objects that stay: no garbage is looked for among them, now or later."""
    before = _source_file.cache_info().currsize
    gc.disable()
    try:
        files = [_source_file(path) for path in paths]
        if _source_file.cache_info().currsize > before:
            gc.freeze()  # before it is looked again: the first object that is made then has all of them looked through
        return files
    finally:
        gc.enable()


@cache
def _source_file(path: Path) -> SourceFile:
    relative = path.relative_to(ROOT)
    return parse(_text(path), _module_name(relative), relative.as_posix())


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _module_name(relative: Path) -> str:
    parts = list(relative.with_suffix("").parts)
    if parts[0] in ("registry", "tools") and len(parts) > 2:
        parts = parts[1:]
    if parts[-1] == "__init__":
        parts = parts[:-1]
    return ".".join(parts) or "__init__"
