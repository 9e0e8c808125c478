"""Nexmark's queries: each makes of the same events what pandas makes, and keeps the state that it is about."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from scribengin.connectors.contract import RECORD_SCHEMA
from scribengin.spark.stateful.transformation import StatefulTransformation
from scribengin.spark.transform.spec import InputSpec, OutputSpec, StateSpec, TransformationSpec, WatermarkSpec
from scribengin_dev.bench.nexmark.events import SCHEMA_DDL, events
from scribengin_dev.bench.nexmark.queries import LATE_S, QUERIES, SHIPPED
from tests.integration.state_batches import in_one_batch

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

PARTS = ((0, 1_500), (90_000, 1_500), (260_000, 1_500))
"""Parts of the events, which are seconds apart: they lie in two windows, and in two sessions."""
Rows = pd.DataFrame


def specified(name: str) -> TransformationSpec:
    query = QUERIES[name]
    watermarks = {"events": WatermarkSpec("ts", LATE_S)} if query.watermark else {}
    return TransformationSpec(
        dataflow="nexmark",
        function=query.function,
        sql=None if query.sql is None else {"out": query.sql},
        package_dir=SHIPPED,
        settings={},
        inputs={"events": InputSpec("events", RECORD_SCHEMA, "json", SCHEMA_DDL)},
        outputs={"out": OutputSpec("out", "json")},
        state=StateSpec(2, 64, watermarks, query.unbounded) if query.stateful else None,
    )


@pytest.fixture(scope="module")
def records() -> pa.Table:
    payloads = pa.concat_arrays([events(first, count) for first, count in PARTS])
    nulls = {field.name: pa.nulls(len(payloads), field.type) for field in RECORD_SCHEMA}
    return pa.table({**nulls, "payload": payloads, "txid": [0] * len(payloads)}, schema=RECORD_SCHEMA)


@pytest.fixture(scope="module")
def happened(records: pa.Table) -> Rows:
    table = pd.DataFrame([json.loads(payload) for payload in records["payload"].to_pylist()])
    return table.assign(ts=pd.to_datetime(table["ts"]), window=pd.to_datetime(table["ts"]).dt.floor("10s"))


def bids(table: Rows) -> Rows:
    return table[table["kind"] == 2].astype({"auction": int, "bidder": int, "price": int})


def passed_on(table: Rows) -> Rows:
    return bids(table)[["auction", "bidder", "price", "ts"]]


def in_another_currency(table: Rows) -> Rows:
    rows = passed_on(table)
    return rows.assign(price=(rows["price"] * 908 // 1000))


def of_some_auctions(table: Rows) -> Rows:
    rows = bids(table)
    return rows.loc[rows["auction"] % 123 == 0, ["auction", "price"]]


def local_sellers(table: Rows) -> Rows:
    people = table[(table["kind"] == 0) & table["state"].isin(["OR", "ID", "CA"])]
    auctions = table[(table["kind"] == 1) & (table["category"] == 10)]
    joined = auctions[["id", "seller"]].merge(
        people[["id", "name", "city", "state"]].rename(columns={"id": "seller"}), on="seller"
    )
    return joined[["name", "city", "state", "id"]].astype({"id": int})


def hottest(table: Rows) -> Rows:
    rows = bids(table)
    slid = pd.concat(
        [rows.assign(begins=rows["ts"].dt.floor("2s") - pd.Timedelta(seconds=back)) for back in range(0, 10, 2)]
    )
    counts = slid.groupby(["begins", "auction"]).size().rename("bids").reset_index()
    most = counts.sort_values(["begins", "bids", "auction"]).groupby("begins").last().reset_index()
    most["hottest"] = [{"bids": row.bids, "auction": row.auction} for row in most.itertuples()]
    return most[["begins", "hottest"]]


def highest(table: Rows) -> Rows:
    rows = bids(table)
    best = rows.groupby("window")["price"].transform("max") == rows["price"]
    return rows.loc[best, ["auction", "price", "bidder", "ts"]]


def new_sellers(table: Rows) -> Rows:
    people = table.loc[table["kind"] == 0, ["id", "name", "window"]]
    sellers = table.loc[table["kind"] == 1, ["seller", "window"]].drop_duplicates()
    joined = people.merge(sellers, left_on=["id", "window"], right_on=["seller", "window"])
    return joined[["id", "name", "window"]].rename(columns={"window": "begins"}).astype({"id": int})


def sessions(table: Rows) -> Rows:
    rows = bids(table).sort_values(["bidder", "ts"])
    apart = (rows["bidder"] != rows["bidder"].shift()) | (rows["ts"].diff() > pd.Timedelta(seconds=10))
    found = rows.groupby(apart.cumsum()).agg(
        bidder=("bidder", "first"), begins=("ts", "min"), last=("ts", "max"), bids=("ts", "size")
    )
    return found.assign(ends=found["last"] + pd.Timedelta(seconds=10))[["bidder", "begins", "ends", "bids"]]


def in_order(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


def as_json(table: Rows) -> list[str]:
    shown = {
        name: column.dt.strftime("%Y-%m-%dT%H:%M:%S.%f").str[:-3] + "Z"
        for name, column in table.items()
        if pd.api.types.is_datetime64_any_dtype(column)
    }
    return in_order(json.loads(table.assign(**shown).to_json(orient="records")))


CASES: dict[str, Callable[[Rows], Rows]] = {
    "q0": passed_on,
    "q1": in_another_currency,
    "q2": of_some_auctions,
    "q3": local_sellers,
    "q5": hottest,
    "q7": highest,
    "q8": new_sellers,
    "q11": sessions,
}


ALONE = ("q1", "q2")
"""A projection and a filter, as others have them within."""


@pytest.mark.parametrize(
    "query", [pytest.param(name, marks=pytest.mark.full) if name in ALONE else name for name in CASES]
)
def test_a_query_makes_of_the_events_what_pandas_makes(
    spark: SparkSession, records: pa.Table, happened: Rows, query: str
) -> None:
    found = in_order([json.loads(row[0]) for row in in_one_batch(specified(query), spark, {"events": records})])
    assert found == as_json(CASES[query](happened)), f"{found}"
    assert len(found) >= 2


def test_bids_are_counted_by_when_they_came(spark: SparkSession, records: pa.Table, happened: Rows) -> None:
    rows = [json.loads(row[0]) for row in in_one_batch(specified("q12"), spark, {"events": records})]
    counted = {row["bidder"]: row["bids"] for row in rows}
    assert counted == bids(happened).groupby("bidder").size().to_dict(), f"{counted}"


@pytest.mark.parametrize(
    ("query", "keeping"),
    [
        ("q3", ("join",)),
        ("q5", ("aggregate-1", "aggregate-2")),
        pytest.param("q7", ("join", "aggregate"), marks=pytest.mark.full),
        ("q8", ("join", "aggregate-1", "aggregate-2")),
        ("q11", ("session",)),
        ("q12", ("aggregate",)),
    ],
)
def test_a_query_runs_as_a_stream_with_its_state(spark: SparkSession, query: str, keeping: tuple[str, ...]) -> None:
    assert StatefulTransformation.load(specified(query), spark).check().operators == keeping
