"""Columns that are laid out by hand are those that Arrow's builder makes."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scribengin.log.format.columns import numbers, texts

COUNTS = (1, 2, 63, 64, 65, 1000)


@pytest.mark.parametrize("count", COUNTS)
def test_numbers_are_those_of_a_builder(count: int) -> None:
    for kind, code, largest in ((pa.int64(), "q", 2**63 - 1), (pa.uint16(), "H", 2**16 - 1)):
        values = [largest - number for number in range(count)]
        made = numbers(values, kind, code)  # type: ignore[arg-type]  # both are codes
        made.validate(full=True)
        assert made.equals(pa.array(values, kind))


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("missing", [0, 1, 2, 3])
def test_texts_are_those_of_a_builder(count: int, missing: int) -> None:
    """`missing` of three are null."""
    for kind, value in ((pa.string(), "größer"), (pa.binary(), b"\xff\x00"), (pa.string(), ""), (pa.binary(), b"")):
        values = [None if number % 3 < missing else value * (number % 5) for number in range(count)]
        made = texts(values, kind)  # type: ignore[arg-type]  # of one kind each
        made.validate(full=True)
        assert made.equals(pa.array(values, kind))
        assert made.null_count == values.count(None)


@given(st.lists(st.none() | st.binary(max_size=20), min_size=1, max_size=80))
def test_any_bytes_are_those_of_a_builder(values: list[bytes | None]) -> None:
    made = texts(values, pa.binary())
    made.validate(full=True)
    assert made.equals(pa.array(values, pa.binary()))
