"""ZPL that was written is read as the same; whatever else is read, or refused in one line: never a crash."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from scribengin.dafka import DafkaConfig
from scribengin.dafka.zpl import ZplItem, format_zpl, parse_zpl
from scribengin.dafka.zpl.programs import parse_program_config
from scribengin.errors import ConfigInvalid
from tests.unit.dafka.test_dafka_programs import ALL_KEYS
from tests.unit.dafka.test_dafka_zpl import OF_THE_SPECIFICATION

NAMES = st.from_regex(r"[A-Za-z0-9$@.&+_-]([A-Za-z0-9$@.&+_/-]{0,8}[A-Za-z0-9$@.&+_-])?", fullmatch=True)
VALUES = st.none() | st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=30).filter(
    lambda value: not {"'", '"'} <= set(value)
)
ITEMS = st.recursive(
    st.tuples(NAMES, VALUES).map(lambda said: ZplItem(*said)),
    lambda below: st.tuples(NAMES, VALUES, st.lists(below, max_size=4).map(tuple)).map(lambda said: ZplItem(*said)),
    max_leaves=12,
)
PIECES = st.sampled_from(["\n", "    ", " ", "=", "'", '"', "#", "/", "\t", "\r", "\0", "beacon", "verbose", "1", "é"])
EDITS = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 6), PIECES), min_size=1, max_size=6)


def without_lines(items: tuple[ZplItem, ...]) -> tuple[ZplItem, ...]:
    return tuple(item._replace(line=0, children=without_lines(item.children)) for item in items)


def edited(text: str, edits: list[tuple[float, int, str]]) -> str:
    """Pieces of it taken out, and others put there."""
    for place, taken, put in edits:
        start = int(place * len(text))
        text = text[:start] + put + text[start + taken :]
    return text


@given(st.lists(ITEMS, max_size=5).map(tuple))
def test_what_was_written_is_read_as_the_same(items: tuple[ZplItem, ...]) -> None:
    assert without_lines(parse_zpl(format_zpl(items), source="x")) == items


@given(st.sampled_from([OF_THE_SPECIFICATION, ALL_KEYS]), EDITS)
def test_what_was_changed_anywhere_is_read_or_refused_in_a_line(text: str, edits: list[tuple[float, int, str]]) -> None:
    changed = edited(text, edits)
    try:
        items = parse_zpl(changed, source="x.cfg")
    except ConfigInvalid as error:
        refused_in_a_line_of(changed, str(error))
    else:
        both = {quote for item in flat(items) for quote in "'\"" if quote in (item.value or "")}
        if both != {"'", '"'}:
            assert without_lines(parse_zpl(format_zpl(items), source="x")) == without_lines(items)


@given(EDITS)
def test_a_configuration_that_was_changed_anywhere_is_one_or_refused_in_a_line(
    edits: list[tuple[float, int, str]],
) -> None:
    changed = edited(ALL_KEYS, edits)
    try:
        DafkaConfig.parse(parse_program_config(changed, source="x.cfg"), source="x.cfg")
    except ConfigInvalid as error:
        refused_in_a_line_of(changed, str(error))


def refused_in_a_line_of(text: str, message: str) -> None:
    assert "\n" not in message
    found = re.match(r"x\.cfg(?: line (\d+))?: ", message)
    assert found is not None, message
    assert found[1] is None or 1 <= int(found[1]) <= text.count("\n") + 1


def flat(items: tuple[ZplItem, ...]) -> list[ZplItem]:
    return [one for item in items for one in (item, *flat(item.children))]
