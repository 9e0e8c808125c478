"""Real dataflows, through SQL, from logs to logs and from Kafka to Kafka: a master, a worker, rounds and their commits.

Beside both stands Spark Structured Streaming from Kafka to Kafka, on the same cores: what people would use instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from scribengin.base.clock import Clock
from scribengin.dataflow.config import DataflowConfig
from scribengin.errors import ServerError
from scribengin_dev.bench.peers.kafka import KafkaPeer
from scribengin_dev.bench.peers.peers import Peers
from scribengin_dev.bench.peers.spark import SparkKafkaPeer
from scribengin_dev.bench.rows import Row, Scale
from scribengin_dev.harness.installation import Installation
from scribengin_dev.harness.progress import FlowProgress
from scribengin_dev.harness.standstill import SeenCommit
from scribengin_tools.logs.benchmark import fill

PEER, FLINK = "spark", "flink"
CORES = 2
MEMORY_MB = 6144
_STREAMS = CORES
RECORD_BYTES = 1024
WARM_UP_RECORDS = 2_000
TIMEOUT_S = 600.0
_UPPER = "SELECT upper(cast(payload AS string)) AS payload FROM src"
_PEERS = {PEER: "Spark Structured Streaming", FLINK: "PyFlink"}
T = TypeVar("T")
_GUARANTEE_OF_LOGS = (
    "exactly once: staged, one registry transaction a round, then shown; every fsync before what depends on it; "
    f"one worker, {_STREAMS} tasks"
)
_GUARANTEE_OF_KAFKA = (
    "exactly once: a Kafka transaction a round, decided with the registry; the broker does not sync before its ack; "
    f"one worker, {_STREAMS} tasks"
)


@dataclass
class FlowBench:
    """Where dataflow benchmarks run. `folder` is there, and for the peer; `wanted` names the peers that are."""

    place: Installation
    scale: Scale
    clock: Clock
    peers: Peers
    folder: Path
    wanted: frozenset[str] = frozenset()
    _spark: SparkKafkaPeer | None = None

    def with_peers(self, wanted: frozenset[str]) -> FlowBench:
        """For the next benchmark; what was measured of the peer stays known."""
        self.wanted = wanted
        return self

    def kafka(self) -> KafkaPeer | None:
        """The broker, or None when it cannot be had: `peers.missing` says why."""
        found = self.peers.get("kafka")
        assert found is None or isinstance(found, KafkaPeer)
        return found

    def beside(self) -> tuple[float | None, str]:
        """The peer's rate and what it is, or why there is none."""
        return self.measured_beside(self._rate_of_peer)

    def measured_beside(self, measure: Callable[[KafkaPeer], tuple[T, str]], peer: str = PEER) -> tuple[T | None, str]:
        """What is measured of the peer and what it is, or why there is none."""
        if peer not in self.wanted:
            return None, f"not measured: {_PEERS[peer]} from Kafka to Kafka (--peers)"
        kafka = self.kafka()
        if kafka is None:
            self.peers.missing[peer] = self.peers.missing["kafka"]
            return None, f"{peer}: {self.peers.missing[peer]}"
        try:
            return measure(kafka)
        except ServerError as error:
            self.peers.missing[peer] = f"cannot be had: {str(error).splitlines()[0]}"
            return None, f"{peer}: {self.peers.missing[peer]}"

    def _rate_of_peer(self, kafka: KafkaPeer) -> tuple[float, str]:
        scale = self.scale
        spark = self._spark = self._spark or SparkKafkaPeer(kafka, self.folder / PEER)
        rate = spark.rate(
            RECORD_BYTES,
            scale.flow_records,
            warm_up=WARM_UP_RECORDS,
            runs=scale.peer_runs,
            cores=CORES,
            memory_mb=MEMORY_MB,
        )
        return rate, spark.title


