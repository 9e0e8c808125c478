"""What pydantic refuses, in the words of who writes configurations: the key, and what it must be."""

from __future__ import annotations

import difflib
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

_SHOWN_MAX = 60
_KEYS_LISTED_MAX = 12
_TOLD_MAX = 50
"""What is refused is written to the registry, too, whose nodes are small."""
_PART_SHOWN_MAX = 200
_KEY = "[key]"
_UNIONS = (Union, types.UnionType)
Words = Callable[[Any, Mapping[str, Any]], str]
_WORDS: dict[str, Words] = {
    "missing": lambda _value, _about: "is missing",
    "value_error": lambda _value, about: str(about["error"]),
    "literal_error": lambda value, about: _none_of(value, about["expected"].replace(" or ", ", ")),
    "union_tag_invalid": lambda _value, about: _none_of(about["tag"], about["expected_tags"]),
    "union_tag_not_found": lambda value, about: f"is missing{_written_for(_tag_key(about), value)}",
    "greater_than_equal": lambda value, about: f"{value} is too low: {about['ge']:g} or more",
    "greater_than": lambda value, about: f"{value} is too low: more than {about['gt']:g}",
    "less_than_equal": lambda value, about: f"{value} is too high: at most {about['le']:.10g}",
    "less_than": lambda value, about: f"{value} is too high: less than {about['lt']:.10g}",
    "string_too_short": lambda _value, _about: "is empty",
    "string_too_long": lambda _value, about: f"is longer than {about['max_length']} characters",
    "too_short": lambda _value, _about: "is empty",
    "finite_number": lambda value, _about: f"{value} is no number to count with",
    "invalid_key": lambda value, _about: f"the key {value!r} is no text: put it into quotes",
    "string_pattern_mismatch": lambda value, about: (
        f"{str(value)[:_SHOWN_MAX]!r} is not of the form {about['pattern']}"
    ),
    "json_invalid": lambda _value, about: f"is no JSON: {about['error']}",
}
_KINDS = {
    "int": "no whole number",
    "float": "no number",
    "bool": "neither true nor false",
    "list": "no list",
    "tuple": "no list",
    "set": "no list",
    "dict": "no mapping of keys",
    "model": "no mapping of keys",
}
"""What a value is not, by how the name of pydantic's error begins."""
_SCALARS = (_KINDS["int"], _KINDS["float"], _KINDS["bool"])


@dataclass(frozen=True, slots=True)
class _Refusal:
    path: tuple[str, ...]
    words: str
    whole: bool = False
    """The words say where, too."""
    of_choice: bool = False
    """One of several types was tried, and this is why it was not that one."""


def refusals(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """Each mistake in a line, those of one value together; of very many the first ones."""
    errors = error.errors()
    found = [_refusal(one, model) for one in errors[:_TOLD_MAX]]
    more = [f"and {len(errors) - _TOLD_MAX:,} more"] if len(errors) > _TOLD_MAX else []
    kept = [one for one in found if not (one.of_choice and any(_is_below(other, one) for other in found))]
    by_path: dict[tuple[str, ...], list[_Refusal]] = {}
    for one in kept:
        by_path.setdefault(one.path, []).append(one)
    return [line for path, of_one in by_path.items() for line in _lines(path, of_one)] + more


def did_you_mean(word: str, words: Sequence[str]) -> str:
    """What else may have been meant, as the end of a message; "" if nothing is like it, in upper or lower case."""
    close = _like(word, words)
    return "" if close is None else f": did you mean '{close}'?"


def _like(word: str, words: Iterable[str]) -> str | None:
    by_lower = {one.lower(): one for one in words}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1)
    return by_lower[close[0]] if close else None


def _tag_key(about: Mapping[str, Any]) -> str:
    """The key that says which of several types a mapping is."""
    return str(about["discriminator"]).strip("'")


def _written_for(key: str, value: Any) -> str:
    """What may have been written in place of a key that is missing, as the end of a message."""
    close = _like(key, (one for one in value if isinstance(one, str))) if isinstance(value, dict) else None
    return "" if close is None else f": did you write '{close}' for it?"


def _lines(path: tuple[str, ...], found: Sequence[_Refusal]) -> Iterator[str]:
    yield from (one.words for one in found if one.whole)
    words = " and ".join(dict.fromkeys(one.words for one in found if not one.whole))
    if words:
        yield f"{'.'.join(path)}: {words}" if path else words


