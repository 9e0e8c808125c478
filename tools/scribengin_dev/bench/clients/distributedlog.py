"""DistributedLog's Java writer and reader, on an ensemble of three bookies that all have to answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.jvm import java, java_bytes
from scribengin_dev.bench.clients.jvm import start_peer
from scribengin_tools.logs.pacing import receive, send_paced

_API = "org.apache.distributedlog"
_BULK_RECORDS = 1_000
_UNACKNOWLEDGED_BYTES = 32 * 1024 * 1024
_READ_RECORDS = 10_000
_COPIES = 3
_POLL_MS = 500
# Records are sent 512 KiB at a time, or what there is every 2 ms: as DistributedLog's own measuring tool has it.
_FOR_THROUGHPUT: Mapping[str, int | bool] = {
    "OutputBufferSize": 512 * 1024,
    "PeriodicFlushFrequencyMilliSeconds": 2,
    "ReadAheadBatchSize": 4,
    "ReadAheadMaxRecords": 1_000_000,
}
# What there is, is sent and shown every 2 ms, and asked for in short intervals. (Sending each record by itself, with no
# buffer or with ImmediateFlushEnabled, was slower at 500 records a second.)
_FOR_LATENCY: Mapping[str, int | bool] = {
    "OutputBufferSize": 16 * 1024,
    "PeriodicFlushFrequencyMilliSeconds": 2,
    "ReadLACLongPollTimeout": 20,
}

Values = Mapping[str, Any]


def _append(job: Values) -> dict[str, float]:
    """The records are made beforehand, so that only DistributedLog's work is measured."""
    log = _Log(job, _FOR_THROUGHPUT)
    bulks = log.bulks(job["records"], job["record_bytes"])
    writer = log.writer()
    waiting: deque[Any] = deque()
    unacknowledged_max = max(2, _UNACKNOWLEDGED_BYTES // (_BULK_RECORDS * job["record_bytes"]))
    begun_s = SYSTEM_CLOCK.monotonic_s()
    for bulk in bulks:
        waiting.append(writer.writeBulk(bulk))
        if len(waiting) > unacknowledged_max:
            _await_last(waiting.popleft())
    while waiting:
        _await_last(waiting.popleft())
    took_s = SYSTEM_CLOCK.monotonic_s() - begun_s
    writer.asyncClose().get()
    return {"records_per_s": job["records"] / took_s}


def _read(job: Values) -> dict[str, float]:
    """Twice, from the first record on; the second time counts, when Java has warmed up."""
    log = _Log(job, _FOR_THROUGHPUT)
    rates = [log.read_rate(job["records"]) for _ in range(2)]
    return {"records_per_s": rates[-1]}


def _tail_write(job: Values) -> dict[str, float]:
    log = _Log(job, _FOR_LATENCY)
    writer = log.writer()
    sent: list[Any] = []

    def send(data: bytes) -> Any:
        sent.append(writer.write(log.record(len(sent) + 1, java_bytes(data))))
        return sent[-1]

    send_paced(send, job["records"], job["per_s"], job["record_bytes"], lambda future: future.get())
    sent[-1].get()
    writer.asyncClose().get()
    return {}


def _tail_read(job: Values) -> dict[str, float]:
    log = _Log(job, _FOR_LATENCY)
    reader = log.async_reader()
    milliseconds = java("java.util.concurrent.TimeUnit").MILLISECONDS
    timeout = java("java.util.concurrent.TimeoutException")
    asked = [reader.readNext()]

    def poll() -> Iterable[bytes]:
        try:
            record = asked[0].get(_POLL_MS, milliseconds)
        except timeout:
            return []
        asked[0] = reader.readNext()
        return [bytes(record.getPayload())]

    print("ready", flush=True)
    return receive(poll, job["records"])


JOBS: Mapping[str, Callable[[Values], dict[str, float]]] = {
    "append": _append,
    "read": _read,
    "tail-write": _tail_write,
    "tail-read": _tail_read,
}


class _Log:
    """One log of a namespace, created when it is not there yet."""

    def __init__(self, job: Values, settings: Mapping[str, int | bool]) -> None:
        start_peer(job["jars"], job["log4j"])
        configuration = java(f"{_API}.DistributedLogConfiguration")()
        copies = {"EnsembleSize": _COPIES, "WriteQuorumSize": _COPIES, "AckQuorumSize": _COPIES}
        for name, value in {**copies, "WriteLockEnabled": False, **settings}.items():
            getattr(configuration, f"set{name}")(value)
        configuration.setProperty("bkc.throttle", java("java.lang.Integer").valueOf(0))  # 5,000 requests/s by default
        builder = java(f"{_API}.api.namespace.NamespaceBuilder").newBuilder()
        namespace = builder.conf(configuration).uri(java("java.net.URI").create(job["uri"])).build()
        if not namespace.logExists(job["log"]):
            namespace.createLog(job["log"])
        self._log = namespace.openLog(job["log"])
        self.record = java(f"{_API}.LogRecord")

    def writer(self) -> Any:
        return self._log.openAsyncLogWriter().get()

    def reader(self) -> Any:
        return self._log.openLogReader(java(f"{_API}.DLSN").InitialDLSN)

    def async_reader(self) -> Any:
        return self._log.openAsyncLogReader(java(f"{_API}.DLSN").InitialDLSN).get()

    def bulks(self, records: int, record_bytes: int) -> list[Any]:
        payload = java_bytes(bytes(record_bytes))
        lists = []
        for start in range(0, records, _BULK_RECORDS):
            bulk = java("java.util.ArrayList")()
            for txid in range(start + 1, min(start + _BULK_RECORDS, records) + 1):
                bulk.add(self.record(txid, payload))
            lists.append(bulk)
        return lists

    def read_rate(self, records: int) -> float:
        begun_s = SYSTEM_CLOCK.monotonic_s()
        reader = self.reader()
        found = 0
        while found < records:
            found += reader.readBulk(False, _READ_RECORDS).size()
        took_s = SYSTEM_CLOCK.monotonic_s() - begun_s
        reader.asyncClose().get()
        return found / took_s


def _await_last(futures: Any) -> None:
    """`writeBulk` promises a list of promises, in order."""
    of_records = futures.get()
    of_records.get(of_records.size() - 1).get()
