"""Which sources are silent, and how far the watermark goes without them."""

from __future__ import annotations

from scribengin.dataflow.round.state.silence import Silence, SilentAfter

AFTER = {"a": SilentAfter(10, 500), "b": SilentAfter(20, 0)}


def test_who_has_no_records_for_long_enough_is_silent_until_it_has_some() -> None:
    silence = Silence(AFTER, now_s=100)
    assert silence.silent(109.9) == frozenset()
    assert silence.silent(110) == {"a"}
    assert silence.silent(120) == {"a", "b"}
    silence.heard({"a", "c"}, 120)
    assert silence.silent(129) == {"b"}
    assert silence.silent(140) == {"a", "b"}


def test_a_beat_brings_a_silent_source_to_where_the_earliest_of_the_others_is() -> None:
    silence = Silence(AFTER, now_s=0)
    others = {"c": 7_000, "d": 9_000}
    assert silence.beats(frozenset("a"), {"a": 3_000, **others}) == {"a": 7_500}, "its own delay is taken off again"
    assert silence.beats(frozenset("a"), {"a": None, **others}) == {"a": 7_500}
    assert silence.beats(frozenset("ab"), {"a": 3_000, "b": 4_000, **others}) == {"a": 7_500, "b": 7_000}


def test_there_is_no_beat_for_who_is_there_already_or_where_nobody_else_says_how_far_it_is() -> None:
    silence = Silence(AFTER, now_s=0)
    assert silence.beats(frozenset("a"), {"a": 7_000, "c": 7_000}) == {}
    assert silence.beats(frozenset("a"), {"a": 8_000, "c": 7_000}) == {}
    assert silence.beats(frozenset("a"), {"a": 3_000, "c": None, "d": 9_000}) == {}
    assert silence.beats(frozenset("ab"), {"a": 3_000, "b": 4_000}) == {}, "all are silent"
    assert silence.beats(frozenset("a"), {}) == {}, "no batch has run yet"
    assert silence.beats(frozenset(), {"a": 3_000, "c": 7_000}) == {}
