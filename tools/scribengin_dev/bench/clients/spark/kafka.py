"""Spark Structured Streaming from Kafka to Kafka, in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from scribengin.spark.session.session import start_session, stop_session

Values = Mapping[str, Any]
MS_PER_S = 1000
_STATE = "spark.sql.streaming.stateStore"
TUNED = {
    f"{_STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
}
"""What users of state set, beside as many partitions of it as cores: state that is not on Java's heap."""


_AS_IT_IS = "CAST(value AS BINARY) AS value"


def _kafka_sql_kafka(job: Values) -> dict[str, float]:
    """Stream each of the topics to its end; the median rate of all but the first, which warms Spark up."""
    with session_of(job) as session:
        rates = [_rate(session, job, topic, records) for topic, records in job["topics"]]
    return {"records_per_s": median(rates[1:])}


def _kafka_stream(job: Values) -> dict[str, float]:
    """Stream the topic for as long as the process lives: as it is, or through windows."""
    conf = {**TUNED, "spark.sql.shuffle.partitions": str(job["cores"])}
    with session_of(job, conf) as session:
        windowed = "sql" in job
        query = (_windows(session, job) if windowed else _stream(session, job, job["topic"], _AS_IT_IS)).start()
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
    return _into_sink(job, topic, _read(session, job, topic).selectExpr(value))


def _windows(session: SparkSession, job: Values) -> DataStreamWriter:
    """What the job's statement makes of the topic's records, which are JSON and have a watermark."""
    parsed = f"from_json(cast(value AS string), '{job['schema_ddl']}') AS record"
    records = _read(session, job, job["topic"]).selectExpr(parsed).select("record.*")
    records.withWatermark("at", "0 seconds").createOrReplaceTempView("src")
    return _into_sink(job, job["topic"], session.sql(job["sql"]).selectExpr("to_json(struct(*)) AS value"))


def _read(session: SparkSession, job: Values, topic: str) -> DataFrame:
    broker = {"kafka.bootstrap.servers": job["bootstrap"]}
    return session.readStream.format("kafka").options(**broker, subscribe=topic, startingOffsets="earliest").load()


def _into_sink(job: Values, topic: str, values: DataFrame) -> DataStreamWriter:
    options = {"kafka.bootstrap.servers": job["bootstrap"], "topic": job["sink"]}
    checkpoint = str(Path(job["folder"]) / topic)
    return values.writeStream.format("kafka").options(**options, checkpointLocation=checkpoint)


JOBS: Mapping[str, Callable[[Values], dict[str, float]]] = {
    "kafka-sql-kafka": _kafka_sql_kafka,
    "kafka-stream": _kafka_stream,
}
