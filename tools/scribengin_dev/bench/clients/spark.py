"""Spark Structured Streaming from Kafka to Kafka, in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import SparkSession

from scribengin.spark.session.session import start_session, stop_session

Values = Mapping[str, Any]
_MS_PER_S = 1000


def _kafka_sql_kafka(job: Values) -> dict[str, float]:
    """Stream each of the topics to its end; the median rate of all but the first, which warms Spark up."""
    conf = {"spark.jars": ",".join(job["jars"])}
    session = start_session("peer", master=f"local[{job['cores']}]", memory_mb=job["memory_mb"], conf=conf)
    try:
        rates = [_rate(session, job, topic, records) for topic, records in job["topics"]]
    finally:
        stop_session()
    return {"records_per_s": median(rates[1:])}


def _rate(session: SparkSession, job: Values, topic: str, records: int) -> float:
    broker = {"kafka.bootstrap.servers": job["bootstrap"]}
    stream = session.readStream.format("kafka").options(**broker, subscribe=topic, startingOffsets="earliest")
    upper = stream.load().selectExpr("upper(cast(value AS string)) AS value")
    checkpoint = str(Path(job["folder"]) / topic)
    written = upper.writeStream.format("kafka").options(**broker, topic=job["sink"], checkpointLocation=checkpoint)
    query = written.trigger(availableNow=True).start()
    query.awaitTermination()
    batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
    moved = sum(progress["numInputRows"] for progress in batches)
    assert moved == records, f"{moved} records were moved, and not {records}"
    took_ms = sum(int(progress["durationMs"]["triggerExecution"]) for progress in batches)
    return _MS_PER_S * records / took_ms


JOBS: Mapping[str, Callable[[Values], dict[str, float]]] = {"kafka-sql-kafka": _kafka_sql_kafka}
