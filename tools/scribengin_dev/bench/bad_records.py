"""What bad records cost: a dataflow of JSON whose rounds hold one record in 1,000 that is cut short, beside none."""

from __future__ import annotations

import json

import pyarrow as pa

from scribengin.dataflow.config import DataflowConfig
from scribengin_dev.bench.dataflows.flow import CORES, MEMORY_MB, TIMEOUT_S, FlowBench, one_run, run_until_through
from scribengin_dev.bench.rows import Row, alternating
from scribengin_dev.harness.progress import FlowProgress

BAD_RECORDS = "bad-records"
ONE_IN = 1_000
_LOG = "bench-json/0"
_GUARANTEE = (
    f"exactly once; 1 record in {ONE_IN:,} is no JSON and goes to the error route with its reason; one worker, one task"
)


def bad_records(bench: FlowBench) -> Row:
    """Rounds with bad records and rounds without take turns; the target is a third of the rate."""
    place, records = bench.place, bench.scale.flow_records // 2
    place.namespace.create(_LOG)
    config = _config()
    _append(bench, 1_000, bad=False)
    place.submit(config)
    with FlowProgress(place, config, "src") as flow:
        run_until_through(place, BAD_RECORDS, flow)

        def rate(*, bad: bool) -> float:
            return one_run(place, BAD_RECORDS, flow, records, lambda count: _append(bench, count, bad=bad))

        rate(bad=False)  # large rounds take another way through Spark than the first, small one did
        rate(bad=True)
        dirty, clean = alternating(bench.scale.runs, lambda: (rate(bad=True), rate(bad=False)))
        place.desire(BAD_RECORDS, "stopped")
        place.await_state(BAD_RECORDS, "stopped", timeout_s=TIMEOUT_S)
    return Row(BAD_RECORDS, "records/s", dirty, clean, "the same without a bad record", _GUARANTEE)


def _append(bench: FlowBench, records: int, *, bad: bool) -> None:
    payloads = [
        json.dumps({"n": n, "carrier": "Grüße", "delay": n / 7, "note": "x" * 100}, ensure_ascii=False).encode()
        for n in range(records)
    ]
    if bad:
        for at in range(ONE_IN // 2, records, ONE_IN):
            payloads[at] = payloads[at][:20]
    with bench.place.namespace.open_writer(_LOG) as writer:
        writer.write_bulk(pa.record_batch([pa.array(payloads, pa.binary())], names=["payload"])).result(TIMEOUT_S)


def _config() -> DataflowConfig:
    ddl = "n BIGINT, carrier STRING, delay DOUBLE, note STRING"
    value = {
        "name": BAD_RECORDS,
        "sources": {"src": {"kind": "log", "logs": "bench-json/*", "format": "json", "schema_ddl": ddl}},
        "sinks": {
            "out": {"kind": "log", "log": "bench-json-out", "format": "json"},
            "bad": {"kind": "log", "log": "bench-json-bad"},
        },
        "sql": {"out": "SELECT n, upper(carrier) AS carrier, delay FROM src"},
        "errors": {"action": "route", "sink": "bad", "records_max": 1_000},
        "workers": 1,
        "executors_per_worker": 1,
        "container": {"memory_mb": MEMORY_MB, "cores": CORES},
    }
    return DataflowConfig.parse(value, source="the benchmark's dataflow")
