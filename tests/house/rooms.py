"""Who may import whom: the one table, and the functions that hold a file against it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from tests.house.allowed import INSIDE_LOG, INSIDE_REGISTRY, UPWARD
from tests.house.tree import CODE_ROOTS, SourceFile, modules_that_ship, shipped_files

# Room -> the rooms right below it. A room may import itself and everything below it, at any depth; nothing else.
# A room within a room is a room of its own; what is named nowhere belongs to the nearest folder that is.
BELOW: dict[str, frozenset[str]] = {
    "scribengin_dev": frozenset({"scribengin_tools", "testing"}),
    "scribengin_tools": frozenset({"scribengin_tools.cli"}),
    "scribengin_tools.cli": frozenset(
        {"scribengin_tools.logs", "scribengin_tools.monitor", "scribengin_tools.sandbox", "scribengin_tools.web"}
    ),
    "scribengin_tools.web": frozenset({"scribengin_tools.output"}),
    "scribengin_tools.monitor": frozenset({"scribengin_tools.output"}),
    "scribengin_tools.logs": frozenset({"scribengin_tools.rendering"}),
    "scribengin_tools.output": frozenset({"scribengin_tools.rendering"}),
    "scribengin_tools.rendering": frozenset({"scribengin_tools.terminal", "operations", "proxy"}),
    "scribengin_tools.terminal": frozenset({"base"}),
    "scribengin_tools.sandbox": frozenset({"operations", "scribengin_registry.embedded"}),
    "testing": frozenset({"master", "worker", "operations"}),
    "worker": frozenset({"monitoring"}),
    "master": frozenset({"monitoring"}),
    "operations": frozenset({"operations.registry", "operations.verify"}),
    "operations.registry": frozenset({"operations.chain"}),
    "operations.verify": frozenset({"operations.chain"}),
    "operations.chain": frozenset({"operations.editing", "operations.rewind", "operations.delete"}),
    "operations.editing": frozenset({"operations.lifecycle"}),
    "operations.rewind": frozenset({"operations.lifecycle"}),
    "operations.delete": frozenset({"operations.lifecycle"}),
    "operations.lifecycle": frozenset({"operations.submit"}),
    "operations.submit": frozenset({"operations.state"}),
    "operations.state": frozenset({"monitoring"}),
    "monitoring": frozenset({"dataflow"}),
    "dataflow": frozenset({"spark", "spark.log_format", "launcher"}),
    "spark.log_format": frozenset({"spark.transform"}),
    "spark": frozenset({"spark.transform"}),
    "spark.transform": frozenset({"spark.session", "spark.arrow_files"}),
    "spark.session": frozenset({"connectors", "spark.worker_errors", "spark.python_daemon"}),
    "spark.arrow_files": frozenset({"spark.worker_errors"}),
    "spark.worker_errors": frozenset({"base"}),
    "spark.python_daemon": frozenset({"base"}),
    "launcher": frozenset({"base"}),
    "connectors": frozenset({"log.clients", "dafka", "proxy"}),
    "dafka": frozenset({"log"}),
    "proxy": frozenset({"log"}),
    "log.clients": frozenset({"log"}),
    "log": frozenset({"log.inspect"}),
    "log.inspect": frozenset({"log.retention", "log.write"}),
    "log.retention": frozenset({"log.read"}),
    "log.read": frozenset({"log.scan"}),
    "log.write": frozenset({"log.scan"}),
    "log.scan": frozenset({"log.metadata"}),
    "log.metadata": frozenset({"log.store"}),
    "log.store": frozenset({"log.format"}),
    "log.format": frozenset({"log.config", "log.metrics", "filesystems"}),
    "log.config": frozenset({"base"}),
    "log.metrics": frozenset({"base"}),
    "filesystems": frozenset({"base"}),
    "base": frozenset({"errors", "scribengin_registry.java", "scribengin_registry.opening"}),
    "errors": frozenset({"scribengin_registry"}),
    "scribengin_registry.embedded": frozenset({"scribengin_registry.java"}),
    "scribengin_registry.opening": frozenset({"scribengin_registry.zookeeper"}),
    "scribengin_registry.zookeeper": frozenset({"scribengin_registry"}),
    "scribengin_registry.java": frozenset({"scribengin_registry"}),
    "scribengin_registry": frozenset(),
}

# A client of a system that not everybody has (or a part of one) -> the modules that may import it.
CLIENTS: dict[str, tuple[str, ...]] = {
    "kazoo": ("scribengin_registry",),
    "fsspec": ("scribengin.filesystems",),
    "hdfs_native": ("scribengin.filesystems.hdfs",),
    "pyspark": (
        "scribengin.spark",
        "scribengin.testing",
        "scribengin_dev.bench.clients.spark",
        "scribengin_dev.bench.nexmark.shipped.processing_time",
    ),
    "pyflink": ("scribengin_dev.bench.clients.flink",),
    "py4j": ("scribengin.spark", "scribengin.testing"),
    "psutil": ("scribengin.launcher",),
    "docker": ("scribengin_dev.servers.containers",),
    "testcontainers": ("scribengin_dev.servers.containers",),
    "crc32c": ("scribengin.log",),
    "textual": ("scribengin_tools.monitor",),
    "anyio": ("scribengin_tools.web",),
    "starlette": ("scribengin_tools.web",),
    "uvicorn": ("scribengin_tools.web",),
    "prometheus_client": ("scribengin.log", "scribengin.monitoring.metrics", "scribengin_dev.reference.metrics"),
    "jpype": ("scribengin.base.jvm",),
    "skein": ("scribengin.launcher.skein",),
    "grpc": ("scribengin.launcher.skein",),
    "confluent_kafka": (
        "scribengin.connectors.kafka",
        "scribengin.testing.memory.kafka",
        "scribengin.testing.simulation.streams.kafka",
        "scribengin.testing.conformance.kafka",
        "scribengin_dev.servers.kafka_cluster",
    ),
    "zmq": ("scribengin.dafka",),
    "greenlet": ("scribengin.testing.simulation",),
    "pyarrow.flight": ("scribengin.proxy.server", "scribengin.proxy.client.transport"),
}

LOG = "scribengin.log"
LOG_FACES = ("scribengin.log.clients", "scribengin.log.inspect", "scribengin.log.read", "scribengin.log.metrics")
"""What of the log store others may import, beside what it says itself."""


DRAWING = "scribengin_tools.rendering"
ACTING = tuple(
    f"scribengin.operations.{name}"
    for name in ("lifecycle", "editing", "restart", "chain.lifecycle", "chain.submit", "submit.submit")
)
"""What changes dataflows, and nothing that draws may import."""


@cache
def room(module: str) -> str:
    """The room that a module of ours stands in."""
    parts = module.split(".")
    if parts[0] == "scribengin":
        parts = parts[1:]
    return next((name for name in _around(".".join(parts)) if name in BELOW), "base")


@cache
def everything_below(name: str) -> frozenset[str]:
    """The rooms that `name` may import, itself included."""
    return frozenset({name}).union(*(everything_below(below) for below in BELOW[name]))


def drawing() -> str:
    """The table as ARCHITECTURE.md shows it: a line a room, what lies right below it, and how its docstring begins."""
    modules = {file.module.removeprefix("scribengin."): file for file in shipped_files()}
    below = {name: ", ".join(sorted(rooms)) for name, rooms in BELOW.items()}
    width, arrows = max(map(len, below)), max(map(len, below.values()))
    docs = {name: " ".join((ast.get_docstring(modules[name].tree) or "").split()) for name in below}
    said = {name: re.split(r"\.(?: |$)", doc)[0] for name, doc in docs.items()}
    lines = [f"{name:{width}}  -> {below[name]:{arrows}}  {said[name]}" for name in below]
    return "\n".join(line.rstrip() for line in lines)


@cache
def imported_modules(file: SourceFile) -> tuple[tuple[str, int], ...]:
    """What a file imports, and where. Of `from a import b`, both `a` and `a.b`: `b` may be a module."""
    return tuple(_imported_modules(file))


def _imported_modules(file: SourceFile) -> Iterator[tuple[str, int]]:
    for node in file.nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(file, node)
            yield base, node.lineno
            yield from ((f"{base}.{alias.name}", node.lineno) for alias in node.names)


def upward_imports(file: SourceFile) -> list[str]:
    """Imports of our own that do not go down."""
    allowed = everything_below(room(file.module))
    if file.module in UPWARD:
        allowed |= {UPWARD[file.module][0]}
    ours = [(module, line) for module, line in imported_modules(file) if module.split(".")[0] in CODE_ROOTS]
    return sorted(
        {f"{file.path}:{line} {room(file.module)} imports {room(m)}" for m, line in ours if room(m) not in allowed}
    )


def circles(files: Iterable[SourceFile]) -> list[str]:
    """Imports between folders side by side, at any depth, that lead back to where they begin."""
    known = {file.module: file for file in files}
    arrows: dict[str, set[str]] = {}
    for file in known.values():
        for imported, _line in imported_modules(file):
            target = next((name for name in _around(imported) if name in known), None)
            if target is not None:
                one, other = _side_by_side(file.module, target, known)
                if one != other:
                    arrows.setdefault(one, set()).add(other)
    return sorted(
        f"{one} imports {other} in a circle"
        for one, to in arrows.items()
        for other in to
        if one in _reached(other, arrows)
    )


def _side_by_side(module: str, target: str, known: Mapping[str, SourceFile]) -> tuple[str, str]:
    """The folders of one folder in which two modules stand; "", "" where one of them stands in no such folder."""
    one, other = module.split("."), target.split(".")
    same = next((n for n, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), -1)
    if same < 1:
        return "", ""
    folders = ".".join(one[: same + 1]), ".".join(other[: same + 1])
    return folders if all(known[name].path.endswith("__init__.py") for name in folders) else ("", "")


def _reached(start: str, arrows: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    ahead = [start]
    while ahead:
        new = arrows.get(ahead.pop(), set()) - seen
        seen |= new
        ahead.extend(new)
    return seen


@cache
def _around(module: str) -> tuple[str, ...]:
    parts = module.split(".")
    return tuple(".".join(parts[:n]) for n in range(len(parts), 0, -1))


def behind_the_registry(file: SourceFile) -> list[str]:
    """What a file outside of the registry imports of it beside its top modules and `java`."""
    if file.module.startswith("scribengin_registry") or any(_is_in(file.module, place) for place in INSIDE_REGISTRY):
        return []
    found = {
        f"{file.path}:{line} imports {module}"
        for module, line in imported_modules(file)
        if _is_in(module, "scribengin_registry")
        and module.count(".") > 1
        and not _is_in(module, "scribengin_registry.java")
        and _is_module(module)
    }
    return sorted(found)


def past_the_door(file: SourceFile) -> list[str]:
    """Imports of what stands behind `scribengin_registry.opening`, by who is neither part nor test of the registry."""
    if file.module.startswith(("scribengin_registry", "tests.unit.registry")):
        return []
    found = {line for module, line in imported_modules(file) if module.startswith("scribengin_registry.zookeeper")}
    return [f"{file.path}:{line} connects past scribengin_registry.opening" for line in sorted(found)]


def behind_the_face(file: SourceFile) -> list[str]:
    """What a file outside of the log store imports of it that is not meant for others."""
    if _is_in(file.module, LOG) or any(_is_in(file.module, place) for place in INSIDE_LOG):
        return []
    found = {
        f"{file.path}:{line} imports {module}"
        for module, line in imported_modules(file)
        if _is_in(module, LOG)
        and module.count(".") > 1
        and not any(_is_in(module, face) for face in LOG_FACES)
        and _is_module(module)
    }
    return sorted(found)


def stray_clients(file: SourceFile) -> list[str]:
    """Imports of a system's client outside of its place."""
    found = {
        f"{file.path}:{line} imports {client}"
        for module, line in imported_modules(file)
        for client in _around(module)
        if (places := CLIENTS.get(client)) and not any(_is_in(file.module, place) for place in places)
    }
    return sorted(found)


def _absolute(file: SourceFile, node: ast.ImportFrom) -> str:
    if node.level == 0:
        return node.module or ""
    package = file.module.split(".") if file.is_package else file.module.split(".")[:-1]
    parts = package[: len(package) - node.level + 1]
    return ".".join([*parts, node.module] if node.module else parts)


def _is_module(name: str) -> bool:
    """Whether that is a module, and no name that stands in one."""
    return name in modules_that_ship()


def _is_in(module: str, place: str) -> bool:
    return module == place or module.startswith(f"{place}.")


if __name__ == "__main__":
    print(drawing())
