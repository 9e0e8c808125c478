"""Joins delayed flights with two static tables of this package. Both are broadcast, so the join moves no record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.functions import broadcast, col, greatest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from scribengin.spark.transform.transformation import TransformationContext


def transform(inputs: dict[str, DataFrame], context: TransformationContext) -> DataFrame:
    """Every delayed flight once. `airline`, `maker` and `model` are null where the tables do not know the flight's."""
    airlines = _table(context, "airlines.csv", "carrier STRING, airline STRING")
    planes = _table(context, "planes.csv", "tailnum STRING, maker STRING, model STRING")
    flights = inputs["delayed"].join(broadcast(airlines), "carrier", "left").join(broadcast(planes), "tailnum", "left")
    return flights.select(
        "_txid", "id", "time_hour", "carrier", "airline", "flight", "tailnum", "maker", "model", "origin", "dest",
        greatest(col("dep_delay"), col("arr_delay")).alias("delay"),
    )  # fmt: skip


def _table(context: TransformationContext, file: str, schema: str) -> DataFrame:
    return context.spark.read.csv(context.path(file), schema=schema, header=True, mode="FAILFAST")
