"""Nexmark's events: the same whoever makes them, in the shares and sizes that the benchmark's implementations share."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from scribengin_dev.bench.nexmark.events import AUCTION, BID, EVENTS_PER_S, PERSON, SCHEMA_DDL, events

COUNT = 20_000


def decoded(first: int, count: int) -> list[dict[str, Any]]:
    return [json.loads(event) for event in events(first, count).to_pylist()]


@pytest.fixture(scope="module")
def some() -> list[dict[str, Any]]:
    return decoded(0, COUNT)


def test_they_are_the_same_bytes_on_every_machine_and_however_they_are_cut() -> None:
    whole = events(0, 1_000)
    assert whole.equals(pa.concat_arrays([events(0, 333), events(333, 667)]))
    digest = hashlib.sha256(b"\n".join(whole.to_pylist())).hexdigest()
    assert digest == "104c8d68daec43406ac897d71e1e2cf0ab04baf92e05062566f9a824bcc518fd"
    assert not whole.equals(events(0, 1_000, seed=8))


def test_of_fifty_one_is_a_person_three_are_auctions_and_the_rest_bids(some: list[dict[str, Any]]) -> None:
    counted = Counter(event["kind"] for event in some)
    assert counted == {PERSON: COUNT // 50, AUCTION: 3 * COUNT // 50, BID: 46 * COUNT // 50}


def test_each_kind_has_its_fields_and_all_are_in_the_schema(some: list[dict[str, Any]]) -> None:
    columns = {column.split()[0] for column in SCHEMA_DDL.split(", ")}
    fields = {kind: {tuple(event) for event in some if event["kind"] == kind} for kind in (PERSON, AUCTION, BID)}
    assert all(len(found) == 1 for found in fields.values())
    assert {name for found in fields.values() for names in found for name in names} == columns


def test_times_go_up_and_are_as_far_apart_as_the_rate_says(some: list[dict[str, Any]]) -> None:
    times = [event["ts"] for event in some]
    assert times == sorted(times)
    seconds = COUNT / EVENTS_PER_S
    assert (times[0][17:23], times[-1][17:23]) == ("00.000", f"{seconds - 0.001:06.3f}")


def test_bids_and_auctions_name_who_was_there_before(some: list[dict[str, Any]]) -> None:
    people: set[int] = set()
    auctions: set[int] = set()
    for event in some:
        match event["kind"]:
            case 0:
                people.add(event["id"])
            case 1:
                auctions.add(event["id"])
                assert event["seller"] in people
                assert event["ts"] < event["expires"]
                assert event["initial"] < event["reserve"]
            case _:
                assert event["auction"] in auctions
                assert event["bidder"] in people
    assert len(people) == COUNT // 50
    assert len(auctions) == 3 * COUNT // 50


def test_half_of_the_bids_go_to_hot_auctions_and_three_of_four_come_from_hot_bidders() -> None:
    bids = [event for event in decoded(1_000_000, COUNT) if event["kind"] == BID]
    hot = sum(event["auction"] % 100 == 0 for event in bids) / len(bids)
    bidding = sum(event["bidder"] % 100 == 0 for event in bids) / len(bids)
    assert 0.48 < hot < 0.54
    assert 0.73 < bidding < 0.78
    prices = sorted(event["price"] for event in bids)
    assert 100 <= prices[0] < 120
    assert 99_000 <= prices[len(prices) // 2] <= 101_000 * 1.1
    assert 90_000_000 < prices[-1] <= 100_000_000
