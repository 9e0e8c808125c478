"""Records and specifications for the tests of the Spark room."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from scribengin.connectors.contract import RECORD_SCHEMA
from scribengin.spark.transform.transformation import InputSpec, OutputSpec, TransformationSpec

UPPER = "SELECT upper(cast(payload as string)) AS payload FROM src"
FLIGHTS = "id INT, carrier STRING"


def records(payloads: Sequence[bytes | None]) -> pa.Table:
    count = len(payloads)
    keys = [f"k{n}".encode() for n in range(count)]
    columns = [range(count), ["c"] * count, keys, payloads]
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, RECORD_SCHEMA, strict=True)],
        schema=RECORD_SCHEMA,
    )


def spec(
    function: str | None = None,
    sql: Mapping[str, str] | None = None,
    package: Path | None = None,
    inputs: Sequence[InputSpec] = (InputSpec("src", RECORD_SCHEMA),),
    outputs: Sequence[OutputSpec] = (OutputSpec("out"),),
    settings: Mapping[str, Any] | None = None,
) -> TransformationSpec:
    return TransformationSpec(
        "flow", function, sql, package, settings or {}, {i.name: i for i in inputs}, {o.name: o for o in outputs}
    )


def payloads(batches: Sequence[pa.RecordBatch]) -> list[bytes]:
    return [value for batch in batches for value in batch.column("payload").to_pylist()]


def documents(batches: Sequence[pa.RecordBatch]) -> list[Any]:
    return [json.loads(payload) for payload in payloads(batches)]


def json_input(ddl: str = FLIGHTS) -> InputSpec:
    return InputSpec("src", RECORD_SCHEMA, "json", ddl)
