"""A log as a file of bytes that only grows. DistributedLog's AppendOnlyStreamWriter and -Reader.

Each record is a piece of the stream, and its transaction id is the position of the piece's end: so a position is found
by transaction id, and the last record says how long the stream is. A log that is a byte stream holds nothing else.
"""

from __future__ import annotations

import io
import os
import threading

import numpy as np
import pyarrow as pa

from scribengin.base.closing import ClosedOrAborted
from scribengin.errors import ConfigInvalid, EndOfStream, LogClosed, LogError, OverCapacity, PositionTruncated
from scribengin.log import PAYLOAD, LogNamespace, LogReader, TransactionId

_PIECE_BYTES = 256 * 1024


class ByteStreamWriter(ClosedOrAborted):
    """Appends bytes to a log, as its only writer. Thread-safe; of two threads that write at once, either is first."""

    def __init__(
        self,
        namespace: LogNamespace,
        log: str,
        *,
        timeout_s: float = 10.0,
        steal: bool = False,
        piece_bytes: int = _PIECE_BYTES,
    ) -> None:
        """Go on at the end of the stream. Bytes become records of at most `piece_bytes`, which the log must take.

        Raises as `LogNamespace.open_writer`, and ConfigInvalid.
        """
        self._log = log
        self._piece_bytes = piece_bytes
        self._lock = threading.RLock()
        self._buffer = bytearray()
        self._closed = False
        self._writer = namespace.open_writer(log, timeout_s=timeout_s, steal=steal)
        try:
            info = namespace.info(log)
            if not 0 < piece_bytes <= info.log.config.record_bytes_max:
                raise ConfigInvalid(
                    f"piece_bytes={piece_bytes}: log '{log}' takes 1 to {info.log.config.record_bytes_max}"
                )
        except BaseException:
            self._writer.abort()
            raise
        self._sent = self._durable = max(0, info.head.last_txid)

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Append `data`, and return how many bytes that is. It is there for sure when `flush` has returned; whole
        pieces are on their way before. Waits for those where the log takes no more unacknowledged ones.

        Raises LogError (no bytes), and as `LogWriter.write`. OverCapacity: what others write takes all the room that
        there is; `data` is kept, and goes with the next call, so do not write it again.
        """
        if not isinstance(data, bytes | bytearray | memoryview):
            raise LogError(f"log '{self._log}': a byte stream takes bytes, and not {data!r:.100}; encode it")
        data = memoryview(data).cast("B")
        with self._lock:
            self._check_open()
            self._buffer += data
            whole = len(self._buffer) // self._piece_bytes * self._piece_bytes
            self._send(whole)
        return len(data)

    def flush(self) -> int:
        """Make durable all that was written, and return the position behind it. Raises as `LogWriter.flush`; then
        nobody knows how much of it is in the stream: open a new writer, and look at `tell`."""
        with self._lock:
            self._check_open()
            self._send(len(self._buffer))
            end = self._sent
            self._writer.flush()
            self._durable = end
            return end

    def tell(self) -> int:
        """The position behind the last byte that is durable: it moves at `flush` only."""
        return self._durable

    def mark_end_of_stream(self) -> None:
        """Flush, and seal the log: the stream never gets longer. Raises as `LogWriter.mark_end_of_stream`."""
        with self._lock:
            self.flush()
            self._closed = True
            self._writer.mark_end_of_stream()

    def close(self) -> None:
        """Flush and close. Idempotent. Raises as `flush`."""
        with self._lock:
            try:
                if not self._closed:
                    self.flush()
            finally:
                self._closed = True
                self._writer.close()

    def abort(self) -> None:
        """Give the log back without flushing. Idempotent."""
        with self._lock:
            self._closed = True
            self._writer.abort()

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosed(f"log '{self._log}': the writer is closed; open a new one")

    def _send(self, size: int) -> None:
        """Hand the first `size` bytes of the buffer to the log. What it refuses stays in the buffer."""
        at = 0
        try:
            with memoryview(self._buffer) as buffer:
                while at < size:
                    piece = bytes(buffer[at : min(size, at + self._piece_bytes)])
                    self._write(piece)
                    at += len(piece)
        finally:
            del self._buffer[:at]

    def _write(self, piece: bytes) -> None:
        end = self._sent + len(piece)
        try:
            self._writer.write(piece, txid=end)
        except OverCapacity:
            self._writer.flush()  # its own pieces take the room, as a rule
            self._writer.write(piece, txid=end)
        self._sent = end


class ByteStreamReader(io.RawIOBase):
    """Reads such a log like a file that somebody else appends to: at its end a read returns nothing, and later more.

    Not thread-safe. `io.BufferedReader` and `io.TextIOWrapper` take it.
    """

    def __init__(self, namespace: LogNamespace, log: str, position: int = 0) -> None:
        """Begin at `position`. Raises as `seek`."""
        super().__init__()
        self._namespace = namespace
        self._log = log
        self._reader: LogReader | None = None
        self._piece = memoryview(b"")
        """Bytes from the position on that were read from the log and not given out."""
        self._position = 0
        self.ended = False
        """Whether the log was sealed, and all of it has been read."""
        self.seek(position)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a position, which may lie behind the end: what is before it when it is written is left out.

        Raises ValueError (before the beginning), LogNotFound, LogClosed. What was truncated is found out by reading.
        """
        self._check_open()
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position}.get(whence)
        position = offset + (self._end() if base is None else base)
        if position < 0:
            raise ValueError(f"log '{self._log}': {position} lies before the beginning of the stream")
        reader = self._namespace.open_reader(self._log, TransactionId(position + 1))
        self._close_reader()
        self._reader = reader
        self._position = position
        self._piece = memoryview(b"")
        self.ended = False
        return position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: object, /) -> int:
        """Read into `buffer` what is there, up to its size; 0: nothing is there now (see `ended`, `wait`).

        Raises PositionTruncated, and as `LogReader.read_batch`.
        """
        self._check_open()
        target = memoryview(buffer).cast("B")  # type: ignore[arg-type]  # whatever has a buffer
        if not self._piece and not self._read_piece(0.0):
            return 0
        size = min(len(target), len(self._piece))
        target[:size] = self._piece[:size]
        self._piece = self._piece[size:]
        self._position += size
        return size

    def wait(self, timeout_s: float) -> bool:
        """Block until there is something to read, the stream has ended or the timeout: whether there is something."""
        self._check_open()
        return bool(self._piece) or self._read_piece(timeout_s)

    def close(self) -> None:
        """Idempotent."""
        self._close_reader()
        super().close()

    def _read_piece(self, timeout_s: float) -> bool:
        assert self._reader is not None, "checked to be open"
        try:
            batch = self._reader.read_batch(timeout_s=timeout_s, place=False)
        except EndOfStream:
            self.ended = True
            return False
        if batch is None:
            return False
        data = _joined(batch.column(batch.schema.get_field_index(PAYLOAD)))
        start = batch.column(batch.schema.get_field_index("txid"))[-1].as_py() - len(data)
        if start > self._position:
            raise PositionTruncated(
                f"log '{self._log}': the stream was truncated before byte {start}, so {self._position} cannot be read; "
                f"seek to {start} or behind it"
            )
        self._piece = data[self._position - start :]
        return True

    def _end(self) -> int:
        last = self._namespace.last_record(self._log)
        return max(0, self._namespace.info(self._log).head.last_txid) if last is None else last.txid

    def _check_open(self) -> None:
        if self.closed:
            raise LogClosed(f"log '{self._log}': the reader is closed; open a new one")

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def _joined(pieces: pa.Array) -> memoryview:
    """The bytes of all values of a binary column, which stand one behind the other already."""
    _validity, offsets, data = pieces.buffers()
    bounds = np.frombuffer(offsets, np.int32)
    return memoryview(data).cast("B")[bounds[pieces.offset] : bounds[pieces.offset + len(pieces)]]
