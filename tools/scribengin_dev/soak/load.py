"""The load of a soak: tracking records at a steady rate, into every log of the chain's source, until it is stopped."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

import pyarrow as pa

from scribengin.base.clock import Clock
from scribengin.log import LogNamespace, LogWriter
from scribengin.operations.verify.tracking import tracking_payload

_TICK_S = 0.1


class Load:
    """Appends `per_s` records a second, of the generator `generator`, to each of `logs`; each log is a chunk.

    It runs while the `with` block lasts, or until `stop`. A slow disk makes it slower, and nothing is made up for.
    """

    def __init__(self, namespace: LogNamespace, logs: Sequence[str], generator: str, per_s: float, clock: Clock):
        self._namespace = namespace
        self._written = dict.fromkeys(logs, 0)
        self._generator = generator
        self._per_s = per_s
        self._clock = clock
        self._stopping = threading.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="soak-load")
        self._running: Future[None] | None = None

    def __enter__(self) -> Load:
        self._running = self._thread.submit(self._run)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.shutdown()

    @property
    def written(self) -> int:
        """How many records are durable in the logs, together."""
        return sum(self._written.values())

    def check(self) -> None:
        """Raise what ended it, if anything did."""
        if self._running is not None and self._running.done():
            self._running.result()

    def stop(self) -> None:
        """Write no more, and close the logs. Raises what ended it. Idempotent."""
        self._stopping.set()
        self._thread.shutdown()
        self.check()

    def _run(self) -> None:
        writers = {log: self._namespace.open_writer(log) for log in self._written}
        try:
            last_s, owed = self._clock.monotonic_s(), 0.0
            while not self._stopping.wait(_TICK_S):
                now_s = self._clock.monotonic_s()
                owed += min(now_s - last_s, 1.0) * self._per_s
                last_s = now_s
                self._append(writers, int(owed))
                owed -= int(owed)
        finally:
            for writer in writers.values():
                writer.close()

    def _append(self, writers: dict[str, LogWriter], count: int) -> None:
        if not count:
            return
        sent = {}
        for log, first in self._written.items():
            payloads = [tracking_payload(self._generator, log, n) for n in range(first, first + count)]
            batch = pa.record_batch([pa.array(payloads, pa.binary())], names=["payload"])
            sent[log] = writers[log].write_bulk(batch)
        for log, future in sent.items():
            future.result()
            self._written[log] += count
