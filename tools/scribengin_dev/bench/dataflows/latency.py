"""How long a record is on its way through a narrow dataflow, from a writer's call to a reader in another process.

Beside it stands Spark Structured Streaming, whose micro-batches follow each other as fast as they can, from Kafka to
Kafka: what people would use instead. All ends are processes of their own, and read the machine's monotonic clock.
"""

from __future__ import annotations

from statistics import median

from scribengin_dev.bench.clients.jobs import Job, run_pair, started
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

LATENCIES = {"latency-100": 100, "latency-1000": 1_000}
"""Benchmark -> records a second."""
_PER_TAIL_RECORD_S = 1 / 150
_GUARANTEE = (
    "exactly once: every round is staged, committed in one registry transaction, then shown; one worker, 1 task"
)


def latency(bench: FlowBench, name: str) -> list[Row]:
    """A row for half of the records, and one for all but one in a hundred."""
    per_s = LATENCIES[name]
    how: Job = {
        "per_s": per_s,
        "records": max(per_s, int(per_s * bench.scale.tail_records * _PER_TAIL_RECORD_S)),
        "record_bytes": RECORD_BYTES,
    }
    ours = _ours(bench, name, how)
    theirs, title = bench.measured_beside(lambda kafka: _peers_ways(bench, kafka, how))
    said = f"{per_s}/s of 1 KiB; {_GUARANTEE}"
    return [
        Row(row, "ms", median(way[key] for way in ours), median(way[key] for way in theirs) if theirs else None,
            title, said)
        for row, key in ((name, "p50_ms"), (f"{name}-p99", "p99_ms"))
    ]  # fmt: skip


def _ours(bench: FlowBench, name: str, how: Job) -> list[dict[str, float]]:
    place = bench.place
    source, sink = f"{name}-in/0", f"{name}-out"
    place.namespace.create(source)
    fill(place.namespace, source, RECORD_BYTES, WARM_UP_RECORDS)
    into = {"kind": "log", "log": sink}
    config = config_of(name, {"kind": "log", "logs": source}, into, sql="SELECT payload FROM src", executors=1)
    place.submit(config)
    log: Job = {"system": "log", "namespace": f"distributedlog-file://{place.registry.hosts}{NAMESPACE}", **how}
    with FlowProgress(place, config, "src") as flow:
        run_until_through(place, name, flow)
        ways = [
            run_pair(
                {**log, "job": "tail-read", "log": f"{sink}/0", "at_end": True},
                {**log, "job": "tail-write", "log": source},
            )
            for _ in range(bench.scale.peer_runs)
        ]
    place.desire(name, "stopped")
    place.await_state(name, "stopped", timeout_s=TIMEOUT_S)
    return ways


def _peers_ways(bench: FlowBench, kafka: KafkaPeer, how: Job) -> tuple[list[dict[str, float]], str]:
    spark = SparkKafkaPeer(kafka, bench.folder / f"{PEER}-{how['per_s']}")
    stream, writer, reader = spark.latency_jobs(cores=CORES, memory_mb=MEMORY_MB)
    kafka.produce(str(stream["topic"]), RECORD_BYTES, WARM_UP_RECORDS)
    with started(stream) as running:
        running.await_ready()
        ways = [run_pair({**reader, **how}, {**writer, **how}) for _ in range(bench.scale.peer_runs)]
    return ways, spark.title_of("micro-batches as fast as they can")
