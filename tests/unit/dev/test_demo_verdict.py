"""How the demo counts: lost, duplicated and wrong records, by id and by content."""

from __future__ import annotations

import pandas as pd
import pytest

from scribengin_dev.demo.verdict import Comparison, compare

EXPECTED = pd.DataFrame({"id": [1, 2, 3], "carrier": ["UA", None, "AA"], "delay": pd.array([20, None, 33], "Int64")})


def verdict(found: pd.DataFrame) -> Comparison:
    return compare("delayed", EXPECTED, found)


def test_the_same_rows_in_another_order_and_other_types_of_numbers_are_exact() -> None:
    found = pd.DataFrame({"id": [3, 1, 2], "carrier": ["AA", "UA", None], "delay": [33.0, 20.0, float("nan")]})
    assert verdict(found) == Comparison("delayed", expected=3, found=3, lost=0, duplicated=0, wrong=0)
    assert verdict(found).exact


def test_columns_that_nobody_asked_about_do_not_matter() -> None:
    assert verdict(EXPECTED.assign(extra=1)).exact


def test_a_missing_record_is_lost() -> None:
    found = verdict(EXPECTED[EXPECTED.id != 2])
    assert (found.lost, found.duplicated, found.wrong, found.exact) == (1, 0, 0, False)


def test_every_copy_beyond_the_first_is_duplicated() -> None:
    found = verdict(pd.concat([EXPECTED, EXPECTED.head(1), EXPECTED.head(2)]))
    assert (found.lost, found.duplicated, found.wrong, found.exact) == (0, 3, 0, False)


@pytest.mark.parametrize(
    "change",
    [
        {"carrier": ["UA", "UA", "AA"]},
        {"delay": [20, 0, 33]},
        {"delay": [None, None, None]},
        {"carrier": ["UA", None, None]},
    ],
)
def test_a_record_with_another_content_is_wrong(change: dict[str, list[object]]) -> None:
    found = verdict(EXPECTED.assign(**change))
    assert found.lost == found.duplicated == 0
    assert found.wrong >= 1
    assert not found.exact


def test_a_record_that_nobody_expects_is_wrong() -> None:
    found = verdict(pd.concat([EXPECTED, EXPECTED.head(1).assign(id=9)]))
    assert (found.lost, found.duplicated, found.wrong) == (0, 0, 1)


def test_records_without_a_column_are_all_wrong() -> None:
    assert verdict(EXPECTED[["id", "delay"]]).wrong == 3


def test_an_empty_output_has_lost_everything_and_a_demo_without_such_records_nothing() -> None:
    assert verdict(pd.DataFrame()).lost == 3
    assert compare("cancelled", EXPECTED.head(0), pd.DataFrame()).exact
