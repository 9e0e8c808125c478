"""The keys of configurations, as tables: name, type, default, meaning, and what an edit of a running dataflow does."""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from scribengin.base.model import EditKind, models_in
from scribengin.connectors import AnySinkConfig, AnySourceConfig
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.edits import kind_of
from scribengin.log import LogConfig, ReaderConfig
from scribengin.operations.chain.config import ChainConfig
from scribengin_tools.rendering.field_docs import field_docs

Edits = Callable[[tuple[str, ...]], EditKind]
_MADE = "Made from the code by `python -m scribengin_dev.reference`."
_DONE: dict[EditKind, str] = {
    "live": "at once",
    "rolling": "workers are replaced",
    "regroup": "tasks are made anew",
    "restart": "with `restart`",
    "never": "never",
}
_EDITS = """\
The last column says when an edit of a running dataflow's config takes effect:

- *at once*: the master does it, and workers go by it from their next round on; no task stops.
- *workers are replaced*: one after the other, a new one first.
- *tasks are made anew*: those whose streams change drain first.
- *with `restart`*: refused while there are workers; `scribengin restart` takes it over.
- *never*: refused; submit another dataflow beside it.
"""
_UNITS = (("_s", "seconds"), ("_ms", "ms"), ("_hours", "hours"), ("_mb", "MiB"))
_BYTES = re.compile(r"(^|_)bytes(_|$)")
_COUNTS = re.compile(r"^(records|entries|round|outstanding_writes)(_max)?$")
_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_PYTHON = {"None": "`null`", "False": "`false`", "True": "`true`"}


def dataflow_page() -> str:
    """A dataflow's descriptor. Sources and sinks have pages of their own."""
    begin = (
        f"# A dataflow's descriptor\n\n{_MADE} `scribengin schema` prints the same\nas JSON Schema, for editors. "
        "A key that does not exist is refused. [Sources](sources.md) and [sinks](sinks.md) have pages of their own.\n"
    )
    return "\n".join([begin, _EDITS, *_sections(DataflowConfig, (), kind_of, set())])


def sources_page() -> str:
    """Each kind of source."""
    begin = f"# Sources\n\n{_MADE} A source stands in a [descriptor](dataflow.md) as `sources.<name>`.\n"
    return "\n".join([begin, _EDITS, *_kinds(AnySourceConfig, "sources")])


def sinks_page() -> str:
    """Each kind of sink."""
    begin = (
        f"# Sinks\n\n{_MADE} A sink stands in a [descriptor](dataflow.md) as `sinks.<name>`.\n"
        "What a sink says cannot be edited: another place is another dataflow. How the brokers of Kafka are\n"
        "reached (`bootstrap`, `client`, `client_file`) can, with `restart`: it is the same cluster then, or the task\n"
        "says so. An error route may bring one more sink, and `errors.action: stop` ends it.\n"
    )
    return "\n".join([begin, *_kinds(AnySinkConfig, None)])


def log_page() -> str:
    """A log's configuration, and a reader's."""
    begin = (
        f"# A log's configuration\n\n{_MADE}\n`scribengin log create LOG --set KEY=VALUE` and `log configure` set "
        "these keys, a [chain](chain.md) has them as\n`logs.<name>.config`, and Python as `LogConfig`.\n"
    )
    reader = "## A reader's\n\nIn Python, as `ReaderConfig`.\n"
    log = _table(LogConfig, (), None)
    return "\n".join([begin, log, "", reader, *_sections(ReaderConfig, (), None, set(), heading="")])


def chain_page() -> str:
    """A chain's file. Its dataflows are descriptors."""
    begin = f"# A chain's file\n\n{_MADE} `dataflows` holds [descriptors](dataflow.md).\n"
    return "\n".join([begin, *_sections(ChainConfig, (), None, {DataflowConfig, LogConfig})])


