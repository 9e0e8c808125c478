"""A transformation with state over tables in hand, as one batch job: what its stream should come to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from scribengin.spark.session.session import session_beside
from scribengin.spark.transform.output import MemoryCollector, outputs_of, unite
from scribengin.spark.transform.plan_builder import PlanBuilder
from scribengin.spark.transform.spec import TransformationSpec

Rows = list[tuple[Any, ...]]


def in_one_batch(spec: TransformationSpec, spark: SparkSession, tables: Mapping[str, pa.Table]) -> Rows:
    """What the transformation makes of all records at once, as a batch job of Spark: sorted."""
    [frame] = _encoded(spec, spark, tables).values()
    return rows_of([batch for batch in frame.toArrow().to_batches() if batch.num_rows])


def each_in_one_batch(
    spec: TransformationSpec, spark: SparkSession, tables: Mapping[str, pa.Table]
) -> Mapping[str, Rows]:
    """The same of each output, by one job for all of them."""
    unioned = unite(_encoded(spec, spark, tables), spec.outputs)
    found = outputs_of(MemoryCollector(unioned.frame).execute(), unioned.outputs)
    return {output: rows_of(batches) for output, batches in found.items()}


def _encoded(spec: TransformationSpec, spark: SparkSession, tables: Mapping[str, pa.Table]) -> Mapping[str, DataFrame]:
    session = session_beside(spark, {})
    frames = {source: session.createDataFrame(table) for source, table in tables.items()}
    return PlanBuilder(spec).build(session, frames).encoded


def rows_of(batches: Iterable[pa.RecordBatch]) -> Rows:
    """As tuples, sorted."""
    return sorted((tuple(row.values()) for batch in batches for row in batch.to_pylist()), key=repr)
