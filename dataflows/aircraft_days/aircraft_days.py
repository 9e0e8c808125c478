"""Sessions of aircraft: flights by tail number, with no more than a rest between two scheduled departures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from scribengin.spark.transform.transformation import TransformationContext


def transform(inputs: dict[str, DataFrame], context: TransformationContext) -> DataFrame:
    """`settings.rest_hours` ends a session; a flight may come `settings.late_hours` after later ones. `_txid` is when a
    flight was scheduled to leave. Flights that never left, or of no known aircraft, are dropped."""
    left = inputs["flights"].where(F.col("dep_time").isNotNull() & F.col("tailnum").isNotNull())
    timed = left.withColumn("at", F.timestamp_millis("_txid"))
    timed = timed.withWatermark("at", f"{context.settings['late_hours']} hours")
    session = F.session_window("at", f"{context.settings['rest_hours']} hours")
    sessions = timed.groupBy(session, "tailnum").agg(
        F.count("*").alias("flights"),
        F.min(F.struct("at", "id", "origin", "dest")).alias("first"),  # of two at one time the one with the lower id
        F.max(F.struct("at", "id", "origin", "dest")).alias("last"),
    )
    return sessions.select(
        "tailnum",
        "flights",
        F.col("first.at").alias("begins"),
        F.col("first.origin").alias("origin"),
        F.col("last.at").alias("ends"),
        F.col("last.dest").alias("dest"),
    )