def _kinds(union: Any, place: str | None) -> Iterator[str]:
    for model in models_in(get_args(union)[0]):
        kind = get_args(model.model_fields["kind"].annotation)[0]
        edits = None if place is None else (lambda path: kind_of((place, "<name>", *path)))
        yield from _sections(model, (), edits, set(), heading=f"## `kind: {kind}`\n\n")


def _sections(
    model: type[BaseModel], path: tuple[str, ...], edits: Edits | None, seen: set[type], heading: str | None = None
) -> Iterator[str]:
    """The table of a model, then those of the models in it, each once."""
    if heading is None:
        heading = f"## `{'.'.join(path)}`\n\n" if path else ""
    doc = "\n".join(line.strip() for line in (model.__doc__ or "").strip().splitlines())
    yield f"{heading}{_plain(doc)}\n\n{_table(model, path, edits)}\n"
    for name, field in model.model_fields.items():
        if name in ("sources", "sinks"):
            continue
        holds_many = typing.get_origin(field.annotation) is dict
        for below in models_in(field.annotation):
            if below not in seen:
                seen.add(below)
                yield from _sections(below, (*path, name, *(("<name>",) if holds_many else ())), edits, seen)


def _table(model: type[BaseModel], path: tuple[str, ...], edits: Edits | None) -> str:
    docs = field_docs(model)
    last = " takes effect |" if edits is not None else ""
    lines = [f"| key | type | default | meaning |{last}", "|---|---|---|---|" + ("---|" if last else "")]
    for name, field in model.model_fields.items():
        key = ".".join((*path, name))
        done = f" {_DONE[edits((*path, name))]} |" if edits is not None else ""
        lines.append(f"| `{key}` | {_type(name, field)} | {_default(name, field)} | {_plain(docs[name])} |{done}")
    return "\n".join(lines)


def _plain(text: str) -> str:
    """For readers of YAML: what is `None` in Python is `null` there."""
    words = re.sub(r"\b(None|False|True)\b", lambda found: _PYTHON[found[1]], text)
    return words.replace("|", "\\|")


def _type(name: str, field: FieldInfo) -> str:
    words = _annotation(field.annotation)
    unit = _unit(name) if re.search(r"\b(number|whole number)\b", words) else ""
    limits = [_limit(one) for one in field.metadata]
    return ", ".join(part for part in (f"{words}{unit}", *limits) if part)


def _annotation(annotation: Any) -> str:
    simple = {str: "text", int: "whole number", float: "number", bool: "`true`, `false`", Any: "anything", Path: "path"}
    if annotation in simple:
        return simple[annotation]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "keys"
    origin, arguments = typing.get_origin(annotation), get_args(annotation)
    if origin is typing.Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin is dict:
        return f"a name each: {_annotation(arguments[1])}"
    if origin in (list, tuple):
        return f"list of {_annotation(arguments[0])}"
    if origin is typing.Annotated:
        return _annotation(arguments[0])
    found = dict.fromkeys(_annotation(one) for one in arguments if one is not type(None))
    return " or ".join(found)


def _unit(name: str) -> str:
    if _BYTES.search(name):
        return " of bytes"
    if _COUNTS.match(name):
        return ""
    return next((f" of {unit}" for suffix, unit in _UNITS if name.endswith(suffix)), "")


def _limit(constraint: Any) -> str:
    for attribute, words in (("ge", "{} or more"), ("gt", "more than {}"), ("le", "at most {}")):
        if (value := getattr(constraint, attribute, None)) is not None:
            return words.format(_number(value))
    return ""


def _default(name: str, field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if isinstance(value, BaseModel) or value in ({}, (), []):
        return ""
    if value is None:
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return ", ".join(f"`{one}`" for one in value)
    if isinstance(value, int | float) and _BYTES.search(name):
        return f"`{value}`{_size(value)}"
    return f"`{_number(value)}`"


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _size(value: float) -> str:
    return next((f" ({value / size:g} {unit})" for size, unit in _SIZES if value >= size and value % size == 0), "")
