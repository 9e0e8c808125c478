"""Several logs as one stream, split by key: records with the same key stand in one log, in order."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from scribengin.base.closing import ClosedOrAborted
from scribengin.errors import LogError, ScribenginError
from scribengin.log import DLSN, DlsnRange, LogNamespace
from scribengin.log.clients.partitioners import Partitioner, check_logs, hash_partitioner, split_batch, split_rows
from scribengin.log.clients.stream import LogStream, for_each, open_streams
from scribengin.log.format.records import batch_refusal


class PartitionedWriter(ClosedOrAborted):
    """Writes several logs as their only writer. Thread-safe. The streams of DistributedLog's messaging tutorial.

    A log whose writer has failed refuses its records, and the other logs go on: a record is never put where its key
    does not belong. `reopen` lets the failed ones go on too, once the caller knows what to do about what was uncertain.
    """

    def __init__(
        self,
        namespace: LogNamespace,
        logs: Sequence[str],
        *,
        partitioner: Partitioner = hash_partitioner,
        timeout_s: float = 10.0,
    ) -> None:
        """Become the writer of all `logs`; their order is that of the streams, 0 first. Waits for each lock up to
        `timeout_s`. Raises ConfigInvalid, and as `LogNamespace.open_writer`; then it is the writer of none."""
        self._streams = open_streams(namespace, check_logs(logs), timeout_s=timeout_s)
        self._partitioner = partitioner
        self._turn = threading.Lock()
        self._next_stream = 0

    @property
    def logs(self) -> tuple[str, ...]:
        """The logs that it writes, by partition."""
        return tuple(stream.log for stream in self._streams)

    def write(
        self, key: bytes | None, payload: bytes, *, txid: int | None = None, channel: str | None = None
    ) -> Future[DLSN]:
        """Append one record to the log of its key; without a key, to the next log in turn. Raises as
        `LogWriter.write`, and LogError when the partitioner fails."""
        if not isinstance(key, bytes | bytearray | memoryview | None):
            raise LogError(f"logs {', '.join(map(repr, self.logs))}: a key is bytes, and not {key!r:.100}; encode it")
        stream = self._streams[int(self._split(pa.array([key], pa.binary()))[0])]
        return stream.writer.write(payload, txid=txid, key=key, channel=channel)

    def write_bulk(self, batch: pa.RecordBatch) -> dict[str, Future[DlsnRange]]:
        """Append the rows of `batch`, each to the log of its `key`, and return a future for each log that gets any.

        What `LogWriter.write_bulk` would raise for one log is raised by that log's future: the rows of the other logs
        are on their way already. Raises LogError (no rows, a column that no record has, keys that are not binary, a
        partitioner that fails) before anything is written.
        """
        if (why := batch_refusal(batch)) is not None:
            raise LogError(f"logs {', '.join(map(repr, self.logs))}: {why}")
        parts = split_batch(batch, self._split(_key_column(batch)))
        return {
            self._streams[stream].log: self._write_part(self._streams[stream], part) for stream, part in parts.items()
        }

    def flush(self) -> None:
        """Wait until all that was written before is durable, in all logs. Raises what a writer that has failed raises,
        after the others are flushed."""
        for_each(stream.writer.flush for stream in self._streams)

    def reopen(self, *, timeout_s: float = 10.0) -> list[str]:
        """Replace every writer that has failed, and return those logs. Raises as `LogNamespace.open_writer`."""
        return [stream.log for stream in self._streams if stream.reopen(timeout_s=timeout_s)]

    def close(self) -> None:
        """Flush and close all writers. Idempotent. Raises as `flush`."""
        for_each(stream.close for stream in self._streams)

    def abort(self) -> None:
        """Give all locks back without flushing: what is pending fails with LogClosed. Idempotent."""
        for_each(stream.abort for stream in self._streams)

    def _split(self, keys: pa.Array) -> npt.NDArray[np.int32]:
        with self._turn:
            chosen, self._next_stream = split_rows(keys, len(self._streams), self._partitioner, self._next_stream)
        return chosen

    def _write_part(self, stream: LogStream, part: pa.RecordBatch) -> Future[DlsnRange]:
        try:
            return stream.writer.write_bulk(part)
        except ScribenginError as error:
            failed: Future[DlsnRange] = Future()
            failed.set_exception(error)
            return failed


def _key_column(batch: pa.RecordBatch) -> pa.Array:
    at = batch.schema.get_field_index("key")
    if at < 0:
        return pa.nulls(batch.num_rows, pa.binary())
    try:
        return batch.column(at).cast(pa.binary())
    except pa.ArrowException as error:
        raise LogError(f"the column 'key' is {batch.column(at).type} and not binary: {error}") from None
