"""Numbers of things, as people read them."""

from __future__ import annotations

from scribengin.base.text.counting import many, which


def test_one_is_one_and_several_are_several() -> None:
    assert [many(count, "record") for count in (0, 1, 2_000)] == ["0 records", "1 record", "2,000 records"]
    assert [many(count, "entry", "entries") for count in (0, 1, 2)] == ["0 entries", "1 entry", "2 entries"]
    assert [which(count, "goes", "go") for count in (0, 1, 2)] == ["go", "goes", "go"]
