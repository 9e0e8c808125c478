"""Nexmark's queries by Spark Structured Streaming alone: from a topic into a topic, and from files into nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from scribengin_dev.bench.clients.spark.kafka import MS_PER_S, TUNED, Values, session_of
from scribengin_dev.bench.nexmark.events import SCHEMA_DDL
from scribengin_dev.bench.nexmark.queries import LATE_S, QUERIES, SHIPPED


def _fill(job: Values) -> dict[str, float]:
    """The files' events into the topic, in their order."""
    with session_of(job) as session:
        for file in sorted(Path(job["files"]).iterdir(), key=lambda file: file.stat().st_mtime):
            table = session.read.parquet(str(file)).selectExpr("payload AS value", "partition")
            table.coalesce(1).write.format("kafka").options(**_broker(job), topic=job["topic"]).save()
    return {}


def _query(job: Values) -> dict[str, float]:
    """The median rate of the query from each of the two sources, one after the other."""
    sides = {"kafka": _from_topic, "files": _from_files}
    with session_of(job, {**TUNED, "spark.sql.shuffle.partitions": str(job["cores"])}) as session:
        return {
            side: median(_rates(stream(session, job), job, f"{side}-{job['query']}")) for side, stream in sides.items()
        }


def _from_topic(session: SparkSession, job: Values) -> DataStreamWriter:
    stream = session.readStream.format("kafka").options(**_broker(job), subscribe=job["topic"])
    read = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", job["batch"]).load()
    written = _asked(session, read.selectExpr("value AS payload"), job["query"]).selectExpr(
        "to_json(struct(*)) AS value"
    )
    return written.writeStream.format("kafka").options(**_broker(job), topic=job["sink"])


def _from_files(session: SparkSession, job: Values) -> DataStreamWriter:
    stream = session.readStream.schema("payload BINARY").option("maxFilesPerTrigger", job["cores"])
    return _asked(session, stream.parquet(job["files"]), job["query"]).writeStream.format("noop")


def _asked(session: SparkSession, payloads: DataFrame, query: str) -> DataFrame:
    asked = QUERIES[query]
    events = payloads.selectExpr(f"from_json(cast(payload AS string), '{SCHEMA_DDL}') AS event").select("event.*")
    if asked.stateful and asked.watermark:
        events = events.withWatermark("ts", f"{LATE_S} seconds")
    if asked.function is not None:
        module, _, name = asked.function.partition(":")
        sys.path.insert(0, str(SHIPPED))
        found: DataFrame = getattr(import_module(module), name)({"events": events}, None)
        return found
    assert asked.sql is not None
    events.createOrReplaceTempView("events")
    return session.sql(asked.sql)


def _rates(stream: DataStreamWriter, job: Values, name: str) -> list[float]:
    """Events a second of its micro-batches, run by run, after those that warm it up. What closes windows in the end,
    without events, does not count: ours is measured up to the last events, too."""
    stream = stream.option("checkpointLocation", str(Path(job["folder"]) / name))
    query = stream.trigger(availableNow=True).start()
    query.awaitTermination()
    reading = [batch for batch in query.recentProgress if batch["numInputRows"]]
    warm, run, runs = (int(job[key]) for key in ("warm_batches", "run_batches", "runs"))
    assert len(reading) == warm + runs * run, f"{name} read {len(reading)} batches, and not {warm + runs * run}"
    took_ms = [int(batch["durationMs"]["triggerExecution"]) for batch in reading]
    begins = range(warm, len(reading), run)
    return [MS_PER_S * int(job["batch"]) * run / sum(took_ms[begin : begin + run]) for begin in begins]


def _broker(job: Values) -> dict[str, str]:
    return {"kafka.bootstrap.servers": job["bootstrap"]}


JOBS: Mapping[str, Callable[[Values], dict[str, float]]] = {"nexmark-fill": _fill, "nexmark-query": _query}
