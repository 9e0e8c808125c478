"""What the log store costs: memory over a long log, many logs in one process, a log of very many segments."""

from __future__ import annotations

from contextlib import ExitStack

from scribengin.errors import ServerDown
from scribengin.log import DLSN
from scribengin.testing.log_samples import forge_segments
from scribengin_dev.bench.clients.jobs import Job, run_job
from scribengin_dev.bench.logs import LogBench
from scribengin_dev.bench.rows import Row, alternating

SEGMENTS = "log-segments-10000"
_FEWER_SEGMENTS = 100
_MS_PER_S = 1000
_RECORD_BYTES = 1024
_MEMORY_MAX_MB = 200.0
_MANY_MEMORY_MAX_MB = 300.0
_GIB = 1024**3


def memory(bench: LogBench, namespace: str) -> list[Row]:
    """The anonymous memory of a process that writes a long log, and of one that reads it, at its highest."""
    job: Job = {"system": "log", "namespace": namespace, "record_bytes": _RECORD_BYTES}
    size = bench.scale.memory_bytes
    with bench.new_log() as log:
        writer_mb = run_job({**job, "job": "memory-write", "log": log, "bytes": size})["peak_mb"]
        read = run_job({**job, "job": "memory-read", "log": log})
    if read["records"] < size // _RECORD_BYTES * 0.9:
        raise ServerDown(f"only {read['records']:.0f} records of {size} bytes were read")
    what = (
        f"a log of {size / _GIB:.3g} GiB in records of 1 KiB; at most {writer_mb:.0f} MB in the process that wrote it, "
        f"{read['peak_mb']:.0f} MB in the one that read it; mapped files do not count"
    )
    peer = f"the target: {_MEMORY_MAX_MB:.0f} MB of anonymous memory"
    return [Row("memory", "MB", max(writer_mb, read["peak_mb"]), _MEMORY_MAX_MB, peer, what)]


def many_logs(bench: LogBench, namespace: str, count: int) -> list[Row]:
    """So many logs written by one process, beside one log that gets the same records in the same batches."""
    many = _cost(bench, namespace, count)
    one = _cost(bench, namespace, 1) if count > 1 else {}
    peer = "one log, the same records in the same batches" if one else "none: the others are held against this one"
    writers = "one writer" if count == 1 else f"{count:,} writers with one commit thread"
    what = f"{writers} in one process, 1 KiB records in batches of 20, fsync before every ack"
    units = (("", "records/s", "records_per_s"), ("-threads", "threads", "threads"))
    rows = [Row(f"logs-{count}{end}", unit, many[key], one.get(key), peer, what) for end, unit, key in units]
    target = f"the target for 10,000: {_MANY_MEMORY_MAX_MB:.0f} MB of anonymous memory"
    return [*rows, Row(f"logs-{count}-memory", "MB", many["memory_mb"], _MANY_MEMORY_MAX_MB, target, what)]


def segments(bench: LogBench) -> Row:
    """A log of very many segments beside one that has a hundredth of them: open it for reading and for writing, count
    it, truncate and purge one segment. Medians of `scale.runs` times."""
    many, few = bench.scale.segments, bench.scale.segments // _FEWER_SEGMENTS
    with bench.new_log() as large, bench.new_log() as small:
        for log, count in ((large, many), (small, few)):
            forge_segments(bench.namespace, bench.registry, log, count, files=True)
        # The small one shall not run out of segments: each run truncates one.
        runs = min(bench.scale.runs, few - 1)
        ours_ms, peer_ms = alternating(runs, lambda: (_looks_ms(bench, large, many), _looks_ms(bench, small, few)))
    what = f"{many:,} segments; open to read and to write, count, truncate and purge one segment, one after the other"
    return Row(SEGMENTS, "ms", ours_ms, peer_ms, f"the same with {few:,} segments", what)


def _cost(bench: LogBench, namespace: str, count: int) -> dict[str, float]:
    with ExitStack() as stack:
        logs = [stack.enter_context(bench.new_log()) for _ in range(count)]
        job: Job = {"system": "log", "job": "many", "namespace": namespace, "logs": logs}
        return run_job({**job, "record_bytes": _RECORD_BYTES, "records": bench.scale.logs_records})


def _looks_ms(bench: LogBench, log: str, segments: int) -> float:
    namespace = bench.namespace
    first = namespace.first_dlsn(log).segment
    begun_s = bench.clock.monotonic_s()
    namespace.open_reader(log, DLSN(segments, 0, 0)).close()
    namespace.open_writer(log).close()
    assert namespace.count(log) == segments - first + 1, "as many as there are"
    assert namespace.truncate(log, DLSN(first + 1, 0, 0)), "there is one more"
    assert namespace.purge(log).segments == 1, "the first"
    return (bench.clock.monotonic_s() - begun_s) * _MS_PER_S
