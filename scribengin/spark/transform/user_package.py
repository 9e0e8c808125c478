"""The user's package: a directory of modules and static tables, imported without a trace.

Several packages may be used in one process, and each may have a `helpers.py`. So a package's modules stand in
`sys.modules` only while its code is imported or called on our side, one package at a time; and functions for Spark's
Python workers are pickled with their modules' content, not as names that a worker would look up. What a function
imports when it runs in a worker is found in the package's directory, which is on the path there.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import py4j
import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkContext, cloudpickle
from pyspark.errors import PySparkException

from scribengin.errors import PackageInvalid
from scribengin.spark.session.failures import one_line

_OURS = Path(__file__).parents[1]
_BETWEEN = (str(_OURS), *(str(Path(file).parent) for file in (importlib.__file__, pyspark.__file__, py4j.__file__)))
_importing = threading.RLock()


class UserPackage:
    """The modules under `directory` (None: only what is installed). May be used by several threads."""

    def __init__(self, directory: Path | None) -> None:
        """Raises PackageInvalid when the directory does not exist."""
        if directory is not None and not directory.is_dir():
            raise PackageInvalid(f"the package {directory} is not a directory: set `package` to where the modules are")
        self._directory = directory.resolve() if directory is not None else None
        self._modules: dict[str, ModuleType] = {}

    def function(self, name: str) -> Callable[..., Any]:
        """Import `module:function`. Raises PackageInvalid, beginning with the traceback when their module raises."""
        module_name, _, function_name = name.partition(":")
        with self.active():
            module = self._import(module_name)
        found = getattr(module, function_name, None)
        if not callable(found):
            raise _no_function(module_name, function_name, (n for n, value in vars(module).items() if callable(value)))
        return found  # type: ignore[no-any-return]  # getattr; it is callable, which is all that is known of it

    def refuse_missing(self, name: str) -> None:
        """Raise PackageInvalid for what can be told of `module:function` without running any of it: no such module, a
        module that is no Python, no such function in it."""
        module_name, _, function_name = name.partition(":")
        source = self._source(module_name)
        if source is None:
            if not self._may_be_installed(module_name):
                raise self._no_module(module_name)
            return
        try:
            tree = ast.parse(source.read_bytes(), filename=str(source))
        except (SyntaxError, ValueError) as error:
            raise _not_importable(module_name, error) from error
        functions, all_told = _bound_names(tree)
        if all_told and function_name not in functions:
            raise _no_function(module_name, function_name, functions)

    def _source(self, module: str) -> Path | None:
        """The file of a module of this package. Python's own modules and ours win over it."""
        top = module.partition(".")[0]
        if self._directory is None or top not in _top_level_names(self._directory):
            return None
        path = self._directory.joinpath(*module.split("."))
        return next((p for p in (path / "__init__.py", path.with_name(f"{path.name}.py")) if p.is_file()), None)

    def _may_be_installed(self, module: str) -> bool:
        """Whether an import may find what is no source of this package's: its extension, or what is installed."""
        top = module.partition(".")[0]
        if self._directory is not None and top in _top_level_names(self._directory):
            return False
        if self._directory is not None and any(self._directory.glob(f"{top}.*")):
            return True
        try:
            return importlib.util.find_spec(top) is not None
        except ValueError:  # it is no name of a module, or one of this process's own
            return True

    def _no_module(self, name: str) -> PackageInvalid:
        where = f"the package {self._directory}" if self._directory else "the installed packages"
        return PackageInvalid(f"there is no module '{name}' in {where}: correct `transformation`")

    def file(self, name: str) -> str:
        """The `file:` URL of a file of the package, as Spark's readers take it. Raises PackageInvalid."""
        if self._directory is None:
            raise PackageInvalid(f"the dataflow has no package, so there is no '{name}': set `package`")
        path = (self._directory / name).resolve()
        if not path.is_relative_to(self._directory) or not path.exists():
            raise PackageInvalid(f"the package {self._directory} holds no '{name}': put the file there")
        return f"file://{path}"  # not percent-encoded: Hadoop takes each character as it is

    @contextmanager
    def active(self) -> Iterator[None]:
        """While the block lasts, imports find this package's modules. One package at a time: others wait."""
        if self._directory is None:
            yield
            return
        with _importing:
            _let_workers_import(self._directory)
            hidden = self._enter(self._directory)
            try:
                yield
            finally:
                self._leave(self._directory, hidden)

    def _enter(self, directory: Path) -> dict[str, ModuleType]:
        """Put this package's modules where imports look, and return those of the same names that stood there."""
        names = _top_level_names(directory)
        hidden = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in names}
        for name in hidden:
            del sys.modules[name]
        sys.modules.update(self._modules)
        sys.path.insert(0, str(directory))
        importlib.invalidate_caches()
        for module in self._modules.values():
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # vendored, without types
        return hidden

    def _leave(self, directory: Path, hidden: dict[str, ModuleType]) -> None:
        for module in self._modules.values():
            cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]  # as above
        sys.path.remove(str(directory))
        names = _top_level_names(directory)
        self._modules = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in names}
        for name in self._modules:
            del sys.modules[name]
        sys.modules.update(hidden)

    def _import(self, name: str) -> ModuleType:
        try:
            return importlib.import_module(name)
        except Exception as error:
            if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
                raise self._no_module(name) from error
            raise _not_importable(name, error) from error


def _not_importable(module: str, error: Exception) -> PackageInvalid:
    return PackageInvalid(f"{user_traceback(error)}\nmodule '{module}' cannot be imported: {one_line(error)}")


def _no_function(module: str, function: str, names: Iterable[str]) -> PackageInvalid:
    there = ", ".join(sorted(name for name in names if not name.startswith("_")))
    return PackageInvalid(
        f"module '{module}' has no function '{function}' (it has {there or 'none'}): "
        "correct `transformation` or the module"
    )


def _bound_names(tree: ast.Module) -> tuple[set[str], bool]:
    """The functions that a module defines at its top; and whether nothing else can be called so: what it imports or
    assigns may be a function, too."""
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    plain = (ast.FunctionDef, ast.ClassDef, ast.Expr, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            functions |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            functions |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    return functions, "*" not in functions and all(isinstance(node, plain) for node in tree.body)


def user_traceback(error: BaseException) -> str:
    """The traceback of `error` as its author wants it: the frames of their files, not those of import or Spark."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_ours(frame.filename)]
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames)] if frames else []
    # Spark's exceptions carry a plan and the JVM's stack; their one line is what tells.
    said = (
        [one_line(error)] if isinstance(error, Py4JError | PySparkException) else traceback.format_exception_only(error)
    )
    return "".join([*lines, *said]).rstrip()


def _is_ours(filename: str) -> bool:
    """Whether a frame belongs to what stands between us and the user's code."""
    return filename.startswith(("<frozen", *_BETWEEN))


def _top_level_names(directory: Path) -> set[str]:
    """What can be imported from `directory`. Python's own modules and ours win over it, as they do for a script."""
    names = {entry.stem for entry in directory.glob("*.py")} | {entry.parent.name for entry in directory.glob("*/*.py")}
    return names - sys.stdlib_module_names - {"scribengin", "pyspark"}


def _let_workers_import(directory: Path) -> None:
    """Functions made from now on have `directory` on their workers' path.

    `addPyFile` does this for files only. The list it writes to takes directories as well: workers join each entry to
    Spark's own directory of files, which leaves an absolute path as it is.
    """
    context = SparkContext._active_spark_context
    includes = context._python_includes if context is not None else None
    if includes is not None and str(directory) not in includes:
        includes.append(str(directory))