def _is_below(one: _Refusal, other: _Refusal) -> bool:
    return len(one.path) > len(other.path) and one.path[: len(other.path)] == other.path


def _refusal(error: Any, model: type[BaseModel]) -> _Refusal:
    path, owner, of_choice = _place(model, error["loc"])
    kind, value, about = error["type"], error.get("input"), error.get("ctx", {})
    if kind == "extra_forbidden":
        return _Refusal(path, f"unknown key '{'.'.join(path)}'{_instead(path[-1], owner)}", whole=True)
    if kind.startswith("union_tag"):
        path = (*path, _tag_key(about))
    if kind in _WORDS:
        return _Refusal(path, _WORDS[kind](value, about), of_choice=of_choice)
    if kind.startswith("string_type"):
        quotes = ": put it into quotes" if isinstance(value, int | float) and not of_choice else ""
        return _Refusal(path, f"is no text{quotes}", of_choice=of_choice)
    if (wanted := _KINDS.get(kind.partition("_")[0])) is not None:
        shown = _shown(value) if wanted in _SCALARS else ""
        return _Refusal(path, f"{shown}is {wanted}", of_choice=of_choice)
    text = error["msg"]
    return _Refusal(path, f"{text[0].lower()}{text[1:]}", of_choice=of_choice)


def _instead(key: str, owner: type[BaseModel] | None) -> str:
    keys = [field.alias or name for name, field in owner.model_fields.items()] if owner is not None else []
    listed = f" (there are: {', '.join(keys)})" if 0 < len(keys) <= _KEYS_LISTED_MAX else ""
    return did_you_mean(key, keys) or listed


def _none_of(value: Any, expected: str) -> str:
    choices = [choice.strip("' ") for choice in expected.split(",")]
    return f"{str(value)[:_SHOWN_MAX]!r} is none of {', '.join(choices)}{did_you_mean(str(value), choices)}"


def _shown(value: Any) -> str:
    """A value that may be shown: a word or a number where another kind of value was meant."""
    is_plain = isinstance(value, str | int | float) and len(str(value)) <= _SHOWN_MAX
    return f"{value!r} " if is_plain else ""


def _place(model: type[BaseModel], loc: Sequence[Any]) -> tuple[tuple[str, ...], type[BaseModel] | None, bool]:
    """Where that is, as it is written: pydantic names the types that it has tried, too. And whose key the last one is,
    and whether one of several types was tried there."""
    path: list[str] = []
    kind: Any = model
    owner: type[BaseModel] | None = None
    of_choice = False
    for part in loc:
        kind = _plain(kind)
        origin = get_origin(kind)
        of_choice = False
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            owner = kind
            path.append(str(part))
            field = kind.model_fields.get(str(part))
            kind = field.annotation if field is not None else None
        elif origin in (dict, list, tuple) and part != _KEY:
            path.append(str(part))
            kind = get_args(kind)[1 if origin is dict else 0]
        elif origin in _UNIONS:
            kind = _chosen(kind, str(part))
            of_choice = get_origin(kind) is not None or not isinstance(kind, type) or not issubclass(kind, BaseModel)
        else:
            kind = None
    return tuple(part[:_PART_SHOWN_MAX] for part in path), owner, of_choice


def _plain(kind: Any) -> Any:
    """Without what says more of a type, and without `| None`."""
    while True:
        if get_origin(kind) is Annotated:
            kind = get_args(kind)[0]
            continue
        others = [one for one in get_args(kind) if one is not type(None)] if get_origin(kind) in _UNIONS else []
        if len(others) != 1:
            return kind
        kind = others[0]


def _chosen(union: Any, part: str) -> Any:
    """The type of a choice that pydantic calls `part`: by its tag, or by its name."""
    for one in get_args(union):
        member = _plain(one)
        if isinstance(member, type) and issubclass(member, BaseModel):
            tags = [get_args(f.annotation) for f in member.model_fields.values() if get_origin(f.annotation) is Literal]
            if any(part in tag for tag in tags) or member.__name__ == part:
                return member
        elif getattr(get_origin(member) or member, "__name__", "") == part.partition("[")[0]:
            return member
    return None