def log_sql_log(bench: FlowBench) -> Row:
    """1 KiB records from logs to logs."""
    place = bench.place
    logs = [f"bench-in/{k}" for k in range(_STREAMS)]
    for log in logs:
        place.namespace.create(log)

    def append(records: int) -> None:
        for log in logs:
            fill(place.namespace, log, RECORD_BYTES, records // len(logs))

    source = {"kind": "log", "logs": "bench-in/*"}
    ours = _rate(bench, "log-sql-log", source, {"kind": "log", "log": "bench-out"}, append)
    return Row("log-sql-log", "records/s", ours, *bench.beside(), _GUARANTEE_OF_LOGS)


def kafka_sql_kafka(bench: FlowBench) -> Row:
    """1 KiB records from a topic to a topic of one broker, which is the peer's as well."""
    kafka = bench.kafka()
    if kafka is None:
        return Row("kafka-sql-kafka", "records/s", 0.0, None, f"kafka: {bench.peers.missing['kafka']}", "not measured")
    topics = [kafka.new_topic(partitions=_STREAMS) for _ in range(2)]

    def append(records: int) -> None:
        kafka.produce(topics[0], RECORD_BYTES, records)

    source = {"kind": "kafka", "bootstrap": kafka.bootstrap, "topics": topics[:1]}
    sink = {"kind": "kafka", "bootstrap": kafka.bootstrap, "topic": topics[1]}
    ours = _rate(bench, "kafka-sql-kafka", source, sink, append)
    return Row("kafka-sql-kafka", "records/s", ours, *bench.beside(), _GUARANTEE_OF_KAFKA)


FLOW_BENCHMARKS: dict[str, Callable[[FlowBench], Row]] = {
    "log-sql-log": log_sql_log,
    "kafka-sql-kafka": kafka_sql_kafka,
}


def rate_of_run(changes: Sequence[SeenCommit], records: int) -> float:
    """Records per second, from the first change of a commit log in the run (a take-over) to its last commit."""
    return 1000 * records / max(1, max(c.at_ms for c in changes) - min(c.at_ms for c in changes))


def _rate(
    bench: FlowBench, name: str, source: dict[str, Any], sink: dict[str, Any], append: Callable[[int], None]
) -> float:
    """Every run appends records while the dataflow is paused, then lets it run until all are through; the median."""
    place, scale = bench.place, bench.scale
    append(WARM_UP_RECORDS)
    config = config_of(name, source, sink)
    place.submit(config)
    with FlowProgress(place, config, "src") as flow:
        run_until_through(place, name, flow)
        # Large rounds take another way through Spark than the first, small ones did.
        one_run(place, name, flow, scale.flow_records, append)
        rate = median(one_run(place, name, flow, scale.flow_records, append) for _ in range(scale.runs))
        place.desire(name, "stopped")
        place.await_state(name, "stopped", timeout_s=TIMEOUT_S)
    return rate


def one_run(place: Installation, name: str, flow: FlowProgress, records: int, append: Callable[[int], None]) -> float:
    """Append records while the dataflow is paused, and let it run until all are through: records per second."""
    place.desire(name, "paused")
    place.await_state(name, "paused", timeout_s=TIMEOUT_S)
    append(records)
    before = len(flow.commits.seen())
    run_until_through(place, name, flow)
    return rate_of_run(flow.commits.seen()[before:], records)


def run_until_through(place: Installation, name: str, flow: FlowProgress) -> None:
    """Until nothing is left to read."""
    place.desire(name, "running")

    def through() -> bool:
        place.check(name)
        return flow.lag() == 0

    place.wait_until(through, TIMEOUT_S, f"{name} to read everything")


def config_of(
    name: str,
    source: dict[str, Any],
    sink: dict[str, Any],
    *,
    source_name: str = "src",
    sql: str | None = _UPPER,
    executors: int = _STREAMS,
    **does: Any,
) -> DataflowConfig:
    """One worker from `source` to `sink`; `does` is what else the configuration says."""
    value = {
        "name": name,
        "sources": {source_name: source},
        "sinks": {"out": sink},
        "sql": sql,
        "workers": 1,
        "executors_per_worker": executors,
        "container": {"memory_mb": MEMORY_MB, "cores": CORES},
        **does,
    }
    return DataflowConfig.parse(value, source="the benchmark's dataflow")
