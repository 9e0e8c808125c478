"""Our own log store in a process of its own: one end of a tail, the memory of a long log, many logs or many
readers at once, a log wherever it is."""

from __future__ import annotations

import resource
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.log import FIRST, TAIL, CommitThread, LogNamespace, LogReader
from scribengin.proxy import ProxiedNamespace, ProxyClientConfig
from scribengin_dev.bench.clients.together import rate_of_all
from scribengin_tools.logs.benchmark import append, records_batch
from scribengin_tools.logs.pacing import SILENCE_MAX_S, receive, send_paced

_BATCH_RECORDS = 1_000
_UNACKNOWLEDGED_MAX = 32
_UNACKNOWLEDGED_OF_MANY_MAX = 1_000
_READ_RECORDS = 65_536
_MANY_BATCH_RECORDS = 20
_POLL_S = 0.5
_MIB = 1024 * 1024

Values = Mapping[str, Any]


def _tail_write(job: Values) -> dict[str, float]:
    with _namespace(job) as namespace, namespace.open_writer(job["log"]) as writer:
        send_paced(
            writer.write,
            job["records"],
            job["per_s"],
            job["record_bytes"],
            lambda future: future.result(),
            windowed=job.get("windowed", False),
        )
        writer.flush()
    return {}


def _tail_read(job: Values) -> dict[str, float]:
    start = TAIL if job.get("at_end") else FIRST
    with _namespace(job) as namespace, namespace.open_reader(job["log"], start) as reader:

        def poll() -> Iterable[bytes]:
            batch = reader.read_batch(_READ_RECORDS, _POLL_S)
            return [] if batch is None else batch.column("payload").to_pylist()

        for _ in range(job.get("before", 0)):  # what the first record has opened is open before the others come
            reader.read(1, SILENCE_MAX_S)
        print("ready", flush=True)
        return receive(poll, job["records"], windowed=job.get("windowed", False))


def _bind(job: Values) -> dict[str, float]:
    LogNamespace.bind(job["namespace"], job["location"], store=job["store"])
    return {}


def _create(job: Values) -> dict[str, float]:
    """A log with one record, which is written and acknowledged. `unfinished`: as of a writer that died."""
    with _namespace(job) as namespace, namespace.open_writer(job["log"], create=True) as writer:
        writer.write(b"").result()
        if job.get("unfinished", False):
            writer.abort()
    return {}


def _delete(job: Values) -> dict[str, float]:
    with _namespace(job) as namespace:
        namespace.delete(job["log"], force=True)
    return {}


def _append(job: Values) -> dict[str, float]:
    """A new log. The segment is made at the first append, before it is measured."""
    with _namespace(job) as namespace, namespace.open_writer(job["log"], create=True) as writer:
        writer.write(b"").result()
        begun_s = SYSTEM_CLOCK.monotonic_s()
        append(writer, job["record_bytes"], job["records"])
        took_s = SYSTEM_CLOCK.monotonic_s() - begun_s
    return {"records_per_s": job["records"] / took_s}


def _read(job: Values) -> dict[str, float]:
    """From the first record to the last, twice; the second time counts."""
    with _namespace(job) as namespace:
        rates = [_read_all(namespace, job["log"]) for _ in range(2)]
    return {"records_per_s": rates[-1]}


def _read_all(namespace: LogNamespace, log: str) -> float:
    """Records per second."""
    found = 0
    begun_s = SYSTEM_CLOCK.monotonic_s()
    with namespace.open_reader(log) as reader:
        end = reader.end_position()
        while reader.position < end:
            batch = reader.read_batch(_READ_RECORDS, place=False)
            found += 0 if batch is None else batch.num_rows
    return found / (SYSTEM_CLOCK.monotonic_s() - begun_s)


