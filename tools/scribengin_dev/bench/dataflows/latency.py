"""How long a record is on its way through a dataflow, from a writer's call to a reader in another process: one that is
narrow, and one with windows.

Beside it stands Spark Structured Streaming, whose micro-batches follow each other as fast as they can, from Kafka to
Kafka: what people would use instead. All ends are processes of their own, and read the machine's monotonic clock.

Each record has a window of its own, which the next one closes. So a record's way through it goes on until the round
after the one that has read the next record.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

from scribengin_dev.bench.clients.jobs import Job, run_job, run_pair, started
from scribengin_dev.bench.dataflows.flow import (
    CORES,
    MEMORY_MB,
    PEER,
    RECORD_BYTES,
    TIMEOUT_S,
    WARM_UP_RECORDS,
    FlowBench,
    config_of,
    run_until_through,
)
from scribengin_dev.bench.peers.kafka import KafkaPeer
from scribengin_dev.bench.peers.spark import SparkKafkaPeer
from scribengin_dev.bench.rows import Row
from scribengin_dev.harness.installation import NAMESPACE
from scribengin_dev.harness.progress import FlowProgress
from scribengin_tools.logs.benchmark import fill

_PER_TAIL_RECORD_S = 1 / 150
_SCHEMA = "at TIMESTAMP, sent DOUBLE"
_MS_PER_S = 1000
_GUARANTEE = (
    "exactly once: every round is staged, committed in one registry transaction, then shown; one worker, 1 task"
)


@dataclass(frozen=True, slots=True)
class Way:
    """Records a second, and whether each goes through a window."""

    per_s: int
    windowed: bool = False

    @property
    def sql(self) -> str:
        """One statement for both sides."""
        window = f"window(at, '{_MS_PER_S // self.per_s} milliseconds')"
        return f"SELECT max(sent) AS sent FROM src GROUP BY {window}" if self.windowed else "SELECT payload FROM src"


LATENCIES = {
    "latency-100": Way(100),
    "latency-1000": Way(1_000),
    "latency-window-100": Way(100, windowed=True),
    "latency-window-1000": Way(1_000, windowed=True),
}


def latency(bench: FlowBench, name: str) -> list[Row]:
    """A row for half of the records, and one for all but one in a hundred."""
    way = LATENCIES[name]
    how: Job = {
        "per_s": way.per_s,
        "records": max(way.per_s, int(way.per_s * bench.scale.tail_records * _PER_TAIL_RECORD_S)),
        "record_bytes": RECORD_BYTES,
        "windowed": way.windowed,
    }
    ours = _ours(bench, name, how)
    theirs, title = bench.measured_beside(lambda kafka: _peers_ways(bench, kafka, name, how))
    through = f" through windows of one record, {CORES} partitions of state" if way.windowed else ""
    said = f"{way.per_s}/s of 1 KiB{through}; {_GUARANTEE}"
    return [
        Row(row, "ms", median(way[key] for way in ours), median(way[key] for way in theirs) if theirs else None,
            title, said)
        for row, key in ((name, "p50_ms"), (f"{name}-p99", "p99_ms"))
    ]  # fmt: skip


def _ours(bench: FlowBench, name: str, how: Job) -> list[dict[str, float]]:
    place, way = bench.place, LATENCIES[name]
    source, sink = f"{name}-in/0", f"{name}-out"
    place.namespace.create(source)
    log: Job = {"system": "log", "namespace": f"distributedlog-file://{place.registry.hosts}{NAMESPACE}", **how}
    writer: Job = {**log, "job": "tail-write", "log": source}
    if way.windowed:
        run_job({**writer, **_warming_up(way)})
    else:
        fill(place.namespace, source, RECORD_BYTES, WARM_UP_RECORDS)
    kinds: dict[str, Any] = {"format": "json", "schema_ddl": _SCHEMA} if way.windowed else {}
    does: dict[str, Any] = {"sql": way.sql}
    if way.windowed:
        does["state"] = {"partitions": CORES, "watermarks": {"src": {"column": "at"}}}
    into = {"kind": "log", "log": sink, "format": kinds.get("format", "raw")}
    config = config_of(name, {"kind": "log", "logs": source, **kinds}, into, executors=1, **does)
    place.submit(config)
    with FlowProgress(place, config, "src") as flow:
        run_until_through(place, name, flow)
        ways = [
            run_pair({**log, "job": "tail-read", "log": f"{sink}/0", "at_end": True}, writer)
            for _ in range(bench.scale.peer_runs)
        ]
    place.desire(name, "stopped")
    place.await_state(name, "stopped", timeout_s=TIMEOUT_S)
    return ways


def _peers_ways(bench: FlowBench, kafka: KafkaPeer, name: str, how: Job) -> tuple[list[dict[str, float]], str]:
    way = LATENCIES[name]
    spark = SparkKafkaPeer(kafka, bench.folder / f"{PEER}-{name}")
    stream, writer, reader = spark.latency_jobs(cores=CORES, memory_mb=MEMORY_MB)
    if way.windowed:
        stream |= {"sql": way.sql, "schema_ddl": _SCHEMA}
        run_job({**writer, **how, **_warming_up(way)})
    else:
        kafka.produce(str(stream["topic"]), RECORD_BYTES, WARM_UP_RECORDS)
    with started(stream) as running:
        running.await_ready()
        ways = [run_pair({**reader, **how}, {**writer, **how}) for _ in range(bench.scale.peer_runs)]
    batches = "micro-batches as fast as they can"
    return ways, spark.title_of(f"{batches}, RocksDB with changelogs" if way.windowed else batches)


def _warming_up(way: Way) -> Job:
    """Fewer records than those that are measured, at their rate, and so with times before those."""
    return {"records": way.per_s}
