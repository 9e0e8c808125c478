"""BEHAVIOURS.md names, for every behaviour that the log store was to have, the tests that hold it: none is left out."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.house.tree import ROOT

TABLE = ROOT / "tests" / "BEHAVIOURS.md"
_ROW = re.compile(r"\| (?P<id>[DBUI]\d+) \| (?P<what>[^|]+) \| (?P<tests>[^|]+) \|")
_TEST = re.compile(r"`(?P<path>[\w/]+\.py)::(?P<name>\w+)`")

DISTRIBUTEDLOG = {
    *range(1, 12), 13, 14, 17, 18, 22, 23, 25, 26, 27, 28, 30, 31, 34, 35,
    37, 38, 39, 40, 44, 45, 47, 50, 52, 53, 54, 55, 56,
}  # fmt: skip
"""The behaviours of DistributedLog that its own tests pin down, as numbered in the table."""
BOOMSCOOTER = range(1, 14)
USERS = range(1, 8)


def rows() -> dict[str, re.Match[str]]:
    """The rows of the table, by number."""
    found = [_ROW.fullmatch(line) for line in TABLE.read_text(encoding="utf-8").splitlines()]
    return {row["id"]: row for row in found if row is not None}


@cache
def names_in(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def test_every_behaviour_has_a_row() -> None:
    wanted = {
        *(f"D{number}" for number in DISTRIBUTEDLOG),
        *(f"B{number}" for number in BOOMSCOOTER),
        *(f"U{number}" for number in USERS),
    }
    assert rows().keys() == wanted


@pytest.mark.parametrize("number", sorted(rows()))
def test_every_row_names_tests_that_exist(number: str) -> None:
    named = list(_TEST.finditer(rows()[number]["tests"]))
    assert named, "a behaviour without a test"
    missing = [test[0] for test in named if test["name"] not in names_in(test["path"])]
    assert not missing
