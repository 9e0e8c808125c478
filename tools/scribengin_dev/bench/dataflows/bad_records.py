"""What bad records cost: a dataflow of JSON whose rounds hold one record in 1,000 that is cut short, beside none.

Either the source says the format, so that the engine finds what cannot be decoded, or a user's function decodes, and
raises: then only the function knows which record it was. A round after one with such records knows that, and begins
otherwise: so there is a row where all rounds have them, and one where every other run has them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import pyarrow as pa

from scribengin.dataflow.config import DataflowConfig
from scribengin_dev.bench.dataflows.flow import CORES, MEMORY_MB, TIMEOUT_S, FlowBench, one_run, run_until_through
from scribengin_dev.bench.rows import Row, alternating
from scribengin_dev.harness.progress import FlowProgress

ONE_IN = 1_000
_GUARANTEE = f"exactly once; 1 record in {ONE_IN:,} is no JSON and goes to the error route with its reason"
_DDL = "n BIGINT, carrier STRING, delay DOUBLE, note STRING"
_SQL = "SELECT n, upper(carrier) AS carrier, delay FROM src"
_FUNCTION = """\
import json

from pyspark.sql.functions import udf


@udf("string")
def carrier(payload):
    return json.loads(payload)["carrier"].upper()


def transform(inputs, context):
    return inputs["src"].select(carrier("payload").alias("payload"))
"""


def bad_records(bench: FlowBench) -> Row:
    """The source decodes."""
    decoding = {"format": "json", "schema_ddl": _DDL}
    with _flow(bench, "bad-records", decoding, {"format": "json"}, {"sql": {"out": _SQL}}) as rate:
        dirty, clean = alternating(bench.scale.runs, lambda: (rate(bad=True), rate(bad=False)))
    return _row("bad-records", dirty, clean, "one task")


def bad_records_function(bench: FlowBench) -> Row:
    """A Python function decodes, and raises in every run."""
    name, by_function = "bad-records-function", _by_function(bench)
    with (
        _flow(bench, name, {}, {}, by_function) as rate_of_bad,
        _flow(bench, f"{name}-none", {}, {}, by_function) as rate_of_good,
    ):
        rate_of_bad(bad=True)
        dirty, clean = alternating(bench.scale.runs, lambda: (rate_of_bad(bad=True), rate_of_good(bad=False)))
    return _row(name, dirty, clean, "one task, in all of whose runs there are some")


def bad_records_function_first(bench: FlowBench) -> Row:
    """A Python function decodes, and raises in every other run."""
    name = "bad-records-function-first"
    with _flow(bench, name, {}, {}, _by_function(bench)) as rate:
        dirty, clean = alternating(bench.scale.runs, lambda: (rate(bad=True), rate(bad=False)))
    return _row(name, dirty, clean, "one task, in whose run before there were none")


BAD_RECORDS: dict[str, Callable[[FlowBench], Row]] = {
    "bad-records": bad_records,
    "bad-records-function": bad_records_function,
    "bad-records-function-first": bad_records_function_first,
}


def _row(name: str, dirty: float, clean: float, tasks: str) -> Row:
    return Row(name, "records/s", dirty, clean, "the same without a bad record", f"{_GUARANTEE}; {tasks}")


def _by_function(bench: FlowBench) -> dict[str, Any]:
    package = bench.folder / "raising"
    package.mkdir(exist_ok=True)
    (package / "raising.py").write_text(_FUNCTION)
    return {"transformation": "raising:transform", "package": str(package)}


class _Rate(Protocol):
    def __call__(self, *, bad: bool) -> float:
        """Records per second of one run, of which one in 1,000 is bad."""
        ...


@contextmanager
def _flow(
    bench: FlowBench, name: str, source: dict[str, Any], sink: dict[str, Any], transformation: dict[str, Any]
) -> Iterator[_Rate]:
    """A dataflow that runs, and has run once with bad records and once without."""
    place, records = bench.place, bench.scale.flow_records // 2
    log = f"{name}/0"
    place.namespace.create(log)
    config = _config(name, source, sink, transformation)
    _append(bench, log, 1_000, bad=False)
    place.submit(config)
    with FlowProgress(place, config, "src") as flow:
        run_until_through(place, name, flow)

        def rate(*, bad: bool) -> float:
            return one_run(place, name, flow, records, lambda count: _append(bench, log, count, bad=bad))

        rate(bad=True)
        rate(bad=False)  # large rounds take another way through Spark than the first, small one did
        yield rate
        place.desire(name, "stopped")
        place.await_state(name, "stopped", timeout_s=TIMEOUT_S)


def _append(bench: FlowBench, log: str, records: int, *, bad: bool) -> None:
    payloads = [
        json.dumps({"n": n, "carrier": "Grüße", "delay": n / 7, "note": "x" * 100}, ensure_ascii=False).encode()
        for n in range(records)
    ]
    if bad:
        for at in range(ONE_IN // 2, records, ONE_IN):
            payloads[at] = payloads[at][:20]
    with bench.place.namespace.open_writer(log) as writer:
        writer.write_bulk(pa.record_batch([pa.array(payloads, pa.binary())], names=["payload"])).result(TIMEOUT_S)


def _config(name: str, source: dict[str, Any], sink: dict[str, Any], transformation: dict[str, Any]) -> DataflowConfig:
    value = {
        "name": name,
        "sources": {"src": {"kind": "log", "logs": f"{name}/*", **source}},
        "sinks": {"out": {"kind": "log", "log": f"{name}-out", **sink}, "bad": {"kind": "log", "log": f"{name}-bad"}},
        **transformation,
        "errors": {"action": "route", "sink": "bad", "records_max": 1_000},
        "workers": 1,
        "executors_per_worker": 1,
        "container": {"memory_mb": MEMORY_MB, "cores": CORES},
    }
    return DataflowConfig.parse(value, source="the benchmark's dataflow")
