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


def through_a_proxy(bench: LogBench, namespace: str, name: str) -> list[Row]:
    """Records a second of so many clients with many records under way each, and how long one takes where each client
    waits for its record. `namespace` is the URI."""
    clients = PROXIES[name]
    how: Job = {"system": "proxy", "namespace": namespace, "record_bytes": _RECORD_BYTES}
    how["records"] = bench.scale.single_records // 4
    one_by_one = {**how, "records": max(bench.scale.single_records // 100, 2 * clients), "window": 1}
    runs = range(bench.scale.runs)
    with ExitStack() as stack:
        logs = [stack.enter_context(bench.new_log()) for _ in range(min(clients, _LOGS_MAX))]
        own = stack.enter_context(bench.new_log())
        serve: Job = {**how, "job": "serve", "hosts": bench.registry.hosts, "path": bench.namespace.path}
        stack.enter_context(started(serve)).await_ready()
        through: Job = {"job": "clients", "clients": clients, "logs": logs}
        alone: Job = {**how, "job": "alone", "clients": 1, "logs": [own], "window": _WINDOW_ALONE}
        found = [(run_job({**how, **through, "window": _WINDOW}), run_job(alone)) for _ in runs]
        waiting = medians([run_job({**one_by_one, **through}) for _ in runs])
    ours, limit = medians([ours for ours, _ in found]), medians([limit for _, limit in found])
    fsyncs_ms = _FSYNCS * fsync_p50_ms(bench.directory, bench.clock)
    what = (
        f"{many(clients, 'client')} of one proxy, single records of {_RECORD_BYTES} B to {many(len(logs), 'log')}, "
        "fsync before every ack"
    )
    return [
        Row(
            name,
            "records/s",
            ours["records_per_s"],
            limit["records_per_s"],
            "one writer that has a log for itself, one call a record",
            f"{what}; up to {_WINDOW} under way of each client",
        ),
        Row(f"{name}-p50", "ms", waiting["p50_ms"], fsyncs_ms, f"{_FSYNCS} fsyncs", f"{what}; each waits for its own"),
    ]
