"""Who may import whom: the one table, and the functions that hold a file against it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.house.tree import CODE_ROOTS, SourceFile

# Room -> the rooms right below it. A room may import itself and everything below it, at any depth; nothing else.
BELOW: dict[str, frozenset[str]] = {
    "scribengin_tools": frozenset({"chain", "worker", "testing"}),
    "testing": frozenset({"master", "worker"}),
    "chain": frozenset({"master"}),
    "master": frozenset({"dataflow"}),
    "worker": frozenset({"dataflow"}),
    "dataflow": frozenset({"spark"}),
    "spark": frozenset({"connectors"}),  # the session reads and writes what the contracts say; no connector knows Spark
    "connectors": frozenset({"log", "launcher"}),
    "log": frozenset({"base"}),
    "launcher": frozenset({"base"}),
    "base": frozenset(
        {"scribengin_registry"}
    ),  # the modules right under scribengin: model, errors, naming, clock, effect, commit
    "scribengin_registry": frozenset(),
}

# A client of a system that not everybody has -> the modules that may import it.
CLIENTS: dict[str, tuple[str, ...]] = {
    "kazoo": ("scribengin_registry",),
    "fsspec": ("scribengin.connectors.files",),
    "hdfs_native": ("scribengin.connectors.files.hdfs",),
    "pyspark": ("scribengin.spark", "scribengin.testing", "scribengin_tools.bench.client_spark"),
    "py4j": ("scribengin.spark", "scribengin.testing"),
    "psutil": ("scribengin.launcher",),
    "docker": ("scribengin.testing.servers.containers",),
    "testcontainers": ("scribengin.testing.servers.containers",),
    "crc32c": ("scribengin.log",),
    "textual": ("scribengin_tools.monitor",),
    "starlette": ("scribengin_tools.web",),
    "uvicorn": ("scribengin_tools.web",),
    "prometheus_client": ("scribengin.log", "scribengin.dataflow.metrics"),
    "jpype": ("scribengin.launcher.yarn.jvm", "scribengin_tools.bench"),
    "skein": ("scribengin.launcher.skein",),
    "grpc": ("scribengin.launcher.skein",),
    "confluent_kafka": ("scribengin.connectors.kafka",),
}


def room(module: str) -> str:
    """The room that a module of ours stands in."""
    parts = module.split(".")
    if parts[0] != "scribengin":
        return parts[0]
    return parts[1] if len(parts) > 1 and parts[1] in BELOW else "base"


def everything_below(name: str) -> frozenset[str]:
    """The rooms that `name` may import, itself included."""
    return frozenset({name}).union(*(everything_below(below) for below in BELOW[name]))


def imported_modules(file: SourceFile) -> Iterator[tuple[str, int]]:
    """What a file imports, and where. Of `from a import b`, both `a` and `a.b`: `b` may be a module."""
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(file, node)
            yield base, node.lineno
            yield from ((f"{base}.{alias.name}", node.lineno) for alias in node.names)


def upward_imports(file: SourceFile) -> list[str]:
    """Imports of our own that do not go down."""
    allowed = everything_below(room(file.module))
    ours = [(module, line) for module, line in imported_modules(file) if module.split(".")[0] in CODE_ROOTS]
    return sorted(
        {f"{file.path}:{line} {room(file.module)} imports {room(m)}" for m, line in ours if room(m) not in allowed}
    )


def stray_clients(file: SourceFile) -> list[str]:
    """Imports of a system's client outside of its place."""
    found = {
        f"{file.path}:{line} imports {module.split('.')[0]}"
        for module, line in imported_modules(file)
        if (places := CLIENTS.get(module.split(".")[0])) and not any(_is_in(file.module, place) for place in places)
    }
    return sorted(found)


def _absolute(file: SourceFile, node: ast.ImportFrom) -> str:
    if node.level == 0:
        return node.module or ""
    package = file.module.split(".") if file.is_package else file.module.split(".")[:-1]
    parts = package[: len(package) - node.level + 1]
    return ".".join([*parts, node.module] if node.module else parts)


def _is_in(module: str, place: str) -> bool:
    return module == place or module.startswith(f"{place}.")
