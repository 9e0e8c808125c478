"""Which calls change the world outside of the process: files, directories, the registry, Kafka; told from syntax."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from tests.house.tree import SourceFile, dotted, imported_names, resolved

# fmt: off
_OS = frozenset({
    "write", "pwrite", "writev", "pwritev", "sendfile", "copy_file_range", "fsync", "fdatasync", "sync", "rename",
    "renames", "replace", "unlink", "remove", "rmdir", "removedirs", "truncate", "ftruncate", "posix_fallocate",
    "mkdir", "makedirs", "mkfifo", "link", "symlink", "chmod", "utime",
})
# fmt: on
_FUNCTIONS = {
    *(f"os.{name}" for name in _OS),
    *(f"shutil.{name}" for name in ("rmtree", "move", "copy", "copy2", "copyfile", "copyfileobj", "copytree")),
    *(f"tempfile.{name}" for name in ("mkstemp", "mkdtemp", "NamedTemporaryFile", "TemporaryDirectory")),
    "pyarrow.output_stream",
    "pyarrow.parquet.write_table",
    "scribengin.base.commit_log.fence_commit_log",  # its failpoint is named where it is called
}
_OPENERS = frozenset({"open", "io.open", "os.fdopen", "gzip.open", "pyarrow.OSFile"})
_PATH_METHODS = frozenset(
    {"write_text", "write_bytes", "touch", "unlink", "rmdir", "mkdir", "symlink_to", "hardlink_to"}
)
_PATH_MOVES = frozenset({"rename", "replace"})
_REGISTRY_METHODS = frozenset({"commit", "create", "set", "delete"})
# fmt: off
_FILE_SYSTEM_METHODS = frozenset({
    "mv", "move", "rename", "rm", "rm_file", "rmdir", "delete", "makedirs", "makedir", "mkdir", "mkdirs", "pipe",
    "pipe_file", "touch", "put", "put_file", "cp", "copy", "cp_file", "write_bytes", "write_text",
})
# fmt: on
# fmt: off
_KAFKA_METHODS = frozenset({
    "abort_transaction", "commit_transaction", "create_topics", "init_transactions", "send_offsets_to_transaction",
})
# fmt: on
_HANDLE_METHODS = frozenset({"write", "writelines", "flush", "truncate"})
_MODE_LETTERS = frozenset("rwaxbt+")
_CREATING_FLAGS = frozenset({"O_CREAT", "O_TRUNC", "O_TMPFILE"})


class Outside:
    """Judges the calls of one file."""

    def __init__(self, file: SourceFile) -> None:
        self._meant = imported_names(file)
        self._assigned = _assigned(file.nodes)
        self._handles = {
            ast.unparse(target)
            for value, target in _bindings(file.nodes)
            if isinstance(value, ast.Call) and self._opens_for_writing(value)
        }

    def changes(self, call: ast.Call) -> str:
        """What a call does to the outside world, as it is written (`os.fsync`), or "" when it does nothing."""
        name = resolved(dotted(call.func), self._meant)
        if name in _FUNCTIONS or self._opens_for_writing(call) or (name == "os.open" and self._creates(call)):
            return name or ast.unparse(call.func)
        if isinstance(call.func, ast.Attribute) and self._method_changes(call, call.func):
            return ast.unparse(call.func)
        return ""

    def _method_changes(self, call: ast.Call, func: ast.Attribute) -> bool:
        receiver, method = _last_name(func.value), func.attr
        if method in _KAFKA_METHODS:
            return True
        if receiver.endswith("registry"):
            return method in _REGISTRY_METHODS
        if _is_file_system(receiver):
            return method in _FILE_SYSTEM_METHODS
        if method in _HANDLE_METHODS and ast.unparse(func.value) in self._handles:
            return True
        if method in _PATH_MOVES and len(call.args) == 1 and not call.keywords:
            return dotted(func.value).split(".")[0] not in self._meant
        return method in _PATH_METHODS

    def _opens_for_writing(self, call: ast.Call) -> bool:
        name = resolved(dotted(call.func), self._meant)
        keyword = _keyword(call, "mode")
        if name in _OPENERS:
            return _may_write(keyword or call.args[1:2])
        if not isinstance(call.func, ast.Attribute) or call.func.attr != "open" or name == "os.open":
            return False
        if _is_file_system(_last_name(call.func.value)):
            return _may_write(keyword or call.args[1:2])
        literal = [node for node in [*keyword, *call.args[:1]] if isinstance(node, ast.Constant)]
        return any(_may_write([node]) for node in literal if set(str(node.value)) <= _MODE_LETTERS)

    def _creates(self, call: ast.Call) -> bool:
        return any(self._may_create(flags, depth=0) for flags in _keyword(call, "flags") or call.args[1:2])

    def _may_create(self, flags: ast.expr, depth: int) -> bool:
        for node in ast.walk(flags):
            if isinstance(node, ast.Attribute) and node.attr in _CREATING_FLAGS:
                return True
            if isinstance(node, ast.Name) and not self._is_harmless(node.id, depth):
                return True
        return False

    def _is_harmless(self, name: str, depth: int) -> bool:
        meaning = self._meant.get(name, "")
        if meaning == "os" or meaning.startswith("os.O_"):
            return meaning.removeprefix("os.") not in _CREATING_FLAGS
        values = self._assigned.get(name, [])
        return bool(values) and depth < 3 and not any(self._may_create(value, depth + 1) for value in values)


def _assigned(nodes: Iterable[ast.AST]) -> dict[str, list[ast.expr]]:
    values: dict[str, list[ast.expr]] = {}
    for value, target in _bindings(nodes):
        if isinstance(target, ast.Name):
            values.setdefault(target.id, []).append(value)
    return values


def _bindings(nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Every value that gets a name, with what it is bound to."""
    for node in nodes:
        if isinstance(node, ast.Assign):
            yield from ((node.value, target) for target in node.targets)
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and node.value is not None:
            yield node.value, node.target
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            yield node.context_expr, node.optional_vars


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        return _last_name(node.func)
    if isinstance(node, ast.Attribute):
        return node.attr.lower()
    return node.id.lower() if isinstance(node, ast.Name) else ""


def _is_file_system(receiver: str) -> bool:
    return receiver == "fs" or receiver.endswith(("_fs", "filesystem", "file_system"))


def _keyword(call: ast.Call, name: str) -> list[ast.expr]:
    return [keyword.value for keyword in call.keywords if keyword.arg == name]


def _may_write(modes: list[ast.expr]) -> bool:
    """Without a mode a file is opened for reading; a mode that is no literal may be anything."""
    return any(not isinstance(mode, ast.Constant) or set(str(mode.value)) & set("wax+") for mode in modes)
