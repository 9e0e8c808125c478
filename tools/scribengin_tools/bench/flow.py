"""A real dataflow, from logs through SQL to logs: a master, a worker, rounds and their commits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from scribengin.clock import Clock
from scribengin.dataflow.config import DataflowConfig
from scribengin_tools.bench.logs import fill
from scribengin_tools.bench.rows import Row, Scale
from scribengin_tools.demo.place import Place
from scribengin_tools.demo.progress import FlowProgress
from scribengin_tools.demo.standstill import SeenCommit

_LOGS = 2
_RECORD_BYTES = 1024
_WARM_UP_RECORDS = 2_000
_TIMEOUT_S = 600.0
_NAME = "log-sql-log"
_GUARANTEE = (
    "exactly once: staged, one registry transaction a round, then shown; every fsync before what depends on it; "
    f"one worker, {_LOGS} tasks"
)


@dataclass(frozen=True, slots=True)
class FlowBench:
    """Where dataflow benchmarks run."""

    place: Place
    scale: Scale
    clock: Clock


def log_sql_log(bench: FlowBench) -> Row:
    """1 KiB records: every run appends them while the dataflow is paused, then lets it run until all are through."""
    place, scale = bench.place, bench.scale
    logs = [f"bench-in/{k}" for k in range(_LOGS)]
    for log in logs:
        place.namespace.create(log)
        fill(place.namespace, log, _RECORD_BYTES, _WARM_UP_RECORDS)
    config = _config()
    place.submit(config)
    with FlowProgress(place, config, "src") as flow:
        _run_until_through(bench, flow)
        _one_run(bench, flow, logs)  # large rounds take another way through Spark than the first, small ones did
        rate = median(_one_run(bench, flow, logs) for _ in range(scale.runs))
        place.desire(_NAME, "stopped")
        place.await_state(_NAME, "stopped", timeout_s=_TIMEOUT_S)
    peer = "none yet: Spark Structured Streaming from Kafka to Kafka comes with Kafka"
    return Row(_NAME, "records/s", rate, None, peer, _GUARANTEE)


FLOW_BENCHMARKS: dict[str, Callable[[FlowBench], Row]] = {_NAME: log_sql_log}


def rate_of_run(changes: Sequence[SeenCommit], records: int) -> float:
    """Records per second, from the first change of a commit log in the run (a take-over) to its last commit."""
    return 1000 * records / max(1, max(c.at_ms for c in changes) - min(c.at_ms for c in changes))


def _one_run(bench: FlowBench, flow: FlowProgress, logs: Sequence[str]) -> float:
    place = bench.place
    place.desire(_NAME, "paused")
    place.await_state(_NAME, "paused", timeout_s=_TIMEOUT_S)
    for log in logs:
        fill(place.namespace, log, _RECORD_BYTES, bench.scale.flow_records // len(logs))
    before = len(flow.commits.seen())
    _run_until_through(bench, flow)
    return rate_of_run(flow.commits.seen()[before:], bench.scale.flow_records)


def _run_until_through(bench: FlowBench, flow: FlowProgress) -> None:
    place = bench.place
    place.desire(_NAME, "running")

    def through() -> bool:
        place.check(_NAME)
        return flow.lag() == 0

    place.wait_until(through, _TIMEOUT_S, f"{_NAME} to read everything")


def _config() -> DataflowConfig:
    value = {
        "name": _NAME,
        "sources": {"src": {"kind": "log", "logs": "bench-in/*"}},
        "sinks": {"out": {"kind": "log", "log": "bench-out"}},
        "sql": "SELECT upper(cast(payload AS string)) AS payload FROM src",
        "workers": 1,
        "executors_per_worker": _LOGS,
        "container": {"memory_mb": 6144, "cores": 2},
    }
    return DataflowConfig.parse(value, source="the benchmark's dataflow")
