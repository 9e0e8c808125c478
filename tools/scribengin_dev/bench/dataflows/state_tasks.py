"""What several tasks with state gain: the same windows over the same logs in two tasks, beside one task that has both
cores for its partitions of state.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any

import pyarrow as pa

from scribengin.dataflow.config import DataflowConfig
from scribengin.log.clients import hash_partitioner
from scribengin_dev.bench.dataflows.flow import CORES, TIMEOUT_S, FlowBench, config_of
from scribengin_dev.bench.dataflows.nexmark import await_consumed
from scribengin_dev.bench.rows import Row
from scribengin_dev.harness.progress import FlowProgress, last_commit_ms

STATE_TASKS = "state-tasks"
_KEYS = 10_000
_PER_SIMULATED_S = 10_000
_BATCHES = 6
"""So many warm it up, and as many are measured."""
_BEGIN = datetime(2013, 1, 1, tzinfo=UTC)
_SQL = "SELECT window.start AS start, who, count(*) AS many FROM src GROUP BY window(at, '10 seconds'), who"
_GUARANTEE = (
    f"exactly once; counts by key and 10 s of JSON in {CORES} logs divided by the key, {_KEYS:,} keys, into logs; one "
    f"worker of {CORES} cores, {CORES} tasks with 1 partition of state each"
)


def state_tasks(bench: FlowBench) -> Row:
    """Records a second of all tasks together, from the commit with which the first half is through to the last."""
    batch = bench.scale.flow_records // _BATCHES
    _fill(bench, batch * 2 * _BATCHES)
    runs = range(bench.scale.peer_runs)
    several, one = (median(_rate(bench, tasks, batch, run) for run in runs) for tasks in (CORES, 1))
    beside = f"the same with tasks: 1, which has {CORES} partitions of state"
    return Row(STATE_TASKS, "records/s", several, one, beside, _GUARANTEE)


def _fill(bench: FlowBench, records: int) -> None:
    keys = [f"key-{n % _KEYS}" for n in range(records)]
    streams = hash_partitioner(pa.array([key.encode() for key in keys], pa.binary()), CORES).to_pylist()
    payloads: list[list[bytes]] = [[] for _ in range(CORES)]
    for n, (key, stream) in enumerate(zip(keys, streams, strict=True)):
        at = _BEGIN + timedelta(seconds=n / _PER_SIMULATED_S)
        payloads[stream].append(json.dumps({"at": at.isoformat(), "who": key, "n": n}).encode())
    for stream, of_stream in enumerate(payloads):
        log = f"{STATE_TASKS}-in/{stream}"
        bench.place.namespace.create(log)
        with bench.place.namespace.open_writer(log) as writer:
            column = pa.array(of_stream, pa.binary())
            writer.write_bulk(pa.record_batch([column], names=["payload"])).result(TIMEOUT_S)


def _rate(bench: FlowBench, tasks: int, batch: int, run: int) -> float:
    name = f"{STATE_TASKS}-{tasks}-{run}"
    config = _config(name, tasks, batch)
    bench.place.submit(config)
    with FlowProgress(bench.place, config, "src") as flow:
        begin_ms, consumed = await_consumed(bench.place, flow, _BATCHES * batch)
        _, all_records = await_consumed(bench.place, flow, 2 * _BATCHES * batch)
        end_ms = last_commit_ms(flow)
    bench.place.desire(name, "stopped")
    bench.place.await_state(name, "stopped", timeout_s=TIMEOUT_S)
    return 1000 * (all_records - consumed) / max(1, end_ms - begin_ms)


def _config(name: str, tasks: int, batch: int) -> DataflowConfig:
    logs = {"kind": "log", "logs": f"{STATE_TASKS}-in/*", "streams": CORES, "partition_by": ["who"]}
    source = {**logs, "format": "json", "schema_ddl": "at TIMESTAMP, who STRING, n BIGINT"}
    state = {"partitions": CORES // tasks, "watermarks": {"src": {"column": "at", "delay_s": 60}}}
    sink = {"kind": "log", "log": f"{name}-out", "format": "json"}
    how: dict[str, Any] = {"state": state, "tasks": tasks, "round": {"records_max": batch // CORES}}
    return config_of(name, source, sink, sql=_SQL, executors=tasks, **how)
