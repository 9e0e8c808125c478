"""ZPL (https://rfc.zeromq.org/spec/4): the text of the C programs' configurations, and of CURVE's key files.

A line is a name, or `name = value`. What is below another one is indented by four spaces more. A value may stand in
quotes of either kind, without escapes; else it ends before a `#`. Names may come several times, in their order. No
message quotes a line: it may hold a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from scribengin.errors import ConfigInvalid

_INDENT = 4
_LINE_MAX = 1024
"""The C programs read no more of a line."""
_SPACES = " \t\r\v\f"
_NAME = re.compile(r"[A-Za-z0-9$@.&+_-](?:[A-Za-z0-9$@.&+_/-]*[A-Za-z0-9$@.&+_-])?")
_QUOTED = re.compile(r"""(["'])(.*?)\1(.*)""")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class ZplItem(NamedTuple):
    """A name, its value if it has one, and what is below it. `line` counts from 1; 0: it was not read from a text."""

    name: str
    value: str | None = None
    children: tuple[ZplItem, ...] = ()
    line: int = 0


def parse_zpl(text: str, *, source: str) -> tuple[ZplItem, ...]:
    """The items of `text`, which came from `source`. Raises ConfigInvalid, which names the line."""
    below: list[list[ZplItem]] = [[]]
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        try:
            found = _item(line.rstrip(_SPACES), number, depth_max=len(below) - 1)
        except ValueError as error:
            raise ConfigInvalid(f"{source} line {number}: {error}") from None
        if found is not None:
            depth, item = found
            _close(below, depth)
            below[depth].append(item)
            below.append([])
    _close(below, 0)
    return tuple(below[0])


def format_zpl(items: Iterable[ZplItem]) -> str:
    """The text of `items`, as `parse_zpl` reads it. Raises ValueError for what no line can say."""
    return "".join(f"{line}\n" for item in items for line in _lines(item, ""))


def _close(below: list[list[ZplItem]], depth: int) -> None:
    """Give the last items their children, until items of `depth` are the ones that are collected."""
    while len(below) > depth + 1:
        children = tuple(below.pop())
        below[-1][-1] = below[-1][-1]._replace(children=children)


def _item(line: str, number: int, *, depth_max: int) -> tuple[int, ZplItem] | None:
    """How deep the item of a line is, and the item; None: nothing but a comment. Raises ValueError."""
    said = line.lstrip(" ")
    if said.lstrip(_SPACES)[:1] in ("", "#"):
        return None
    if len(line) > _LINE_MAX:
        raise ValueError(f"it has more than {_LINE_MAX:,} characters")
    if _CONTROL.search(line):
        raise ValueError("it holds a control character")
    depth, odd = divmod(len(line) - len(said), _INDENT)
    if odd:
        raise ValueError(f"it is indented by {len(line) - len(said)} spaces: indent by {_INDENT} at once")
    if depth > depth_max:
        raise ValueError("it is indented too deeply: nothing stands above it")
    name = _NAME.match(said)
    if name is None:
        raise ValueError("it begins with no name: write `name = value`")
    return depth, ZplItem(name[0], _value(said[name.end() :].lstrip(_SPACES)), (), number)


def _value(rest: str) -> str | None:
    if rest[:1] in ("", "#"):
        return None
    if rest[0] != "=":
        raise ValueError("behind its name stands neither `=` nor a comment")
    value = rest[1:].lstrip(_SPACES)
    if value[:1] not in ("'", '"'):
        return value.partition("#")[0].rstrip(_SPACES)
    quoted = _QUOTED.fullmatch(value)
    if quoted is None:
        raise ValueError(f"a closing {value[0]} is missing")
    if quoted[3].lstrip(_SPACES)[:1] not in ("", "#"):
        raise ValueError("behind the quoted value stands more than a comment")
    return quoted[2]


def _lines(item: ZplItem, indent: str) -> Iterable[str]:
    line = f"{indent}{item.name}"
    if item.value is not None:
        quote = "'" if '"' in item.value else '"'
        line += f" = {quote}{item.value}{quote}"
    read = _item(line, 0, depth_max=len(indent) // _INDENT)
    if read is None or read[1][:2] != item[:2]:
        raise ValueError("no line of ZPL says that")
    yield line
    for child in item.children:
        yield from _lines(child, indent + " " * _INDENT)
