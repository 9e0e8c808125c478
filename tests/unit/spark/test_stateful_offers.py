"""What an owner offers to a query, and what its sources answer in a trigger: all of an offer, or nothing of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from scribengin.spark.stateful import offers
from scribengin.spark.stateful.offers import OfferReader, Offset, QueryOffers


def offset(source: str, at: int) -> Offset:
    return {"source": source, "streams": {"0": {"at": {"n": at}, "records": at}}}


START = {"a": offset("a", 0), "b": offset("b", 0)}


@pytest.fixture(autouse=True)
def _sources_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    let_wait(monkeypatch, 0.0)


def let_wait(monkeypatch: pytest.MonkeyPatch, for_s: float) -> None:
    """Sources, for any offer."""
    monkeypatch.setattr(offers, "WAIT_S", for_s)
    monkeypatch.setattr(offers, "FIRST_WAIT_S", for_s)


@pytest.fixture
def owner(tmp_path: Path) -> QueryOffers:
    return QueryOffers(tmp_path, START)


def sources(directory: Path) -> list[OfferReader]:
    return [OfferReader(directory, name) for name in START]


def trigger(readers: list[OfferReader], starts: list[Offset]) -> list[Offset]:
    """What Spark asks in one trigger, source by source."""
    return [reader.latest(start) for reader, start in zip(readers, starts, strict=True)]


def test_sources_begin_where_their_streams_began(owner: QueryOffers, tmp_path: Path) -> None:
    assert [reader.initial() for reader in sources(tmp_path)] == list(START.values())


def test_all_sources_answer_one_offer_in_one_trigger(
    owner: QueryOffers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_wait(monkeypatch, 1.0)
    owner.offer({"a": offset("a", 1), "b": offset("b", 2)})
    assert trigger(sources(tmp_path), list(START.values())) == [offset("a", 1), offset("b", 2)]


def test_the_first_offer_is_waited_for_however_late_a_slow_machine_makes_it(
    owner: QueryOffers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the first batch of a query would have no records now and then."""
    monkeypatch.setattr(offers, "FIRST_WAIT_S", 60.0)
    paused: list[float] = []

    def pause(for_s: float) -> None:
        paused.append(for_s)
        if len(paused) == 1000:
            owner.offer({"a": offset("a", 1), "b": offset("b", 2)})

    monkeypatch.setattr(offers, "pause", pause)
    readers = sources(tmp_path)
    assert trigger(readers, list(START.values())) == [offset("a", 1), offset("b", 2)]
    assert trigger(readers, [offset("a", 1), offset("b", 2)]) == [offset("a", 1), offset("b", 2)]
    assert len(paused) == 1000, "later ones are waited for as long as Spark need not look"


def test_an_offer_that_comes_when_the_first_source_has_answered_waits_for_the_next_trigger(
    owner: QueryOffers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = sources(tmp_path)
    assert first.latest(START["a"]) == START["a"]
    owner.offer({"a": offset("a", 1), "b": offset("b", 2)})
    assert second.latest(START["b"]) == START["b"]
    let_wait(monkeypatch, 1.0)
    assert second.latest(START["b"]) == offset("b", 2), "whichever is asked first"
    assert first.latest(START["a"]) == offset("a", 1)


def test_the_query_is_idle_once_its_sources_are_asked_again_behind_the_last_offer(
    owner: QueryOffers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers = sources(tmp_path)
    assert not owner.waits()
    owner.offer(START)
    let_wait(monkeypatch, 1.0)
    trigger(readers, list(START.values()))
    assert not owner.idle(), "the batch may run"
    looked = []
    monkeypatch.setattr(offers, "pause", lambda _: looked.append((owner.waits(), owner.idle())))
    trigger(readers, list(START.values()))
    assert set(looked) == {(True, True)}
    owner.offer({**START, "a": offset("a", 1)})
    assert not owner.idle()


def test_a_query_that_is_to_stop_does_not_wait(
    owner: QueryOffers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_wait(monkeypatch, 1000.0)
    owner.stop()
    assert trigger(sources(tmp_path), list(START.values())) == list(START.values())


def test_only_a_range_that_was_bound_is_read(owner: QueryOffers, tmp_path: Path) -> None:
    reader, _ = sources(tmp_path)
    owner.bind(offers.BoundRange(START["a"], offset("a", 1), ["split"]))  # type: ignore[list-item]
    assert reader.splits(START["a"], offset("a", 1)) == ["split"]
    with pytest.raises(RuntimeError, match="reads a range that no round has planned"):
        reader.splits(START["a"], offset("a", 2))
