"""What a dataflow did over the last hours, in bounded memory. Pure.

The last looks are kept as they are, older ones thinned: FINE_ROWS of every look (ten minutes while somebody watches),
then COARSE_ROWS of one in COARSE_MS (six hours). A row is five floats, so a dataflow costs 82 KB and a hundred 8 MB.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator

from scribengin.monitoring.overview import DataflowOverview

COLUMNS = ("at_ms", "in_per_s", "out_per_s", "lag_records", "round_ms")
FINE_ROWS = 600
COARSE_ROWS = 1_440
COARSE_MS = 15_000
_WIDTH = len(COLUMNS)
_SPARE_ROWS = 64
"""How many rows too many there may be, so that not every new one moves all others."""

Row = tuple[float, float, float, float | None, float | None]


def row_of(found: DataflowOverview, at_ms: int) -> Row:
    """What is kept of one look. What nobody has looked up is None, and so is a
    round that nobody has had yet."""
    round_ms = None if found.round_ms is None else round(sum(found.round_ms.model_dump().values()), 1)
    return (at_ms, found.in_per_s, found.out_per_s, found.lag_records, round_ms)


class Timeline:
    """The rows of one dataflow, oldest first."""

    __slots__ = ("_coarse", "_fine")

    def __init__(self) -> None:
        self._fine = array("d")
        self._coarse = array("d")

    def add(self, row: Row) -> None:
        """A further look. One that is not later than the last one is left out."""
        if self._fine and row[0] <= self._fine[-_WIDTH]:
            return
        values = [math.nan if value is None else float(value) for value in row]
        self._fine.extend(values)
        _bound(self._fine, FINE_ROWS)
        if not self._coarse or row[0] - self._coarse[-_WIDTH] >= COARSE_MS:
            self._coarse.extend(values)
            _bound(self._coarse, COARSE_ROWS)

    def rows(self, last: int | None = None) -> list[Row]:
        """All of them, or the last ones."""
        fine = list(_rows(self._fine))[-FINE_ROWS:]
        if last is not None and last <= len(fine):
            return fine[len(fine) - last :]
        older = [row for row in _rows(self._coarse) if not fine or row[0] < fine[0][0]]
        found = [*older[-COARSE_ROWS:], *fine]
        return found if last is None else found[-last:]

    @property
    def bytes(self) -> int:
        """The memory that the rows take."""
        return (len(self._fine) + len(self._coarse)) * self._fine.itemsize


def _bound(values: array[float], rows: int) -> None:
    excess = len(values) // _WIDTH - rows
    if excess > _SPARE_ROWS:
        del values[: excess * _WIDTH]


def _rows(values: array[float]) -> Iterator[Row]:
    for start in range(0, len(values), _WIDTH):
        at, read, written, lag, took = values[start : start + _WIDTH]
        yield int(at), read, written, None if math.isnan(lag) else int(lag), None if math.isnan(took) else took
