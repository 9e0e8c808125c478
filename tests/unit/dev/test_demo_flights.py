"""What the demo feeds to the dataflows and expects of them, worked out with pandas alone."""

from __future__ import annotations

import json

import pyarrow.compute as pc
import pytest

from scribengin_dev.demo.flights import LOGS, Flights, load_flights, static_tables
from scribengin_dev.harness.producer import due


@pytest.fixture(scope="module")
def flights() -> Flights:
    return load_flights()


def test_there_are_336776_flights_and_every_one_has_its_row_as_id(flights: Flights) -> None:
    assert len(flights) == 336_776
    assert sorted(flights.table["id"]) == list(range(336_776))


def test_every_flight_goes_to_exactly_one_log_in_the_order_of_its_departure(flights: Flights) -> None:
    batches = [flights.records(k) for k in range(LOGS)]
    assert sum(batch.num_rows for batch in batches) == len(flights)
    assert all(pc.all(pc.less_equal(b["txid"][:-1], b["txid"][1:])).as_py() for b in batches)
    ids = {json.loads(payload)["id"] for batch in batches for payload in batch["payload"].slice(0, 100).to_pylist()}
    assert len(ids) == 100 * LOGS


def test_whole_numbers_are_written_as_such_and_unknown_ones_as_null(flights: Flights) -> None:
    rows = [json.loads(payload) for payload in flights.records(0)["payload"].slice(0, 2000).to_pylist()]
    assert all(isinstance(row["dep_time"], int | None) for row in rows)
    assert any(row["dep_time"] is None for row in rows)


def test_delayed_and_cancelled_flights_are_as_many_as_the_data_has(flights: Flights) -> None:
    assert len(flights.delayed()) == 92_010
    assert len(flights.cancelled()) == 8_255
    assert not set(flights.delayed()["id"]) & set(flights.cancelled()["id"])


def test_every_delayed_flight_gets_a_name_and_most_a_maker(flights: Flights) -> None:
    named = flights.named(*static_tables())
    assert len(named) == len(flights.delayed())
    assert named["airline"].notna().all()
    assert 0 < named["maker"].isna().sum() < len(named) / 2
    assert (named["delay"] > 15).all()


def test_a_shorter_demo_takes_the_years_first_flights() -> None:
    assert len(load_flights(1000)) == 1000
    assert load_flights(1000).table["event_ms"].is_monotonic_increasing


def test_the_producer_spreads_its_records_evenly_and_ends_with_all_of_them() -> None:
    assert [due(elapsed_s, 10.0, 0, 1000) for elapsed_s in (0.0, 2.5, 9.999, 10.0, 99.0)] == [0, 250, 999, 1000, 1000]
    assert [due(elapsed_s, 10.0, 200, 1000) for elapsed_s in (0.0, 5.0, 10.0)] == [200, 600, 1000]
