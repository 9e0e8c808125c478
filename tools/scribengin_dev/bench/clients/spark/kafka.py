"""Spark Structured Streaming from Kafka to Kafka, in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from scribengin.spark.session.session import start_session, stop_session

Values = Mapping[str, Any]
MS_PER_S = 1000


def _kafka_sql_kafka(job: Values) -> dict[str, float]:
    """Stream each of the topics to its end; the median rate of all but the first, which warms Spark up."""
    with session_of(job) as session:
        rates = [_rate(session, job, topic, records) for topic, records in job["topics"]]
    return {"records_per_s": median(rates[1:])}


def _kafka_stream(job: Values) -> dict[str, float]:
    """Stream the topic for as long as the process lives."""
    with session_of(job) as session:
        query = _stream(session, job, job["topic"], "CAST(value AS BINARY) AS value").start()
        while "Waiting" not in query.status["message"]:
            query.awaitTermination(1)  # raises what ended it
        print("ready", flush=True)
        query.awaitTermination()
    return {}


def _rate(session: SparkSession, job: Values, topic: str, records: int) -> float:
    stream = _stream(session, job, topic, "upper(cast(value AS string)) AS value")
    query = stream.trigger(availableNow=True).start()
    query.awaitTermination()
    batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
    moved = sum(progress["numInputRows"] for progress in batches)
    assert moved == records, f"{moved} records were moved, and not {records}"
    took_ms = sum(int(progress["durationMs"]["triggerExecution"]) for progress in batches)
    return MS_PER_S * records / took_ms


@contextmanager
def session_of(job: Values, conf: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Spark with Kafka's connector, on as many cores as the job says."""
    conf = {"spark.jars": ",".join(job["jars"]), **(conf or {})}
    try:
        yield start_session("peer", master=f"local[{job['cores']}]", memory_mb=job["memory_mb"], conf=conf)
    finally:
        stop_session()


def _stream(session: SparkSession, job: Values, topic: str, value: str) -> DataStreamWriter:
    """From a topic into the job's sink."""
    broker = {"kafka.bootstrap.servers": job["bootstrap"]}
    stream = session.readStream.format("kafka").options(**broker, subscribe=topic, startingOffsets="earliest")
    checkpoint = str(Path(job["folder"]) / topic)
    written = stream.load().selectExpr(value).writeStream
    return written.format("kafka").options(**broker, topic=job["sink"], checkpointLocation=checkpoint)


JOBS: Mapping[str, Callable[[Values], dict[str, float]]] = {
    "kafka-sql-kafka": _kafka_sql_kafka,
    "kafka-stream": _kafka_stream,
}
