"""The two kinds of data classes: what a user writes (`Config`) and what exists (`Descriptor`).

A naming rule (`Config` is user input, `Descriptor` describes a resource), made checkable: both are frozen,
both refuse unknown keys, both travel as JSON.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, Union, get_origin
from urllib.parse import quote, unquote

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import to_json

from scribengin.base.text.refusals import refusals
from scribengin.errors import ConfigInvalid, DescriptorUnreadable

JsonObject = dict[str, Any]
Position = JsonObject
"""Where a reader of one source stream stands: a small JSON object that only its connector understands."""
_WAIT_MAX_S = 1_000_000_000
"""Half a lifetime. What is nine times as long, no lock of Python takes."""


class Config(BaseModel):
    """User input: defaults where a default is honest, unknown keys refused. No number is one that JSON cannot hold, and
    no time in seconds is longer than threads can wait."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)
    edits_of_fields: ClassVar[TakesEffect | None] = None
    """How edits of its fields are carried out that say nothing themselves. None: as the field says that holds it."""

    if not TYPE_CHECKING:  # a type checker shall see the fields

        def __init__(self, /, **values: Any) -> None:
            """Raises ConfigInvalid, one line for a program as for who writes a file."""
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise ConfigInvalid(f"{type(self).__name__}: " + "; ".join(refusals(error, type(self)))) from None

        # Else pydantic made configs within configs by it, and of their mistakes the first one would be told alone.
        __init__.__pydantic_base_init__ = True

    @model_validator(mode="before")
    @classmethod
    def _no_yes_for_a_number(cls, value: Any) -> Any:
        """`workers: yes` is no 1 that somebody meant, though Python counts with it: a word is no number to pydantic."""
        if not isinstance(value, dict):
            return value
        counted = {key: str(one).lower() for key, one in value.items() if isinstance(one, bool) and _counts(cls, key)}
        return {**value, **counted} if counted else value

    @field_validator("*")
    @classmethod
    def _can_be_waited(cls, value: Any, field: ValidationInfo) -> Any:
        if isinstance(value, float) and value > _WAIT_MAX_S and (field.field_name or "").endswith("_s"):
            raise ValueError(f"{value} is too high: at most {_WAIT_MAX_S}")
        return value

    @classmethod
    def parse(cls, value: Any, *, source: str) -> Self:
        """Validate `value`, which came from `source` (a path, an option). Raises ConfigInvalid, one line an error."""
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            raise ConfigInvalid(f"{source}: " + "; ".join(refusals(error, cls))) from None


def _counts(model: type[BaseModel], field: Any) -> bool:
    """Whether the field takes numbers, and neither yes nor no."""
    kinds = _kinds_in(model.model_fields[field].annotation) if field in model.model_fields else set()
    return bool(kinds & {int, float}) and bool not in kinds


def _kinds_in(annotation: Any) -> set[Any]:
    """The types that a field takes, its choices one by one."""
    parts = annotation.__args__ if isinstance(annotation, UnionType) or get_origin(annotation) is Union else ()
    return {kind for part in parts for kind in _kinds_in(part)} or {annotation}


def _as_json(value: JsonObject) -> JsonObject:
    waiting: list[tuple[str, Any]] = [("", value)]
    seen = set[int]()  # aliases of a file may name one thing in many places, or within itself
    while waiting:
        path, part = waiting.pop()
        if isinstance(part, float) and not math.isfinite(part):
            raise ValueError(f"{path[1:]} is {part}, which JSON cannot hold: write it as text")
        if isinstance(part, dict | list | tuple) and id(part) not in seen:
            seen.add(id(part))
            within = part.items() if isinstance(part, dict) else enumerate(part)
            waiting += [(f"{path}.{key}", one) for key, one in within]
    return value


FreeJson = Annotated[JsonObject, AfterValidator(_as_json)]
"""What a user may write as he likes. Its numbers are held to what holds for those of fields."""
EditKind = Literal["live", "rolling", "regroup", "restart", "never"]
"""How an edit of a running dataflow's config is carried out; `scribengin.dataflow.edits` says what each word means."""


