"""What was read back, held against what was expected: pure functions over tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

ID = "id"
_NOTHING = "\0null"


@dataclass(frozen=True, slots=True)
class Comparison:
    """How one output compares with what it should hold. Records are told apart by their `id`.

    `lost`: expected ids that are not there. `duplicated`: copies beyond the first of any id. `wrong`: ids that nobody
    expects, and records whose content differs from what is expected.
    """

    output: str
    expected: int
    found: int
    lost: int
    duplicated: int
    wrong: int

    @property
    def exact(self) -> bool:
        """Everything once, nothing else."""
        return not (self.lost or self.duplicated or self.wrong)


def compare(output: str, expected: pd.DataFrame, found: pd.DataFrame) -> Comparison:
    """Compare by id and by content, in the columns of `expected`; the order of rows does not matter."""
    once = found.drop_duplicates(subset=[ID]) if len(found) else found
    known = expected[ID].isin(once[ID]) if len(once) else pd.Series(False, index=expected.index)
    return Comparison(
        output=output,
        expected=len(expected),
        found=len(found),
        lost=int((~known).sum()),
        duplicated=len(found) - len(once),
        wrong=_wrong(expected[known], once) if len(once) else 0,
    )


def _wrong(expected: pd.DataFrame, found: pd.DataFrame) -> int:
    unexpected = int((~found[ID].isin(expected[ID])).sum())
    columns = list(expected.columns)
    missing = [column for column in columns if column not in found.columns]
    if missing:
        return unexpected + len(expected)
    wanted = _comparable(expected, columns)
    there = _comparable(found[found[ID].isin(expected[ID])], columns)
    return unexpected + int((wanted != there).any(axis=1).sum())


def _comparable(rows: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Sorted by id, numbers as numbers whatever width they were read in, one value for every kind of null."""
    ordered = rows.sort_values(ID)[list(columns)].reset_index(drop=True)
    return pd.DataFrame({name: _plain(ordered[name]) for name in columns})


def _plain(column: pd.Series) -> pd.Series:
    if pd.api.types.is_numeric_dtype(column):
        column = column.astype("Float64")
    return column.astype(object).where(column.notna(), _NOTHING)
