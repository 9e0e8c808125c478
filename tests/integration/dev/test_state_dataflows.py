"""The ready dataflows with state, on two days of real flights, against pandas."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from scribengin.connectors.contract import RECORD_SCHEMA
from scribengin.connectors.kafka.source.columns import SCHEMA as OF_TOPICS
from scribengin.dataflow.config import load_config
from scribengin.spark.stateful.transformation import StatefulTransformation
from scribengin.spark.transform.spec import InputSpec, OutputSpec, StateSpec, TransformationSpec, WatermarkSpec
from scribengin_dev.demo.flights import Flights, delays_by_hour, load_flights, sessions, weather_records, weathered
from tests.integration.state_batches import in_one_batch

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

DATAFLOWS = Path(__file__).resolve().parents[3] / "dataflows"
SCHEMAS = {"log": RECORD_SCHEMA, "kafka": OF_TOPICS}
FLIGHTS = 1600
"""Not quite two days of them."""


@pytest.fixture(scope="module")
def flights() -> Flights:
    return load_flights(FLIGHTS)


def specified(name: str) -> TransformationSpec:
    """As a worker has it, but without a registry: all sources are logs or topics, whose schemas are known."""
    config = load_config(DATAFLOWS / name)
    assert config.package is not None
    assert config.state is not None
    [(sink, described)] = config.sinks.items()
    return TransformationSpec(
        dataflow=config.name,
        function=config.transformation,
        sql=config.statements() or None,
        package_dir=Path(config.package),
        settings=config.settings,
        inputs={k: InputSpec(k, SCHEMAS[s.kind], s.format, s.schema_ddl) for k, s in config.sources.items()},
        outputs={sink: OutputSpec(sink, described.format, division=described.division)},
        state=StateSpec(1, 64, {k: WatermarkSpec(w.column, w.delay_s) for k, w in config.state.watermarks.items()}),
    )


def records(values: Sequence[str], txids: Sequence[int] | None = None, schema: pa.Schema = RECORD_SCHEMA) -> pa.Table:
    count = len(values)
    columns = {"txid": list(txids or [0] * count), "payload": [value.encode() for value in values]}
    arrays = [pa.array(columns.get(field.name, [None] * count), field.type) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def of_flights(table: pd.DataFrame) -> pa.Table:
    lines = table.drop(columns="event_ms").to_json(orient="records", lines=True).splitlines()
    return records(lines, table["event_ms"].tolist())


def in_order(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return sorted(json.dumps(dict(row), sort_keys=True) for row in rows)


def rows_of(table: pd.DataFrame) -> list[dict[str, Any]]:
    """As JSON has them: None for what is missing."""
    objects = table.astype(object)
    return [
        {str(key): value for key, value in row.items()} for row in objects.where(table.notna(), None).to_dict("records")
    ]


Case = tuple[dict[str, pa.Table], pd.DataFrame]
"""The records of each source, and what should come of them."""


def with_weather(flights: Flights) -> Case:
    weather = weather_records(flights).iloc[::2]  # and so there are flights without
    lines = weather.to_json(orient="records", lines=True).splitlines()
    return {"flights": of_flights(flights.table), "weather": records(lines)}, weathered(flights, weather)


def by_hour(flights: Flights) -> Case:
    return {"delayed": of_flights(flights.delayed().assign(event_ms=0))}, delays_by_hour(flights)


def by_hour_of_a_topic(flights: Flights) -> Case:
    tables, expected = by_hour(flights)
    payloads = [payload.decode() for payload in tables["delayed"]["payload"].to_pylist()]
    return {"delayed": records(payloads, schema=OF_TOPICS)}, expected


def of_aircraft(flights: Flights) -> Case:
    return {"flights": of_flights(flights.table)}, sessions(flights, rest_hours=12)


CASES = {
    "carrier_delays": by_hour,
    "carrier_delays_kafka": by_hour_of_a_topic,
    "carrier_delays_hdfs": by_hour,
    "aircraft_days": of_aircraft,
    "flight_weather": with_weather,
}


@pytest.mark.parametrize("name", CASES)
def test_one_batch_job_makes_of_the_flights_what_pandas_makes(spark: SparkSession, flights: Flights, name: str) -> None:
    tables, expected = CASES[name](flights)
    found = [json.loads(row[0]) for row in in_one_batch(specified(name), spark, tables)]
    assert in_order(found) == in_order(rows_of(expected))


@pytest.mark.parametrize(
    ("name", "keeping"),
    [
        ("carrier_delays", "aggregate"),
        ("carrier_delays_kafka", "aggregate"),
        ("carrier_delays_hdfs", "aggregate"),
        ("aircraft_days", "session"),
        ("flight_weather", "join"),
    ],
)
def test_it_runs_as_a_stream_with_the_state_that_it_is_about(spark: SparkSession, name: str, keeping: str) -> None:
    assert StatefulTransformation.load(specified(name), spark).check().operators == (keeping,)