@dataclass(frozen=True, slots=True)
class TakesEffect:
    """On a field of a config, in `Annotated`: how its edit is carried out. It holds for what is below it, too, unless
    that says something else. `wish`: it is what operators want of the dataflow just now, and not how it is: going back
    to an earlier version leaves it as it is."""

    kind: EditKind
    wish: bool = False


LIVE = TakesEffect("live")
LIVE_WISH = TakesEffect("live", wish=True)
ROLLING = TakesEffect("rolling")
REGROUP = TakesEffect("regroup")
RESTART = TakesEffect("restart")
NEVER = TakesEffect("never")


def takes_effect(model: type[BaseModel], field: str) -> TakesEffect | None:
    """What the field says of its edits, in `model` or in a base class that it only narrows; else what the model says of
    all. None: nothing is said here."""
    for one in model.__mro__:
        if issubclass(one, BaseModel) and field in one.model_fields:
            found = (word for word in one.model_fields[field].metadata if isinstance(word, TakesEffect))
            if (word := next(found, None)) is not None:
                return word
    return model.edits_of_fields if issubclass(model, Config) else None


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that a field of this type may hold, those in lists, mappings and choices among them."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        return
    for part in getattr(annotation, "__args__", ()):
        yield from models_in(part)


def indented(value: Any) -> bytes:
    """A JSON value, or a part, as people read it in a node, by pydantic: `json` writes indented JSON in Python, ten
    times as slowly."""
    return to_json(value, indent=1)


class Part(BaseModel):
    """A piece of a descriptor, or of what is shown: it has no format of its own."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Descriptor(Part):
    """A resource that exists, complete, as it stands in the registry. `format` grows when its meaning changes: a node
    of another format was written by another version, and is not guessed at."""

    format: int = 1

    @field_validator("format")
    @classmethod
    def _of_this_version(cls, value: int) -> int:
        known = cls.model_fields["format"].default
        if value != known:
            raise ValueError(f"format {value} is another version's of Scribengin; this one reads format {known}")
        return value

    def to_bytes(self) -> bytes:
        """Indented JSON, because operators read and edit it in place."""
        return indented(self)

    @classmethod
    def from_bytes(cls, data: bytes, *, path: str) -> Self:
        """Read what `to_bytes` wrote to the node `path`. Raises DescriptorUnreadable, naming the node."""
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            why = "; ".join(refusals(error, cls))
            raise DescriptorUnreadable(f"{plain_path(path)} does not hold a {cls.__name__}: {why}") from None


def path_within(value: str) -> str:
    """`value`, a relative path that stays below where it begins. Raises ValueError."""
    if value.startswith("/") or "\0" in value or any(part in ("", ".", "..") for part in value.split("/")):
        raise ValueError(f"'{value}' leads out of its directory: somebody has changed the node")
    return value


def _entry(value: str) -> str:
    if "/" in value:
        raise ValueError(f"'{value}' is not the name of one file or directory: somebody has changed the node")
    return path_within(value)


def absolute_path(value: str) -> str:
    """`value`, a whole path without detours, as a node names it. Raises ValueError."""
    if not value.startswith("/"):
        raise ValueError(f"'{value}' is no absolute path: somebody has changed the node")
    path_within(value[1:] or ".")
    return value


PathWithin = Annotated[str, AfterValidator(path_within)]
"""A path as a node names it, below a directory that is known: wherever whoever wrote the node wants to lead."""
EntryName = Annotated[str, AfterValidator(_entry)]
"""The same, right below that directory."""


@lru_cache(maxsize=4096)  # every path of a stream asks
def node_name(name: str) -> str:
    """`name` as a single node or file name: percent-encoded, so that it holds no slash and is no dot name. Raises
    ConfigInvalid for what is no text, as words of a command line in another encoding."""
    try:
        encoded = quote(name, safe="")
    except UnicodeEncodeError:
        raise ConfigInvalid(f"{name!a} names nothing: a name is text in UTF-8") from None
    return encoded.replace(".", "%2E") if encoded in (".", "..") else encoded


def from_node_name(encoded: str) -> str:
    """The name that `node_name` encoded."""
    return unquote(encoded)


def plain_path(path: str) -> str:
    """A node's path as people are shown it, and may give it: names in it that hold slashes stand as they are."""
    return "/".join(map(from_node_name, path.split("/")))
