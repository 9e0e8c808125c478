"""Nexmark from our logs to our logs, beside Spark Structured Streaming alone, and Flink, on as many cores.

The same events stand in two logs, in two partitions of a topic, and in Parquet files, as the same JSON; the same SQL
reads them, in rounds and micro-batches of as many events. All sides are warm when the time begins. Java compiles for
the first two million events, and takes half as long for each of those that follow. So each side reads that many in one
process, and what comes then is measured.
"""

from __future__ import annotations

import os
from itertools import pairwise
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from scribengin.dataflow.config import DataflowConfig
from scribengin_dev.bench.clients.jobs import Job, run_job
from scribengin_dev.bench.dataflows.flow import CORES, FLINK, MEMORY_MB, PEER, TIMEOUT_S, FlowBench, config_of
from scribengin_dev.bench.nexmark.events import SCHEMA_DDL, events
from scribengin_dev.bench.nexmark.queries import LATE_S, QUERIES, SHIPPED
from scribengin_dev.bench.peers.flink import FlinkPeer
from scribengin_dev.bench.peers.kafka import KafkaPeer
from scribengin_dev.bench.peers.spark import SparkKafkaPeer
from scribengin_dev.bench.rows import Row
from scribengin_dev.harness.installation import Installation
from scribengin_dev.harness.progress import FlowProgress, last_commit_ms

NEXMARK = {f"nexmark-{query}": query for query in QUERIES}
"""Benchmark -> query."""
_BATCHES_PER_RUN = 6
_WARM_BATCHES = 24
_LOGS = "nexmark"
_GUARANTEE = (
    "exactly once: every round is staged, committed in one registry transaction, then shown, every fsync before what "
    "depends on it; from JSON in 2 logs to JSON in a log, one worker"
)


