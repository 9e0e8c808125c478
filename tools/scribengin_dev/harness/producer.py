"""Appends the flights to the logs `flights/0` ... at a steady pace, as an airport would, while the dataflows run."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Protocol

import pyarrow as pa

from scribengin.base.clock import Clock
from scribengin.errors import StoreUnreachable
from scribengin.log import LogNamespace, LogWriter

_TICK_S = 0.2


def due(elapsed_s: float, duration_s: float, first: int, records: int) -> int:
    """How many of `records` should have been appended after `elapsed_s` of `duration_s`, which began with `first`."""
    if elapsed_s >= duration_s:
        return records
    return first + int((records - first) * max(elapsed_s, 0.0) / duration_s)


class Feed(Protocol):
    """Whatever appends records while dataflows run."""

    @property
    def appended(self) -> int:
        """Records that are durable."""
        ...

    @property
    def total(self) -> int:
        """Records that there will be."""
        ...

    @property
    def done(self) -> bool:
        """Whether everything was appended and is durable."""
        ...

    @property
    def begun_ms(self) -> int | None:
        """When it has begun; None: it has not."""
        ...

    @property
    def took_s(self) -> float:
        """How long it has been appending at its pace."""
        ...

    def start(self) -> None:
        """Append the first records."""
        ...

    def go_on(self) -> None:
        """Append the others, at a steady pace."""
        ...

    def check(self) -> None:
        """Raise what ended it, if anything did."""
        ...

    def stop(self) -> None:
        """End it, finished or not. Idempotent."""
        ...


class Producer:
    """A thread that appends `batches[k]` to the log `logs[k]`, all of them in step. `check` raises its failure.

    It appends `first` records to each log at once, so that whoever reads them can warm up, the others at a steady pace
    from `go_on` on. Nobody else writes to the logs, and they are empty at first: so after the store was unreachable
    they tell how far it got, and it goes on from there.
    """

    def __init__(
        self,
        namespace: LogNamespace,
        logs: Sequence[str],
        batches: Sequence[pa.RecordBatch],
        *,
        first: int,
        duration_s: float,
        clock: Clock,
    ) -> None:
        self._namespace = namespace
        self._batches = dict(zip(logs, batches, strict=True))
        self._done = dict.fromkeys(logs, 0)
        self._first = first
        self._duration_s = duration_s
        self._clock = clock
        self._going_on = threading.Event()
        self._begun_s: float | None = None
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="producer", daemon=True)
        self.appended = 0
        """Records that are durable in the logs."""
        self.total: int = sum(batch.num_rows for batch in batches)
        self.begun_ms: int | None = None
        self.took_s = 0.0
        """How long it has been appending at its pace."""

    def start(self) -> None:
        """Begin to append."""
        self._thread.start()

    def go_on(self) -> None:
        """Append the others."""
        self._going_on.set()

    def check(self) -> None:
        """Raise what ended the producer, if anything did."""
        if self._failure is not None:
            raise self._failure

    @property
    def done(self) -> bool:
        """Whether everything was appended and is durable."""
        return self.appended >= self.total

    def stop(self) -> None:
        """End it, finished or not. Idempotent."""
        self._stopping.set()
        self._going_on.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            self._produce()
        except BaseException as error:  # noqa: BLE001  a thread's outermost loop: `check` raises it in the demo's own
            self._failure = error

    def _produce(self) -> None:
        while not self.done and not self._stopping.is_set():
            try:
                with ExitStack() as opened:
                    self._append_all({log: opened.enter_context(self._opened(log)) for log in self._batches})
            except StoreUnreachable:
                self._stopping.wait(_TICK_S)  # nodes of it have died, or do not answer in time: some are left

    @contextmanager
    def _opened(self, log: str) -> Iterator[LogWriter]:
        """A writer, which goes on behind what the log has: whatever of that was never acknowledged is counted, too."""
        writer = self._namespace.open_writer(log)
        try:
            self._done[log] = self._namespace.count(log)
            yield writer
        except BaseException:
            writer.abort()
            raise
        writer.close()

    def _append_all(self, writers: dict[str, LogWriter]) -> None:
        self.begun_ms = self.begun_ms or self._clock.now_ms()
        self._append(writers, 0.0)
        self._going_on.wait()
        begun_s = self._begun_s = self._begun_s or self._clock.monotonic_s()
        while not self.done and not self._stopping.wait(_TICK_S):
            self._append(writers, self._clock.monotonic_s() - begun_s)

    def _append(self, writers: dict[str, LogWriter], elapsed_s: float) -> None:
        """Bring every log to what is due, and wait until it is durable."""
        sent = []
        for log, batch in self._batches.items():
            first = min(self._first, batch.num_rows)
            done, now = self._done[log], due(elapsed_s, self._duration_s, first, batch.num_rows)
            if now > done:
                sent.append(writers[log].write_bulk(batch.slice(done, now - done)))
                self._done[log] = now
        for future in sent:
            future.result()
        self.appended = sum(self._done.values())
        self.took_s = elapsed_s
