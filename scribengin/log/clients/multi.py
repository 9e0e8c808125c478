"""Several logs read as one, in the order of their transaction ids.

The order is (transaction id, place of the log in the list): a record comes before another if its id is smaller, and of
equal ids the one from the log that is named first; records of one log keep their order, even where their ids decrease
(a log with `check_txids=false`: a record counts as if it had the largest id so far). It is the same at every reading,
as long as no log had to be waited for in vain: a record can only be given out when every other log has shown what it
has up to that id. A log that has nothing to show is waited for, but not for ever: after `wait_s` without a record the
others go on, and what it then brings with smaller ids comes late. Sealed logs drop out at their end.

What was written lately can be read again, as DistributedLog's StreamRewinder does.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.closing import ClosedAtExit
from scribengin.errors import ConfigInvalid, EndOfStream, LogClosed
from scribengin.log import DLSN, READ_SCHEMA, LogNamespace, LogReader, Start, Time
from scribengin.log.clients.partitioners import check_logs
from scribengin.log.clients.stream import for_each

MULTI_SCHEMA = READ_SCHEMA.append(pa.field("log", pa.dictionary(pa.int32(), pa.string())))
"""What `MultiReader.read_batch` returns: a record, its place, and the name of its log."""
_POLL_S_MIN, _POLL_S_MAX = 0.001, 0.020
_MERGE_BYTES_MAX = 64 * 1024 * 1024
"""More than this is not merged in memory: it is given out run by run, mapped as it was read."""


class _Source:
    """One log, and what was read of it and not given out."""

    def __init__(self, log: str, reader: LogReader) -> None:
        self.log = log
        self.reader = reader
        self.batch: pa.RecordBatch | None = None
        self.order: npt.NDArray[np.int64] = np.empty(0, np.int64)
        """By what each row of the batch is ordered: the largest transaction id up to there."""
        self.empty_since_s: float | None = None
        self.ended = False

    @property
    def position(self) -> DLSN:
        """Of the first record that was not given out."""
        if self.batch is None:
            return self.reader.position
        return DLSN(*(self.batch.column(name)[0].as_py() for name in ("segment", "entry", "slot")))

    def fill(self, records_max: int, now_s: float) -> None:
        """Read on, if nothing is left. Raises as `LogReader.read_batch`, but not EndOfStream."""
        if self.batch is not None or self.ended:
            return
        try:
            self.batch = self.reader.read_batch(records_max)
        except EndOfStream:
            self.ended = True
            return
        if self.batch is not None:
            self.order = np.maximum.accumulate(self.batch.column("txid").to_numpy())
            self.empty_since_s = None
        elif self.empty_since_s is None:
            self.empty_since_s = now_s

    def take(self, rows: int) -> None:
        """Forget the first rows: they are given out."""
        assert self.batch is not None, "only what was read can be given out"
        self.order = self.order[rows:]
        self.batch = self.batch.slice(rows) if rows < self.batch.num_rows else None


class MultiReader(ClosedAtExit):
    """Reads several logs as one stream in the order of transaction ids. Not thread-safe, but for `close`.

    It holds at most one entry of each log, and what it is giving out.
    """

    def __init__(
        self,
        namespace: LogNamespace,
        logs: Sequence[str],
        *,
        start: Mapping[str, Start] | None = None,
        wait_s: float | None = 1.0,
        clock: Clock = SYSTEM_CLOCK,
        **options: Any,
    ) -> None:
        """Read each log from where `start` says (not named: from its beginning). `wait_s` is how long a log without
        records is waited for; None: for ever, so that the order always holds. `options` go to
        `LogNamespace.open_reader`.

        Raises ConfigInvalid, and as `LogNamespace.open_reader`.
        """
        logs = check_logs(logs)
        if others := [log for log in start or {} if log not in logs]:
            raise ConfigInvalid(f"`start` names {others}, and the logs are {logs}: correct the names")
        self._wait_s = wait_s
        self._clock = clock
        self._closed = threading.Event()
        self._names = pa.array(logs, pa.string())
        with ExitStack() as opened:
            readers = [
                opened.enter_context(namespace.open_reader(log, (start or {}).get(log), **options)) for log in logs
            ]
            opened.pop_all()
        self._sources = [_Source(log, reader) for log, reader in zip(logs, readers, strict=True)]

    @property
    def positions(self) -> dict[str, DLSN]:
        """For each log, the position of the first record that was not given out: as `start`, a reader goes on there."""
        return {source.log: source.position for source in self._sources}

    @property
    def directories(self) -> dict[str, str]:
        """For each log, what tells it from another one that had, or will have, its name."""
        return {source.log: source.reader.directory for source in self._sources}

    def read_batch(self, records_max: int = 65_536, timeout_s: float = 0.0) -> pa.RecordBatch | None:
        """The next records, as MULTI_SCHEMA: at least one, at most `records_max`. None after the timeout.

        Raises EndOfStream (every time) when all logs are sealed and read, LogClosed, and as `LogReader.read_batch` what
        is wrong with one of the logs.
        """
        records_max = max(1, records_max)
        deadline_s = self._clock.monotonic_s() + timeout_s
        poll_s = _POLL_S_MIN
        while True:
            self._check_open()
            now_s = self._clock.monotonic_s()
            for source in self._sources:
                source.fill(records_max, now_s)
            if all(source.ended for source in self._sources):
                raise EndOfStream(f"the logs {self._names.to_pylist()} were sealed, and all of them have been read")
            if any(source.batch is not None for source in self._sources) and not self._waits(now_s):
                return self._merge(records_max)
            left_s = deadline_s - now_s
            if left_s <= 0:
                return None
            self._closed.wait(min(poll_s, left_s))
            poll_s = min(2 * poll_s, _POLL_S_MAX)

    def close(self) -> None:
        """Close all readers. A call that waits in another thread raises LogClosed. Idempotent. Raises as
        `LogReader.close`."""
        self._closed.set()
        for_each(source.reader.close for source in self._sources)

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise LogClosed(f"the reader of the logs {self._names.to_pylist()} is closed; open a new one")

    def _waits(self, now_s: float) -> bool:
        """Whether some log may still show a record that comes before those that are here."""
        since = [source.empty_since_s for source in self._sources if source.batch is None and not source.ended]
        return any(self._wait_s is None or now_s - empty_s < self._wait_s for empty_s in since if empty_s is not None)

    def _merge(self, records_max: int) -> pa.RecordBatch:
        """The records that come before anything that was not read yet. At least one log gives all it has."""
        present = [number for number, source in enumerate(self._sources) if source.batch is not None]
        orders = [self._sources[number].order for number in present]
        shortest = int(np.argmin([order[-1] for order in orders]))  # of equals, the log that is named first
        bound = orders[shortest][-1]
        cuts = [_cut(order, bound, at <= shortest) for at, order in enumerate(orders)]
        ready = [order[:cut] for order, cut in zip(orders, cuts, strict=True)]
        rows = np.argsort(np.concatenate(ready), kind="stable")[:records_max]
        owners = np.repeat(np.array(present, np.int32), [len(part) for part in ready])[rows]
        return self._give_out(owners, rows, dict(zip(present, map(len, ready), strict=True)))

    def _give_out(
        self, owners: npt.NDArray[np.int32], rows: npt.NDArray[np.intp], ready: Mapping[int, int]
    ) -> pa.RecordBatch:
        """The records of `owners`, in that order; `rows` are theirs in the `ready` first ones of each log joined."""
        others = np.flatnonzero(owners != owners[0])
        pieces = {number: self._piece(number, count) for number, count in ready.items()}
        if not len(others) or sum(piece.nbytes for piece in pieces.values()) > _MERGE_BYTES_MAX:
            run = int(others[0]) if len(others) else len(owners)
            batch = self._piece(int(owners[0]), run)
            self._sources[int(owners[0])].take(run)
            return self._named(batch, owners[:run])
        joined = pa.Table.from_batches(list(pieces.values())).combine_chunks().to_batches()[0]
        for number, count in enumerate(np.bincount(owners)):
            if count:
                self._sources[number].take(int(count))
        return self._named(joined.take(pa.array(rows)), owners)

    def _piece(self, number: int, rows: int) -> pa.RecordBatch:
        batch = self._sources[number].batch
        assert batch is not None, "only logs that have a batch are merged"
        return batch.slice(0, rows)

    def _named(self, batch: pa.RecordBatch, owners: npt.NDArray[np.int32]) -> pa.RecordBatch:
        logs = pa.DictionaryArray.from_arrays(pa.array(owners), self._names)
        return pa.RecordBatch.from_arrays([*batch.columns, logs], schema=MULTI_SCHEMA)


def _cut(order: npt.NDArray[np.int64], bound: int, including: bool) -> int:
    """How many rows come before the end of the log that sets `bound`; rows that equal it only if `including`."""
    return int(np.searchsorted(order, bound, "right" if including else "left"))


def rewind(namespace: LogNamespace, log: str, seconds: float, *, clock: Clock = SYSTEM_CLOCK) -> LogReader:
    """A reader that starts at the first record that was written `seconds` ago or later, as `Time` finds it; if all are
    older, it waits for the next one. Raises as `LogNamespace.open_reader`."""
    return namespace.open_reader(log, Time(clock.now_ms() - round(seconds * 1000)))