def _fan_out(job: Values) -> dict[str, float]:
    """So many readers at once, a thread each: records per second of all together."""
    client = ProxyClientConfig(reads="proxy")
    opened = ProxiedNamespace.open(job["namespace"], client=client) if job["proxied"] else _namespace(job)
    with opened as namespace, ExitStack() as stack:
        readers = [stack.enter_context(namespace.open_reader(job["log"])) for _ in range(job["readers"])]

        def read(reader: LogReader) -> int:
            found = 0
            while found < job["records"]:
                batch = reader.read_batch(_READ_RECORDS, _POLL_S, place=False)
                found += 0 if batch is None else batch.num_rows
            return found

        return {"records_per_s": rate_of_all([partial(read, reader) for reader in readers])}


def _memory_write(job: Values) -> dict[str, float]:
    batch = records_batch(job["record_bytes"], _BATCH_RECORDS)
    peak = 0.0
    with _namespace(job) as namespace, namespace.open_writer(job["log"]) as writer:
        waiting: deque[Future[Any]] = deque()
        for _ in range(job["bytes"] // (job["record_bytes"] * _BATCH_RECORDS)):
            waiting.append(writer.write_bulk(batch))
            if len(waiting) > _UNACKNOWLEDGED_MAX:
                waiting.popleft().result()
                peak = max(peak, anonymous_mb())
        while waiting:
            waiting.popleft().result()
    return {"peak_mb": max(peak, anonymous_mb())}


def _memory_read(job: Values) -> dict[str, float]:
    peak, found = 0.0, 0
    with _namespace(job) as namespace, namespace.open_reader(job["log"]) as reader:
        end = reader.end_position()
        while reader.position < end:
            batch = reader.read_batch(_READ_RECORDS)
            found += 0 if batch is None else batch.num_rows
            peak = max(peak, anonymous_mb())
    return {"peak_mb": peak, "records": found}


def _many(job: Values) -> dict[str, float]:
    """Write batches round robin over all logs, each with one batch unacknowledged, and a thousand in all at most: it is
    about what logs cost, and not about records in memory."""
    names: list[str] = job["logs"]
    _allow_many_files()
    batch = records_batch(job["record_bytes"], _MANY_BATCH_RECORDS)
    with ExitStack() as stack:
        thread = stack.enter_context(CommitThread()) if len(names) > 1 else None
        namespace = stack.enter_context(LogNamespace.open(job["namespace"], commit_thread=thread))
        writers = [stack.enter_context(namespace.open_writer(name)) for name in names]
        for future in [writer.write_bulk(batch) for writer in writers]:  # each log's first segment is made here
            future.result()
        rounds = max(1, job["records"] // (_MANY_BATCH_RECORDS * len(writers)))
        waiting: deque[Future[Any]] = deque()
        unacknowledged_max = min(max(len(writers), _UNACKNOWLEDGED_MAX), _UNACKNOWLEDGED_OF_MANY_MAX)
        begun_s = SYSTEM_CLOCK.monotonic_s()
        for _ in range(rounds):
            for writer in writers:
                waiting.append(writer.write_bulk(batch))
                if len(waiting) > unacknowledged_max:
                    waiting.popleft().result()
        while waiting:
            waiting.popleft().result()
        took_s = SYSTEM_CLOCK.monotonic_s() - begun_s
        costs = {"memory_mb": anonymous_mb(), "threads": float(threading.active_count())}
    return {"records_per_s": rounds * len(writers) * _MANY_BATCH_RECORDS / took_s, **costs}


JOBS: Mapping[str, Callable[[Values], dict[str, float]]] = {
    "tail-write": _tail_write,
    "tail-read": _tail_read,
    "memory-write": _memory_write,
    "memory-read": _memory_read,
    "many": _many,
    "bind": _bind,
    "create": _create,
    "delete": _delete,
    "append": _append,
    "read": _read,
    "fan-out": _fan_out,
}


def anonymous_mb() -> float:
    """This process's anonymous memory: mapped files do not count, the kernel may drop them at any time."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024 / _MIB
    raise OSError("/proc/self/status has no line RssAnon: this benchmark needs Linux 4.5 or newer")


def _namespace(job: Values) -> LogNamespace:
    return LogNamespace.open(job["namespace"])


def _allow_many_files() -> None:
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
