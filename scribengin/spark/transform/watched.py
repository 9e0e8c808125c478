"""A user's Python functions, watched: where one would raise it gives nothing, and says on which record that was.

This runs in Spark's Python workers, for one look at all records (`raising`). A watched function knows the record by its
number, which comes beside its arguments (NUMBER), or else counts its rows: that is right only as long as every record
is one row on its way here.

A function of columns or batches that raises is called again with their halves, down to single rows.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.util import PythonEvalType

NUMBER = "_scribengin record"
"""The column of the record's number. No column of a source would have that name."""
REASON_CHARACTERS_MAX = 500
Raised = list[tuple[int, str]]
"""The numbers of records, each with what was raised."""


class _Watched:
    """One function in one task. `raised` gets the numbers of its records on which it raises."""

    def __init__(self, function: Callable[..., Any], raised: Accumulator[Raised], *, numbered: bool) -> None:
        """If `numbered`, the last argument is the record's number. A batch has its column, or not."""
        self._function = function
        self._raised = raised
        self._is_numbered = numbered
        self._seen = 0

    def _numbered(self, columns: Sequence[Any]) -> tuple[Sequence[Any], Sequence[int]]:
        """The arguments that the user's function gets, and the numbers of their rows."""
        if self._is_numbered:
            return columns[:-1], columns[-1].tolist()
        return columns, self._counted(len(columns[0]))

    def _counted(self, rows: int) -> Sequence[int]:
        self._seen += rows
        return range(self._seen - rows, self._seen)

    def _pieces(self, call: Callable[..., Any], columns: Sequence[Any], numbers: Sequence[int]) -> list[Any]:
        """What `call` makes of columns, piece by piece, in order; of a row on which it raises, None."""
        try:
            return [call(*columns)]
        except Exception as error:  # noqa: BLE001  whatever their code raises
            if len(numbers) <= 1:
                self._raised.add([(number, _told(error)) for number in numbers])
                return [None]
        half = len(numbers) // 2
        halves = [(0, half), (half, len(numbers))]
        return [
            piece
            for first, end in halves
            for piece in self._pieces(call, [_part(column, first, end) for column in columns], numbers[first:end])
        ]


class _OfValues(_Watched):
    def __call__(self, *values: Any, **named: Any) -> Any:
        if self._is_numbered:
            *values, number = values  # type: ignore[assignment]
        else:
            number = self._counted(1)[0]
        try:
            return self._function(*values, **named)
        except Exception as error:  # noqa: BLE001  whatever their code raises
            self._raised.add([(number, _told(error))])
            return None


class _OfColumns(_Watched):
    def __call__(self, *columns: Any) -> Any:
        columns, numbers = self._numbered(columns)  # type: ignore[assignment]
        return _joined(self._pieces(self._function, columns, numbers), arrow=_is_arrow(columns[0]))


class _OfBatchesOfColumns(_Watched):
    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        def call(*columns: Any) -> Any:
            made = self._function(iter([columns if len(columns) > 1 else columns[0]]))
            return _joined(list(made), arrow=_is_arrow(columns[0]))

        for batch in batches:
            columns, numbers = self._numbered(batch if isinstance(batch, tuple) else (batch,))
            yield _joined(self._pieces(call, columns, numbers), arrow=_is_arrow(columns[0]))


class _OfBatches(_Watched):
    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            if NUMBER in _names(batch):
                numbers, rows = batch[NUMBER].tolist(), _without_number(batch)
            else:
                numbers, rows = self._counted(len(batch)), batch
            for piece in self._pieces(lambda rows: list(self._function(iter([rows]))), [rows], numbers):
                yield from piece or ()


def _told(error: Exception) -> str:
    """As the last line of a traceback tells it, which is what a run that fails says."""
    lines = (line for line in traceback.format_exception_only(error) if not line.startswith(" "))
    return next(lines).partition("\n")[0][:REASON_CHARACTERS_MAX]


def _is_arrow(column: Any) -> bool:
    return isinstance(column, pa.Array | pa.ChunkedArray)


def _names(batch: Any) -> Sequence[str]:
    return batch.schema.names if isinstance(batch, pa.RecordBatch) else list(batch.columns)


def _without_number(batch: Any) -> Any:
    return batch.drop_columns([NUMBER]) if isinstance(batch, pa.RecordBatch) else batch.drop(columns=[NUMBER])


def _part(rows: Any, first: int, end: int) -> Any:
    """Some rows of a column or batch, of pandas or of Arrow."""
    return rows.iloc[first:end] if hasattr(rows, "iloc") else rows.slice(first, end - first)


def _joined(pieces: Sequence[Any], *, arrow: bool) -> Any:
    """One column, of Arrow or of pandas, of pieces, with a null for each None."""
    if len(pieces) == 1 and pieces[0] is not None:
        return pieces[0]
    made = next((piece for piece in pieces if piece is not None), None)
    if arrow:
        return pa.concat_arrays([_array(piece, pa.null() if made is None else made.type) for piece in pieces])
    import pandas as pd  # only where there is a function of pandas

    nothing = pd.DataFrame(index=[0]) if isinstance(made, pd.DataFrame) else pd.Series([None])
    return pd.concat([nothing if piece is None else piece for piece in pieces], ignore_index=True)


def _array(piece: Any, kind: pa.DataType) -> pa.Array:
    if piece is None:
        return pa.nulls(1, kind)
    return piece.combine_chunks() if isinstance(piece, pa.ChunkedArray) else piece


KINDS: dict[int, Callable[..., Callable[..., Any]]] = {
    PythonEvalType.SQL_BATCHED_UDF: _OfValues,
    PythonEvalType.SQL_ARROW_BATCHED_UDF: _OfValues,
    PythonEvalType.SQL_SCALAR_PANDAS_UDF: _OfColumns,
    PythonEvalType.SQL_SCALAR_ARROW_UDF: _OfColumns,
    PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF: _OfBatchesOfColumns,
    PythonEvalType.SQL_SCALAR_ARROW_ITER_UDF: _OfBatchesOfColumns,
    PythonEvalType.SQL_MAP_PANDAS_ITER_UDF: _OfBatches,
    PythonEvalType.SQL_MAP_ARROW_ITER_UDF: _OfBatches,
}
"""How a function of each type of Spark's is watched."""
OF_BATCHES = frozenset({PythonEvalType.SQL_MAP_PANDAS_ITER_UDF, PythonEvalType.SQL_MAP_ARROW_ITER_UDF})
"""Those that are given all columns of their frame, and so the number by itself."""
