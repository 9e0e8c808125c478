"""Joins of streams over records that have no key, or no time: what comes out is what one batch job gives."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from scribengin_registry.contract import Registry
from tests.integration.spark_samples import records
from tests.integration.state_batches import each_in_one_batch
from tests.integration.state_flow import FAR, StateFlow, at, drain

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

COLUMNS = "l.at AS at, l.who AS who, l.n AS n, r.who AS met, r.n AS m"
MADE = "nullif(l.who, 'nobody') = nullif(r.who, 'nobody')"
"""A key that is null for some values: Spark does not see that it may be."""


def joined(kind: str, key: str = "l.who = r.who", columns: str = COLUMNS) -> str:
    within = "r.at BETWEEN l.at AND l.at + INTERVAL 10 SECONDS"
    return f"SELECT {columns} FROM src l {kind} JOIN other r ON {key} AND {within}"


SQL = {
    "full": joined("FULL"),
    "semi_by_what_is_made": joined("LEFT SEMI", MADE, "l.at AS at, l.who AS who, l.n AS n"),
    "full_by_what_is_made": joined("FULL", MADE),
    "either": joined("FULL", "l.who <=> r.who"),
}
CONTAINED = {
    "left": joined("LEFT"),
    "right": joined("RIGHT"),
    "inner_by_what_is_made": joined("INNER", MADE),
}
"""What those give as well that give out all of both sides."""
Documents = Sequence[Mapping[str, Any]]
RECORDS: dict[str, Documents] = {
    "src": [
        {"at": at(100), "who": None, "n": 1},
        {"at": at(101), "who": "nobody", "n": 2},
        {"at": None, "who": "a", "n": 3},
        {"at": at(102), "who": "a", "n": 4},
        {"n": 5},
    ],
    "other": [
        {"at": at(102), "who": None, "n": 1},
        {"at": at(103), "who": "nobody", "n": 2},
        {"at": None, "who": "a", "n": 3},
        {"at": at(104), "who": "a", "n": 4},
        {"at": at(150), "who": "a", "n": 5},
    ],
}


def encoded(documents: Documents) -> list[bytes]:
    return [json.dumps(document).encode() for document in documents]


def in_order(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Without the records that only move the watermark."""
    return sorted(json.dumps(row, sort_keys=True) for row in rows if "z" not in (row.get("who"), row.get("met")))


@pytest.mark.parametrize("sql", [SQL, pytest.param(CONTAINED, marks=pytest.mark.full)], ids=["all", "contained"])
def test_what_has_no_key_meets_nothing_and_what_has_no_time_comes_out_alone(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path, sql: Mapping[str, str]
) -> None:
    """Spark's joins of streams found a key that is null equal to another one, where batch jobs do not. What has no time
    they kept for ever, and never gave it out."""
    sinks = {name: {"kind": "log", "log": name, "format": "json"} for name in sql}
    flow = StateFlow(
        memory_registry, spark, tmp_path, sql=sql, sinks=sinks, reads=["src", "other"], state={"partitions": 1}
    )
    for log, source in (("in/0", "src"), ("other", "other")):
        with flow.namespace.open_writer(log) as writer:
            payloads = pa.array(encoded(RECORDS[source]), pa.binary())
            writer.write_bulk(pa.record_batch([payloads], names=["payload"])).result(120)
    with flow.owner() as owner:
        owner.take_over()
        drain(owner)
        for log in ("in/0", "other"):
            flow.append(log, [(FAR, "z", 0)])
        drain(owner)
        kept = owner.state()
    with flow.open() as resources:
        at_once = replace(resources.transformation_spec(), state=None)
    expected = each_in_one_batch(at_once, spark, {name: records(encoded(of)) for name, of in RECORDS.items()})
    for name, rows in expected.items():
        assert in_order(flow.delivered(name)) == in_order([json.loads(row[0]) for row in rows]), name
    assert kept is not None
    assert max(kept.rows.values()) == 2, "the last record of each source"
