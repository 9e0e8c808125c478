"""The ready dataflows' transformations through Spark, on a few thousand real flights, against pandas."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from scribengin.connectors.contract import RECORD_SCHEMA
from scribengin.dataflow.config import DataflowConfig, load_config
from scribengin.errors import TransformationFailed
from scribengin.spark.transform.transformation import InputSpec, OutputSpec, Transformation, TransformationSpec
from scribengin_dev.demo.flights import LOGS, Flights, load_flights, static_tables
from scribengin_dev.demo.verdict import compare

pytestmark = pytest.mark.spark

DATAFLOWS = Path(__file__).resolve().parents[3] / "dataflows"


def load_transformation(config: DataflowConfig, session: SparkSession) -> Transformation:
    """As a worker does, but without a registry: both sources are logs, whose schema is known."""
    assert config.package is not None
    spec = TransformationSpec(
        dataflow=config.name,
        function=config.transformation,
        sql=None,
        package_dir=Path(config.package),
        settings=config.settings,
        inputs={k: InputSpec(k, RECORD_SCHEMA, s.format, s.schema_ddl) for k, s in config.sources.items()},
        outputs={k: OutputSpec(k, config.sinks[k].format) for k in config.outputs},
    )
    return Transformation.load(spec, session)


def as_records(batches: list[pa.RecordBatch]) -> pa.Table:
    """Batches with some of the columns as a table with all of them."""
    table = pa.Table.from_batches(batches)
    nulls = {f.name: pa.nulls(table.num_rows, f.type) for f in RECORD_SCHEMA if f.name not in table.column_names}
    for name, column in nulls.items():
        table = table.append_column(name, column)
    return table.select(RECORD_SCHEMA.names).cast(RECORD_SCHEMA)


def as_rows(batches: list[pa.RecordBatch]) -> pd.DataFrame:
    return pd.DataFrame([json.loads(payload) for batch in batches for payload in batch.column("payload").to_pylist()])


@pytest.fixture(scope="module")
def flights() -> Flights:
    return load_flights(4000)


@pytest.fixture(scope="module")
def split_flights(spark: SparkSession, flights: Flights) -> dict[str, list[pa.RecordBatch]]:
    transformation = load_transformation(load_config(DATAFLOWS / "flight_delays"), spark)
    return transformation.run_tables({"flights": as_records([flights.records(k) for k in range(LOGS)])})


@pytest.mark.parametrize("name", ["flight_delays", "flight_names"])
def test_the_transformation_is_narrow(spark: SparkSession, name: str) -> None:
    checked = load_transformation(load_config(DATAFLOWS / name), spark).check()
    assert not [operator for operator in checked.operators if "Shuffle" in operator]
    assert all("id BIGINT" in columns for columns in checked.outputs.values())


def test_late_flights_are_delayed_and_those_that_never_left_cancelled(
    split_flights: dict[str, list[pa.RecordBatch]], flights: Flights
) -> None:
    assert compare("delayed", flights.delayed(), as_rows(split_flights["delayed"])).exact
    assert compare("cancelled", flights.cancelled(), as_rows(split_flights["cancelled"])).exact


def test_delayed_flights_keep_their_event_time(
    split_flights: dict[str, list[pa.RecordBatch]], flights: Flights
) -> None:
    times = [txid for batch in split_flights["delayed"] for txid in batch.column("txid").to_pylist()]
    ids = as_rows(split_flights["delayed"])["id"]
    expected = flights.table.set_index("id")["event_ms"]
    assert times == [expected[flight] for flight in ids]


def test_every_delayed_flight_gets_its_airlines_name_and_its_planes_maker(
    spark: SparkSession, split_flights: dict[str, list[pa.RecordBatch]], flights: Flights
) -> None:
    transformation = load_transformation(load_config(DATAFLOWS / "flight_names"), spark)
    named = as_rows(transformation.run_tables({"delayed": as_records(split_flights["delayed"])})["named"])
    assert compare("named", flights.named(*static_tables()), named).exact


def test_a_flight_that_is_no_json_fails_instead_of_vanishing(spark: SparkSession) -> None:
    transformation = load_transformation(load_config(DATAFLOWS / "flight_delays"), spark)
    broken = as_records([pa.record_batch({"payload": pa.array([b"{not json"], pa.binary())})])
    with pytest.raises(TransformationFailed):
        transformation.run_tables({"flights": broken})
