"""From one log to another, exactly once: what was made of a record and how far the source was read are one write.

Every target record begins with an envelope: a version byte, 8 bytes that name the source log, and the 25 bytes of a
DLSN, the position of the first source record that was not read yet when it was made. What one source batch becomes is
one entry of the target, visible whole or not at all. So the last record of the target says where to go on, whatever
happened: nothing else has to be kept, and nothing can contradict it.

**Taking over.** First become the target's writer, which fences the one before and decides what of its last write is in
the log; then look at the last record; then open the source there. Fence, then look.

Three mistakes to avoid. A target that something else writes too: its last record says nothing about the source
(refused). A target that is truncated to nothing: with its last record it loses the position (refused). A transformation
that makes nothing of many records: as no record says that they were read, they are read again after a restart, and
nothing comes of them again.

DistributedLog's StreamTransformer keeps the DLSN of the one record that a target record was made from, and skips that
one when it starts again; here batches become batches, and the position is that of the next record, so nothing is
skipped.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from scribengin.base.closing import ClosedOrAborted
from scribengin.errors import ConfigInvalid, EndOfStream, InconsistentLog, LogError, RecordTooLarge
from scribengin.log import DLSN, PAYLOAD, LogNamespace, LogReader, Start

Transform = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Takes records as READ_SCHEMA and returns what `LogWriter.write_bulk` takes, any number of rows. It may be called
again for the same records, with other batches of them."""

_VERSION = b"\x01"
_SOURCE_BYTES = 8
_POSITION_AT = 1 + _SOURCE_BYTES
ENVELOPE_BYTES = _POSITION_AT + len(DLSN.INITIAL.to_bytes())
_POLL_S = 0.5


class Transformer(ClosedOrAborted):
    """Transforms one log into another, as the target's only writer. Not thread-safe."""

    def __init__(
        self,
        namespace: LogNamespace,
        source: str,
        target: str,
        transform: Transform,
        *,
        start: Start = None,
        timeout_s: float = 10.0,
        steal: bool = False,
        records_max: int = 4096,
    ) -> None:
        """Go on where the target's last record says, or at `start` if the target never had a record.

        `records_max` is how many source records are transformed at a time; fewer, where what becomes of them is more
        than one entry of the target holds. Raises as `LogNamespace.open_writer` and `open_reader`; LogError and
        InconsistentLog for a target that was not made from this source, ConfigInvalid for one that is the source.
        """
        if source == target:
            raise ConfigInvalid(f"log '{source}' is source and target: it would be made of itself; name another target")
        self._namespace = namespace
        self._source = source
        self._target = target
        self._transform = transform
        self._records_max = records_max
        self._failure: BaseException | None = None
        self._writer = namespace.open_writer(target, timeout_s=timeout_s, steal=steal)
        try:
            self._reader = self._open_source(start)
        except BaseException:
            self._writer.abort()
            raise
        self._stamp = _VERSION + _source_id(self._reader.directory)

    @property
    def position(self) -> DLSN:
        """Of the first source record that was not transformed yet."""
        return self._reader.position

    def run_once(self, timeout_s: float = 0.0) -> int:
        """Transform the next source records and write what they become; return how many were read, 0 after the timeout.

        It is written when `flush` or `close` has returned. Raises EndOfStream when the source is sealed and read, what
        the reader and the writer raise, and what the transformation raises. A batch that failed is not passed over:
        every later call raises the same, and a new transformer begins with what was not written.
        """
        if self._failure is not None:
            raise self._failure
        batch = self._reader.read_batch(self._records_max, timeout_s)
        if batch is None:
            return 0
        try:
            self._write(batch, self._reader.position)
        except BaseException as error:
            self._failure = error
            raise
        return int(batch.num_rows)

    def run(self, stop: threading.Event) -> None:
        """Transform until `stop` is set or the source has ended, then flush. Raises as `run_once`."""
        try:
            while not stop.is_set():
                self.run_once(_POLL_S)
        except EndOfStream:
            pass
        self._writer.flush()

    def flush(self) -> None:
        """Wait until all that was written is durable. Raises as `LogWriter.flush`."""
        self._writer.flush()

    def mark_end_of_stream(self) -> None:
        """Seal the target, and close. Raises as `LogWriter.mark_end_of_stream`."""
        self._writer.mark_end_of_stream()
        self.close()

    def close(self) -> None:
        """Flush, and give the target back. Idempotent. Raises as `LogWriter.close`."""
        try:
            self._writer.close()
        finally:
            self._reader.close()

    def abort(self) -> None:
        """Give the target back without flushing. What was not written is transformed by the next one. Idempotent."""
        try:
            self._writer.abort()
        finally:
            self._reader.close()

    def _open_source(self, start: Start) -> LogReader:
        last = self._namespace.last_record(self._target)
        if last is None:
            if self._namespace.info(self._target).head.next_sequence:
                raise InconsistentLog(
                    f"log '{self._target}' was truncated to nothing, and with it went the position in "
                    f"'{self._source}': create another target, and start where this one was"
                )
            return self._namespace.open_reader(self._source, start)
        reader = self._namespace.open_reader(self._source)
        try:
            if last.payload[:_POSITION_AT] != _VERSION + _source_id(reader.directory):
                raise LogError(
                    f"the last record of log '{self._target}' was not made from log '{self._source}', as it is now: "
                    "one of them was created again, or somebody else writes the target; create another target"
                )
        finally:
            reader.close()
        return self._namespace.open_reader(self._source, source_position(last.payload))

    def _write(self, batch: pa.RecordBatch, position: DLSN) -> None:
        """Write what `batch` becomes, as one entry; as two of its halves, if that is too much for one."""
        made = self._transform(batch)
        if not isinstance(made, pa.RecordBatch):
            raise LogError(f"the transformation returned a {type(made).__name__}; let it return a pyarrow.RecordBatch")
        if not made.num_rows:
            return
        try:
            self._writer.write_atomic(_stamped(made, self._stamp + position.to_bytes()))
        except RecordTooLarge:
            half = batch.num_rows // 2
            if not half:
                raise
            self._write(batch.slice(0, half), _place_of(batch, half))
            self._write(batch.slice(half), position)


def source_position(payload: bytes) -> DLSN:
    """Up to where the source had been read when this target record was made. Raises LogError."""
    return DLSN.from_bytes(payload[_POSITION_AT:ENVELOPE_BYTES])


def without_envelope(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Records that were read from a target, with the payloads that the transformation gave them."""
    at = batch.schema.get_field_index(PAYLOAD)
    return batch.set_column(at, PAYLOAD, pc.binary_replace_slice(batch.column(at), 0, ENVELOPE_BYTES, b""))


def _stamped(batch: pa.RecordBatch, envelope: bytes) -> pa.RecordBatch:
    at = batch.schema.get_field_index(PAYLOAD)
    if at < 0:
        raise LogError("the transformation returned records without a column 'payload'; correct it")
    payload = batch.column(at).cast(pa.binary())
    joined = pc.binary_join_element_wise(pa.scalar(envelope, pa.binary()), payload, pa.scalar(b"", pa.binary()))
    return batch.set_column(at, PAYLOAD, joined)


def _place_of(batch: pa.RecordBatch, row: int) -> DLSN:
    return DLSN(*(batch.column(name)[row].as_py() for name in ("segment", "entry", "slot")))


def _source_id(directory: str) -> bytes:
    """A log's directory is never used again, so this tells it from every other log."""
    return hashlib.blake2b(directory.encode(), digest_size=_SOURCE_BYTES).digest()
