"""Two edits of one config as one: what each of them changes counts, unless both change the same."""

from __future__ import annotations

from typing import Any

import pytest

from scribengin.dataflow.config_diff import merged

BASE: dict[str, Any] = {"workers": 1, "round": {"records_max": 5, "bytes_max": 9}, "settings": {"limit": 1}}


@pytest.mark.parametrize(
    ("mine", "theirs", "both"),
    [
        ({"workers": 2}, {}, {"workers": 2}),
        ({}, {"workers": 2}, {"workers": 2}),
        ({"workers": 2}, {"workers": 2}, {"workers": 2}),
        ({"workers": 2}, {"tasks": 4}, {"workers": 2, "tasks": 4}),
        ({"round": {"records_max": 6, "bytes_max": 9}}, {"round": {"records_max": 5, "bytes_max": 8}},
         {"round": {"records_max": 6, "bytes_max": 8}}),
        ({"workers": 2}, {"settings": {"limit": 1, "new": {"a": 1}}},
         {"workers": 2, "settings": {"limit": 1, "new": {"a": 1}}}),
        ({"workers": 2}, {"settings": {}}, {"workers": 2, "settings": {}}),
    ],
)  # fmt: skip
def test_both_edits_are_in_it(mine: dict[str, Any], theirs: dict[str, Any], both: dict[str, Any]) -> None:
    assert merged(BASE, {**BASE, **mine}, {**BASE, **theirs}) == {**BASE, **both}


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ({"workers": 2}, {"workers": 3}),
        ({"settings": {}}, {"settings": {"limit": 2}}),
        ({"sql": "a"}, {"sql": {"out": "b"}}),
        ({"sql": {"out": "b"}}, {"sql": "a"}),
    ],
)
def test_edits_of_the_same_value_are_not_merged(mine: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert merged(BASE, {**BASE, **mine}, {**BASE, **theirs}) is None


def test_neither_of_them_is_changed() -> None:
    mine, theirs = {**BASE, "settings": {"limit": 1, "a": 1}}, {**BASE, "settings": {"limit": 1, "b": 1}}
    assert merged(BASE, mine, theirs) == {**BASE, "settings": {"limit": 1, "a": 1, "b": 1}}
    assert (mine["settings"], theirs["settings"]) == ({"limit": 1, "a": 1}, {"limit": 1, "b": 1})
