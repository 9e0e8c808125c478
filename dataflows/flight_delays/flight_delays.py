"""Flights in, two outputs: `delayed` (too late at either end) and `cancelled` (never left). The others are dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.functions import col

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from scribengin.spark.transform.transformation import TransformationContext

ROUTE = ("id", "time_hour", "carrier", "flight", "tailnum", "origin", "dest")


def transform(inputs: dict[str, DataFrame], context: TransformationContext) -> dict[str, DataFrame]:
    """`settings.late_minutes`: from how many minutes on a flight counts as delayed. `_txid` (event time) is kept."""
    flights = inputs["flights"]
    late_minutes = int(context.settings["late_minutes"])
    late = (col("dep_delay") > late_minutes) | (col("arr_delay") > late_minutes)
    return {
        "delayed": flights.where(late).select("_txid", *ROUTE, "dep_delay", "arr_delay"),
        "cancelled": flights.where(col("dep_time").isNull()).select(*ROUTE, "sched_dep_time"),
    }
