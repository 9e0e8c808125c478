"""A transformation with state over tables in hand, as one batch job: what its stream should come to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from scribengin.spark.session.session import session_beside
from scribengin.spark.transform.plan_builder import PlanBuilder
from scribengin.spark.transform.spec import TransformationSpec

Rows = list[tuple[Any, ...]]


def in_one_batch(spec: TransformationSpec, spark: SparkSession, tables: Mapping[str, pa.Table]) -> Rows:
    """What the transformation makes of all records at once, as a batch job of Spark: sorted."""
    session = session_beside(spark, {})
    frames = {source: session.createDataFrame(table) for source, table in tables.items()}
    [frame] = PlanBuilder(spec).build(session, frames).encoded.values()
    return rows_of([batch for batch in frame.toArrow().to_batches() if batch.num_rows])


def rows_of(batches: list[pa.RecordBatch]) -> Rows:
    """As tuples, sorted."""
    return sorted((tuple(row.values()) for batch in batches for row in batch.to_pylist()), key=repr)