class NexmarkBench:
    """The events, made once: in logs, in files, and in a topic if the peer is wanted."""

    def __init__(self, bench: FlowBench) -> None:
        self._bench = bench
        self._batch = bench.scale.flow_records // _BATCHES_PER_RUN
        self._runs = bench.scale.peer_runs
        self._batches = _WARM_BATCHES + self._runs * _BATCHES_PER_RUN
        self._files = bench.folder / "nexmark"
        self._spark: SparkKafkaPeer | None = None
        self._flink: FlinkPeer | None = None
        self._topic: str | None = None

    def rows(self, query: str) -> list[Row]:
        """Beside Spark and Flink from the topic into another, and beside Spark from the files, whose output nobody
        gets."""
        if not self._files.exists():
            self._make_events()
        ours = self._ours(query)
        theirs, title = self._bench.measured_beside(lambda kafka: self._rates_of_peers(kafka, query))
        by_flink, flink = self._bench.measured_beside(lambda kafka: self._rate_of_flink(kafka, query), FLINK)
        name = f"nexmark-{query}"
        from_files = (
            "Spark Structured Streaming alone, the same events from Parquet files in memory, the output dropped: "
            "no source to ask, no sink, its own checkpoints"
        )
        said = f"{self._batch:,} events a round; {_GUARANTEE}, {_tasks(query)}"
        return [
            Row(name, "events/s", ours, theirs["kafka"] if theirs else None, title, said),
            Row(f"{name}/memory", "events/s", ours, theirs["files"] if theirs else None, from_files, said),
            Row(f"{name}/flink", "events/s", ours, by_flink, flink, said),
        ]

    def _make_events(self) -> None:
        """Logs and files. The files of a batch are as old as its number says: Spark reads them in that order."""
        self._files.mkdir()
        logs = [f"{_LOGS}/{k}" for k in range(CORES)]
        for log in logs:
            self._bench.place.namespace.create(log)
        for batch in range(self._batches):
            made = events(batch * self._batch, self._batch)
            for k, log in enumerate(logs):
                part = made.take(pa.array(range(k, len(made), CORES)))
                with self._bench.place.namespace.open_writer(log) as writer:
                    writer.write_bulk(pa.record_batch([part], names=["payload"])).result(TIMEOUT_S)
                file = self._files / f"{batch}-{k}.parquet"
                numbers = pa.array([k] * len(part), pa.int32())
                pq.write_table(pa.table({"payload": part, "partition": numbers}), file)
                os.utime(file, (batch, batch))

    def _ours(self, query: str) -> float:
        """Events a second: the median of the runs, each from a commit with which enough are through to the next such.
        A run that ends with the last of all ends with the last commit."""
        place = self._bench.place
        name = f"nexmark-{query}"
        config = _config(name, query, self._batch)
        place.submit(config)
        with FlowProgress(place, config, "events") as flow:
            ends = [_WARM_BATCHES + run * _BATCHES_PER_RUN for run in range(self._runs + 1)]
            passed = [await_consumed(place, flow, batches * self._batch) for batches in ends]
            passed[-1] = (last_commit_ms(flow), passed[-1][1])
        place.desire(name, "stopped")
        place.await_state(name, "stopped", timeout_s=TIMEOUT_S)
        return median(_rate(begin, end) for begin, end in pairwise(passed))

    def _rates_of_peers(self, kafka: KafkaPeer, query: str) -> tuple[dict[str, float], str]:
        spark, job, topic = self._filled(kafka)
        asked: Job = {
            "topic": topic,
            "sink": kafka.new_topic(partitions=CORES),
            "query": query,
            "batch": self._batch,
            "warm_batches": _WARM_BATCHES,
            "run_batches": _BATCHES_PER_RUN,
            "runs": self._runs,
        }
        return run_job({**job, **asked}), spark.title_of("RocksDB with changelogs")

    def _rate_of_flink(self, kafka: KafkaPeer, query: str) -> tuple[float, str]:
        flink = self._flink = self._flink or FlinkPeer(kafka, self._bench.folder / f"{FLINK}-nexmark")
        _spark, _job, topic = self._filled(kafka)
        warm, whole = ([batches * self._batch // CORES] * CORES for batches in (_WARM_BATCHES, self._batches))
        rate = flink.rate(query, topic, [warm, whole], runs=self._runs, cores=CORES, memory_mb=MEMORY_MB)
        return rate, flink.title

    def _filled(self, kafka: KafkaPeer) -> tuple[SparkKafkaPeer, Job, str]:
        """Spark beside that broker, what it is told in any case, and the topic that has the events."""
        spark = self._spark = self._spark or SparkKafkaPeer(kafka, self._bench.folder / f"{PEER}-nexmark")
        job = {**spark.job("nexmark-query", CORES, MEMORY_MB), "files": str(self._files)}
        if self._topic is None:
            topic = kafka.new_topic(partitions=CORES)
            run_job({**job, "job": "nexmark-fill", "topic": topic})
            self._topic = topic
        return spark, job, self._topic


def _tasks(query: str) -> str:
    if QUERIES[query].stateful:
        return f"1 task with {CORES} partitions of state"
    return f"{CORES} tasks"


def await_consumed(place: Installation, flow: FlowProgress, count: int) -> tuple[int, int]:
    """(when, in ms of the registry; how many): once so many events are committed. What is committed while it looks is
    counted and not yet timed: a rate that begins there is never too high."""
    at_ms, consumed = 0, 0

    def reached() -> bool:
        nonlocal at_ms, consumed
        place.check(flow.dataflow)
        at_ms, consumed = last_commit_ms(flow), flow.consumed()
        return consumed >= count

    place.wait_until(reached, TIMEOUT_S, f"{flow.dataflow} to read {count:,} events")
    return at_ms, consumed


def _rate(begin: tuple[int, int], end: tuple[int, int]) -> float:
    """Events a second between two times, of (ms, events by then)."""
    return 1000 * (end[1] - begin[1]) / max(1, end[0] - begin[0])


def _config(name: str, query: str, batch: int) -> DataflowConfig:
    asked = QUERIES[query]
    does: dict[str, Any] = {"sql": asked.sql}
    if asked.function is not None:
        does |= {"package": str(SHIPPED), "transformation": asked.function}
    if asked.stateful:
        watermarks = {"events": {"column": "ts", "delay_s": LATE_S}} if asked.watermark else {}
        does["state"] = {"partitions": CORES, "watermarks": watermarks, "unbounded": list(asked.unbounded)}
    source = {"kind": "log", "logs": f"{_LOGS}/*", "format": "json", "schema_ddl": SCHEMA_DDL}
    sink = {"kind": "log", "log": f"{name}-out", "format": "json"}
    does["round"] = {"records_max": batch // CORES}
    return config_of(name, source, sink, source_name="events", executors=1 if asked.stateful else CORES, **does)
