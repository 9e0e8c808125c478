"""Finding the records of a source that cannot be decoded, in one job: decoded as in a round, but nothing stops it."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from scribengin.connectors.contract import PAYLOAD
from scribengin.spark.session.failures import SPARK_ERRORS, failure
from scribengin.spark.session.session import activate, session_beside
from scribengin.spark.transform.encoding import NO_DOCUMENT, undecodable
from scribengin.spark.transform.input import FORMAT, InputBinding, RoundSource, spark_schema
from scribengin.spark.transform.plan_pool import Shape
from scribengin.spark.transform.spec import InputSpec

_ROW = "scribengin row"  # no name that a column of a source would have


class Screen:
    """Of one source of format `json`. Any thread may use it, one at a time."""

    def __init__(self, spec: InputSpec, session: SparkSession, directory: Path, partitions: int, *, remote: bool):
        """`directory` is empty and the screen's own. `remote`: see `scribengin.spark.transform.plan_pool.Shape`."""
        self._spec = spec
        self._schema = pa.schema([pa.field(_ROW, pa.int64()), pa.field(PAYLOAD, pa.binary())])
        self._binding = InputBinding(directory, partitions, remote)
        self._lock = threading.Lock()
        self._session = session_beside(session)
        self._frame: DataFrame | None = None

    def undecodable(self, table: pa.Table) -> dict[int, str]:
        """The rows of `table` that cannot be decoded, and why. Raises SparkUnavailable."""
        numbers = pa.array(range(table.num_rows), pa.int64())
        payloads = table.column(PAYLOAD).cast(pa.binary())
        with self._lock:
            try:
                found = self._run(pa.table([numbers, payloads], schema=self._schema))
            except SPARK_ERRORS as error:
                raise failure(error, f"decoding the records of source '{self._spec.name}'") from error
        return {row: why_undecodable(payloads[row].as_py(), self._spec.schema_ddl or "") for row in found}

    def _run(self, rows: pa.Table) -> Sequence[int]:
        self._binding.bind(self._binding.write(rows))
        try:
            if self._frame is None or self._binding.embedded:
                self._frame = self._planned()
            return sorted(row[_ROW] for row in self._frame.collect())
        finally:
            self._binding.unbind()

    def _planned(self) -> DataFrame:
        activate(self._session)
        self._session.dataSource.register(RoundSource)
        binding = self._binding
        reader = self._session.read.format(FORMAT).schema(spark_schema(self._schema, self._spec.name))
        frame = reader.options(
            directory=str(binding.directory), partitions=binding.partitions, embedded=binding.embedded
        ).load()
        return undecodable(frame, self._spec, _ROW)


class Screens:
    """Those of all sources of a transformation, each made when it is first wanted. Any thread may use them."""

    def __init__(self, inputs: Mapping[str, InputSpec], session: SparkSession, directory: Path, shape: Shape) -> None:
        """`directory` is there, and theirs to make directories in."""
        self._inputs = inputs
        self._session = session
        self._directory = directory
        self._shape = shape
        self._lock = threading.Lock()
        self._made: dict[str, Screen] = {}

    def undecodable(self, inputs: Mapping[str, pa.Table]) -> dict[str, dict[int, str]]:
        """By source, the rows on which decoding raises, and why: one job a source of format `json`, for all its rows.

        Raises SparkUnavailable, ConfigInvalid.
        """
        return {
            name: self._of(name).undecodable(table)
            for name, table in inputs.items()
            if self._inputs[name].format == "json" and table.num_rows
        }

    def _of(self, source: str) -> Screen:
        with self._lock:
            if source not in self._made:
                directory = self._directory / f"screen-{len(self._made)}"
                directory.mkdir()
                spec, shape = self._inputs[source], self._shape
                self._made[source] = Screen(spec, self._session, directory, shape.partitions, remote=shape.remote)
            return self._made[source]


def why_undecodable(payload: bytes | None, schema_ddl: str) -> str:
    """What is wrong with a payload that Spark could not decode."""
    if payload is None:
        return f"{NO_DOCUMENT}: it is null"
    try:
        document = json.loads(payload.decode())
    except UnicodeDecodeError as error:
        return f"malformed JSON: no UTF-8 text: {error.reason} at byte {error.start}"
    except (ValueError, RecursionError) as error:
        return f"malformed JSON: {error}"
    return f"malformed JSON: its fields do not fit {schema_ddl}" if isinstance(document, dict) else NO_DOCUMENT
