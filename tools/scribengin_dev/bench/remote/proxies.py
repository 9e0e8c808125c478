"""A proxy that takes the single records of many clients, beside one writer that has the log for itself."""

from __future__ import annotations

from contextlib import ExitStack

from scribengin.base.text.counting import many
from scribengin_dev.bench.clients.jobs import Job, run_job, started
from scribengin_dev.bench.logs import LogBench
from scribengin_dev.bench.rows import Row, medians
from scribengin_tools.logs.benchmark import fsync_p50_ms

PROXIES = {f"proxy-single-{clients}": clients for clients in (1, 100, 1_000)}
_RECORD_BYTES = 256
_LOGS_MAX = 10
_WINDOW = 100
_WINDOW_ALONE = 10_000  # more would fill what a writer holds: then its own thread, which answers, would wait for room
_FSYNCS = 2
_OF_A_CORE = 100_000
_TICK_S = 0.01


def through_a_proxy(bench: LogBench, namespace: str, name: str) -> list[Row]:
    """Records a second of so many clients with many records under way each, what a record takes of the proxy's
    processor, and how long one takes where each client waits for its record. `namespace` is the URI."""
    clients = PROXIES[name]
    how: Job = {"system": "proxy", "namespace": namespace, "record_bytes": _RECORD_BYTES}
    records = bench.scale.single_records // 4
    with ExitStack() as stack:
        logs = [stack.enter_context(bench.new_log()) for _ in range(min(clients, _LOGS_MAX))]
        own = stack.enter_context(bench.new_log())
        proxy = stack.enter_context(started(serving(bench)))
        proxy.await_ready()
        through: Job = {**how, "job": "clients", "clients": clients, "records": records}
        alone: Job = {**how, "job": "alone", "clients": 1, "logs": [own], "records": records, "window": _WINDOW_ALONE}
        waiting: Job = {**through, "records": max(bench.scale.single_records // 100, 2 * clients), "window": 1}

        def measure() -> dict[str, float]:
            before_s = proxy.processor_s()
            ours = run_job({**through, "logs": logs, "window": _WINDOW})
            of_a_core = records / max(_TICK_S, proxy.processor_s() - before_s)
            return {
                "ours": ours["records_per_s"],
                "core": of_a_core,
                "alone": run_job(alone)["records_per_s"],
                "p50": run_job({**waiting, "logs": logs})["p50_ms"],
                "p50 of one": run_job({**waiting, "logs": logs[:1]})["p50_ms"],
            }

        found = medians([measure() for _ in range(bench.scale.runs)])
    fsyncs_ms = _FSYNCS * fsync_p50_ms(bench.directory, bench.clock)
    what = f"{many(clients, 'client')} of one proxy, single records of {_RECORD_BYTES} B, fsync before every ack"
    into = f"to {many(len(logs), 'log')}"
    windows = f"up to {_WINDOW} under way of each client"
    peer = "one writer that has a log for itself, one call a record"
    core = f"{_OF_A_CORE:,} records for a second of the proxy's processor; its clients' is beside that"
    rows = [
        Row(name, "records/s", found["ours"], found["alone"], peer, f"{what}, {into}; {windows}"),
        Row(f"{name}-core", "records/s", found["core"], _OF_A_CORE, core, f"{what}, {into}; {windows}"),
    ]
    ends = (("-p50", "p50", into), ("-p50-one-log", "p50 of one", "to one log"))
    return rows + [
        Row(
            f"{name}{end}", "ms", found[key], fsyncs_ms, f"{_FSYNCS} fsyncs", f"{what}, {where}; each waits for its own"
        )
        for end, key, where in ends[: min(len(logs), len(ends))]
    ]


def serving(bench: LogBench) -> Job:
    """A proxy of the namespace in a process of its own."""
    return {"system": "proxy", "job": "serve", "hosts": bench.registry.hosts, "path": bench.namespace.path}
