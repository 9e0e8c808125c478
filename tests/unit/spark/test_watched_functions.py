"""Watched functions of every type, called as Spark's Python workers call them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.util import PythonEvalType

from scribengin.spark.transform.watched import KINDS, NUMBER, OF_BATCHES

BAD = st.sets(st.integers(0, 40))
SIZES = st.lists(st.integers(1, 12), min_size=1, max_size=4)


class Raised(list[int]):
    """The driver's accumulator: of the numbers; `reasons` is what came with each."""

    def __init__(self) -> None:
        super().__init__()
        self.reasons: list[str] = []

    def add(self, raised: Sequence[tuple[int, str]]) -> None:
        self.extend(number for number, _ in raised)
        self.reasons.extend(reason for _, reason in raised)


def watched(kind: int, function: Callable[..., Any], *, numbered: bool = False) -> tuple[Callable[..., Any], Raised]:
    raised = Raised()
    return KINDS[kind](function, raised, numbered=numbered), raised


def cut(sizes: list[int]) -> Iterator[range]:
    """The rows of batches of those sizes."""
    first = 0
    for size in sizes:
        yield range(first, first + size)
        first += size


@given(BAD, st.booleans())
def test_a_function_of_values_goes_on_behind_what_it_raises(bad: set[int], numbered: bool) -> None:
    def double(value: int) -> int:
        if value in bad:
            raise KeyError(value)
        return 2 * value

    call, raised = watched(PythonEvalType.SQL_ARROW_BATCHED_UDF, double, numbered=numbered)
    made = [call(n, n + 1_000) if numbered else call(n) for n in range(41)]
    assert made == [None if n in bad else 2 * n for n in range(41)]
    assert raised == [n + 1_000 * numbered for n in sorted(bad)]
    assert raised.reasons == [f"KeyError: {n}" for n in sorted(bad)]


def test_named_arguments_reach_the_function() -> None:
    call, raised = watched(PythonEvalType.SQL_BATCHED_UDF, lambda a, b: a // b)
    assert [call(6, b=2), call(1, b=0), call(a=9, b=3)] == [3, None, 3]
    assert raised == [1]


@given(BAD, SIZES, st.booleans())
def test_a_function_of_columns_of_pandas(bad: set[int], sizes: list[int], numbered: bool) -> None:
    def double(column: pd.Series) -> pd.Series:
        if column.isin(list(bad)).any():
            raise ValueError("bad")
        return 2 * column

    call, raised = watched(PythonEvalType.SQL_SCALAR_PANDAS_UDF, double, numbered=numbered)
    for rows in cut(sizes):
        columns = [pd.Series(rows)] + [pd.Series(rows) + 1_000] * numbered
        assert pa.array(call(*columns), pa.int64()).to_pylist() == [None if n in bad else 2 * n for n in rows]
    assert raised == [n + 1_000 * numbered for n in sorted(bad) if n < sum(sizes)]


@given(BAD, SIZES)
def test_a_function_of_columns_of_arrow(bad: set[int], sizes: list[int]) -> None:
    def double(left: pa.Array, right: pa.Array) -> pa.Array:
        if set(left.to_pylist()) & bad:
            raise ValueError("bad")
        return pc.add(left, right)

    call, raised = watched(PythonEvalType.SQL_SCALAR_ARROW_UDF, double)
    for rows in cut(sizes):
        made = call(pa.array(rows, pa.int64()), pa.array(rows, pa.int64()))
        assert made.to_pylist() == [None if n in bad else 2 * n for n in rows]
    assert raised == sorted(n for n in bad if n < sum(sizes))


@given(BAD, SIZES, st.booleans())
def test_a_function_of_batches_of_columns(bad: set[int], sizes: list[int], numbered: bool) -> None:
    def double(columns: Iterator[pd.Series]) -> Iterator[pd.Series]:
        for column in columns:
            if column.isin(list(bad)).any():
                raise ValueError("bad")
            yield 2 * column

    call, raised = watched(PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF, double, numbered=numbered)
    batches = [(pd.Series(rows), pd.Series(rows)) if numbered else pd.Series(rows) for rows in cut(sizes)]
    made = [pa.array(column, pa.int64()).to_pylist() for column in call(iter(batches))]
    assert made == [[None if n in bad else 2 * n for n in rows] for rows in cut(sizes)]
    assert raised == sorted(n for n in bad if n < sum(sizes))


@pytest.mark.parametrize("kind", sorted(OF_BATCHES))
@given(bad=BAD, sizes=SIZES, numbered=st.booleans())
def test_a_function_of_batches(kind: int, bad: set[int], sizes: list[int], numbered: bool) -> None:
    pandas = kind == PythonEvalType.SQL_MAP_PANDAS_ITER_UDF

    def even(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            assert list(batch.columns if pandas else batch.schema.names) == ["n"]
            if set(values(batch)) & bad:
                raise ValueError("bad")
            yield batch[batch["n"] % 2 == 0] if pandas else batch.filter(pc.equal(pc.bit_wise_and(batch["n"], 1), 0))

    def values(batch: Any) -> list[int]:
        return batch["n"].tolist()  # type: ignore[no-any-return]

    call, raised = watched(kind, even)
    tables = [pa.record_batch({"n": list(rows), **({NUMBER: list(rows)} if numbered else {})}) for rows in cut(sizes)]
    made = [n for batch in call(table.to_pandas() if pandas else table for table in tables) for n in values(batch)]
    assert made == [n for n in range(sum(sizes)) if n not in bad and n % 2 == 0]
    assert raised == sorted(n for n in bad if n < sum(sizes))
