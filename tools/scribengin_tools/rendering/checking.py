"""Checking a dataflow before it runs, and showing what was found."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry.descriptors import TaskDescriptor
from scribengin.operations.submit.explain import Explanation
from scribengin.spark.transform.spec import StateOperator
from scribengin_tools.rendering.text import facts, table

_TASKS_SHOWN_MAX = 20
_NAMES_SHOWN_MAX = 6
_GROWS = "nothing: it grows for ever"
_UNBOUNDED = {"processor": "its own code alone"}


def shown(found: Explanation, config: DataflowConfig) -> RenderableType:
    """What a dataflow would be, for a terminal. Its problems are not part of it."""
    said = [("dataflow", found.dataflow), ("transformation", _transformation(config))]
    if found.memory_note:
        said.append(("a worker", f"{found.memory_mb:,} MB, {found.memory_note}"))
    said += [("comes again", f"what goes to {sink}, by {source}") for sink, source in found.comes_again.items()]
    parts: list[RenderableType] = [facts(said)]
    if found.sources:
        rows = [(name, len(streams), _with_key(name, streams, config)) for name, streams in found.sources.items()]
        parts += [Text(), table(("SOURCE", ">STREAMS", ""), rows)]
    if found.sinks:
        sinks = [(n, _with_role(n, r, config), _guarantee(found, n)) for n, r in found.sinks.items()]
        parts += [Text(), table(("SINK", "WRITES", "GUARANTEE"), sinks)]
    if found.tasks:
        parts += [Text(), _tasks(found.tasks)]
    columns = [(f"from {name}", _spaced(ddl)) for name, ddl in found.inputs.items()]
    columns += [(f"to {name}", _spaced(ddl)) for name, ddl in found.outputs.items()]
    if columns:
        parts += [Text(), table(("COLUMNS", ""), columns)]
    if found.operators:
        parts += [Text(), facts((("operators", ", ".join(found.operators)),))]
    if found.state:
        parts += [Text(), _state(found.state)]
    return Group(*parts)


def _transformation(config: DataflowConfig) -> str:
    if config.transformation is None:
        return "SQL"
    return f"{config.transformation} in {Path(config.package or '.')}"


def _guarantee(found: Explanation, sink: str) -> str:
    guarantee_note = found.guarantee_note.get(sink)
    return f"{found.guarantees[sink]} ({guarantee_note})" if guarantee_note else found.guarantees[sink]


def _with_key(source: str, streams: Sequence[str], config: DataflowConfig) -> str:
    division = config.sources[source].division
    return _names(streams) + ("" if division is None else f"; divided by {', '.join(division.columns)}")


def _with_role(sink: str, resource: str, config: DataflowConfig) -> str:
    role = config.role_of(sink)
    return resource if role is None else f"{resource} ({role})"


def _tasks(tasks: Sequence[TaskDescriptor]) -> RenderableType:
    rows = [
        (
            task.name,
            _names([f"{stream.source}:{stream.name}" for stream in task.sources]),
            _names([f"{stream.sink}:{stream.name}" for stream in task.sinks]),
        )
        for task in tasks[:_TASKS_SHOWN_MAX]
    ]
    made = table(("TASK", "READS", "WRITES"), rows)
    more = len(tasks) - _TASKS_SHOWN_MAX
    return Group(made, Text(f"... and {more:,} more tasks", "dim")) if more > 0 else made


def _state(operators: Sequence[StateOperator]) -> RenderableType:
    rows = [
        (one.name, ", ".join(one.key), _partitions(one), one.bound or _UNBOUNDED.get(one.kind, _GROWS))
        for one in operators
    ]
    pinned: dict[tuple[str, str], list[str]] = {}
    for one in operators:
        for setting in one.pinned.items():
            pinned.setdefault(setting, []).append(one.name)
    lines = [
        (key.removeprefix("spark.sql."), value.rpartition(".")[2], ", ".join(names))
        for (key, value), names in pinned.items()
    ]
    kept = table(("KEEPS STATE", "KEY", "PARTITIONS", "BOUNDED BY"), rows)
    return Group(kept, Text(), table(("KEPT FOR EVER", "", "BY"), lines))


def _partitions(operator: StateOperator) -> str:
    return "1, for ever" if operator.partitions is None else str(operator.partitions)


def _spaced(ddl: str) -> str:
    """DDL with a space behind each comma between columns, where a terminal may break the line."""
    return re.sub(r",(?=[A-Za-z_`])", ", ", ddl)


def _names(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_SHOWN_MAX
    return ", ".join(names[:_NAMES_SHOWN_MAX]) + (f" ... and {more:,} more" if more > 0 else "")
