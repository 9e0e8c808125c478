"""Readers that remember where they were: at least once.

DistributedLog's ReaderWithOffsets stores the position of the last record every ten seconds and starts there again, so
that record always comes twice. Here the stored position is that of the first record that has not been processed, and a
reader starts exactly there: after a clean end nothing comes twice, after a crash what was read since it was stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.closing import ClosedOrAborted
from scribengin.errors import EndOfStream, LogNotFound
from scribengin.log import DLSN, LogNamespace, Start
from scribengin.log.clients.multi import MultiReader
from scribengin.log.clients.offsets import LogOffset, OffsetStore


class StoredReader(ClosedOrAborted):
    """Reads logs as `MultiReader` does, from where the reader of that name was. Not thread-safe.

    A record counts as processed when the caller asks for the next ones, calls `commit`, or closes the reader: process
    what a call returned before you make the next one.
    """

    def __init__(
        self,
        namespace: LogNamespace,
        logs: Sequence[str],
        reader: str,
        store: OffsetStore,
        *,
        start: Mapping[str, Start] | None = None,
        commit_s: float = 10.0,
        commit_records: int | None = None,
        register: bool = False,
        wait_s: float | None = 1.0,
        clock: Clock = SYSTEM_CLOCK,
        **options: Any,
    ) -> None:
        """Start where `reader` was, or where `start` says for logs that it has not read (a log that was deleted and
        created again is such a log). The position is stored when `commit_s` seconds have passed since the last time, or
        `commit_records` records, at the next call. With `register`, the stored position is registered with each log
        too: then neither retention nor `truncate` takes what this reader has still to read, until
        `LogNamespace.unregister_reader`. `options` go to `LogNamespace.open_reader`: with `subscriber`, only one reader
        of that name reads at a time.

        Raises ConfigInvalid, and as `LogNamespace.open_reader`; PositionTruncated when the log was truncated behind the
        stored position: then delete it from the store to start at the first record that is kept.
        """
        self._namespace = namespace
        self._name = reader
        self._store = store
        self._clock = clock
        self._register = register
        self._commit_s = commit_s
        self._commit_records = commit_records
        stored = store.load(reader)
        directories = {log: namespace.info(log).log.directory for log in logs}
        known = {log: at for log, at in stored.items() if directories.get(log) == at.directory}
        self._others = {log: at for log, at in stored.items() if log not in directories}
        """Logs that this reader has read before and does not read now: what is stored of them is kept."""
        starts = {**(start or {}), **{log: at.position for log, at in known.items()}}
        self._reader = MultiReader(namespace, logs, start=starts, wait_s=wait_s, clock=clock, **options)
        self._stored = {log: at.position for log, at in known.items()}
        self._stored_s = clock.monotonic_s()
        self._records = 0
        try:
            if self._reader.directories != directories:
                raise LogNotFound(f"one of the logs {list(logs)} was created again just now; open the reader again")
            self._register_positions(self._reader.positions)
        except BaseException:
            self._reader.close()
            raise

    @property
    def positions(self) -> dict[str, DLSN]:
        """For each log, the position of the first record that was not returned."""
        return self._reader.positions

    def read_batch(self, records_max: int = 65_536, timeout_s: float = 0.0) -> pa.RecordBatch | None:
        """The next records, as MULTI_SCHEMA, or None after the timeout. What was returned before is processed.

        Raises as `MultiReader.read_batch`, and what the store raises. At EndOfStream everything is stored.
        """
        if self._due():
            self.commit()
        try:
            batch = self._reader.read_batch(records_max, timeout_s)
        except EndOfStream:
            self.commit()
            raise
        self._records += 0 if batch is None else batch.num_rows
        return batch

    def commit(self) -> None:
        """Store that all that was returned is processed. Raises what the store raises; it is right to call again."""
        positions = self._reader.positions
        if positions != self._stored:
            directories = self._reader.directories
            read = {log: LogOffset(directory=directories[log], position=at) for log, at in positions.items()}
            self._store.store(self._name, {**self._others, **read})
            self._register_positions(positions)  # after it is stored: what is registered is never ahead of that
        self._stored = positions
        self._stored_s = self._clock.monotonic_s()
        self._records = 0

    def close(self) -> None:
        """Commit, and close the reader. Idempotent."""
        try:
            self.commit()
        finally:
            self.abort()

    def abort(self) -> None:
        """Close the reader without a commit: what was returned since the last one comes again. Idempotent."""
        self._reader.close()

    def _register_positions(self, positions: Mapping[str, DLSN]) -> None:
        if self._register:
            for log, position in positions.items():
                self._namespace.register_reader(log, self._name, position)

    def _due(self) -> bool:
        enough = self._commit_records is not None and self._records >= self._commit_records
        return enough or self._clock.monotonic_s() - self._stored_s >= self._commit_s
