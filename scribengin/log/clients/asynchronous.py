"""Writers and readers of logs for programs of asyncio: those of a namespace, whose waits are awaited.

Nothing here blocks the loop. A writer submits on the loop's thread, and keeps back what the log's writer would wait
with. All that was written meanwhile is told to the loop together. A reader reads on a thread of its own.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

import pyarrow as pa

from scribengin.base.threads import background
from scribengin.errors import EndOfStream, ScribenginError
from scribengin.log.format.dlsn import DLSN, DlsnRange
from scribengin.log.format.records import LogRecord, frozen
from scribengin.log.namespace import LogNamespace
from scribengin.log.read.reader import LogReader
from scribengin.log.read.starts import Start
from scribengin.log.write.writer import LogWriter

_T = TypeVar("_T")
_Bytes = bytes | bytearray | memoryview
_RECORD_BYTES = 2048
"""What a record takes beside its bytes while it waits: somewhat more than the log's writer says."""
_ROW_BYTES = 64
"""What a row of a batch takes beside its bytes: the columns that it lacks, and its share of an entry."""
_WAIT_S = 1.0
"""So long a reader's thread waits at a time."""
_ENDING_THREADS = 8
"""That many writers and readers of a namespace flush or end at the same time."""
_OPENING_THREADS = 64
"""That many are opened at the same time: each may wait for another writer to end."""


class AsyncNamespace:
    """Opens writers and readers of a namespace, also of one behind proxies. `namespace` is closed by whoever made it,
    after them."""

    def __init__(self, namespace: LogNamespace) -> None:
        self._namespace = namespace
        self._opening = ThreadPoolExecutor(_OPENING_THREADS, thread_name_prefix="log-async-opening")
        """asyncio's own threads have more to do than to wait for logs."""
        self._ending = ThreadPoolExecutor(_ENDING_THREADS, thread_name_prefix="log-async-ending")
        """All of those may wait to open what is given back here."""

    async def open_writer(self, name: str, **options: Any) -> AsyncLogWriter:
        """As `open_writer` of the namespace, with its options and errors. Who is cancelled does not become the
        writer."""
        opens = partial(self._namespace.open_writer, name, **options)
        writer = await self._opened(opens, lambda writer: writer.abort())
        return AsyncLogWriter(writer, self._ending)

    async def open_reader(self, name: str, start: Start = None, **options: Any) -> AsyncLogReader:
        """As `open_reader` of the namespace, with its options and errors."""
        opens = partial(self._namespace.open_reader, name, start, **options)
        reader = await self._opened(opens, lambda reader: reader.close())
        return AsyncLogReader(reader, self._ending)

    async def _opened(self, opens: Callable[..., _T], undo: Callable[[_T], object]) -> _T:
        """What `opens(cancel=)` returns, on another thread."""
        cancel = threading.Event()
        opening = self._opening.submit(opens, cancel=cancel)
        try:
            return await asyncio.wrap_future(opening)
        except asyncio.CancelledError:
            cancel.set()
            opening.add_done_callback(partial(_abandon, undo))  # whether the loop runs by then or not
            raise


class _Managed(ABC):
    """For `async with`: closed when the block ends, aborted when an exception ends it."""

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def abort(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await (self.close() if error is None else self.abort())


class _Waiting(NamedTuple):
    """Something that is to be submitted once there is room."""

    submit: Callable[[], Future[Any]]
    size_bytes: int
    future: asyncio.Future[Any]


class AsyncLogWriter(_Managed):
    """As LogWriter, for the tasks of one loop. Made by `AsyncNamespace.open_writer`.

    The order in which its methods are called is that of the log, whoever awaits what. What LogWriter raises at once,
    its futures raise. Who is cancelled while it waits has written all the same.
    """

    def __init__(self, writer: LogWriter, ending: ThreadPoolExecutor) -> None:
        self._writer = writer
        self._ending = ending
        self._loop = asyncio.get_running_loop()
        self._queue: deque[_Waiting] = deque()
        self._pending_bytes = 0
        """Of what was submitted and is not written yet."""
        self._drained = asyncio.Event()
        self._drained.set()
        self._lock = threading.Lock()
        self._acks: list[tuple[_Waiting, Future[Any]]] = []
        """What the log's writer has told since the loop has looked. Guarded by the lock."""

    @property
    def failed(self) -> bool:
        """As LogWriter.failed."""
        return self._writer.failed

    def write(
        self,
        payload: _Bytes,
        *,
        txid: int | None = None,
        key: _Bytes | None = None,
        channel: str | None = None,
        type: int = 0,  # noqa: A002  the column's name
    ) -> asyncio.Future[DLSN]:
        """As LogWriter.write. Await it at once, or later: many records then share a sync of the disk. Who writes faster
        than the disk awaits `drain` now and then."""
        payload = frozen(payload)
        key = None if key is None else frozen(key)
        size = len(payload) + len(key or b"") + _RECORD_BYTES
        return self._submit(partial(self._writer.write, payload, txid=txid, key=key, channel=channel, type=type), size)

    def write_bulk(self, batch: pa.RecordBatch) -> asyncio.Future[DlsnRange]:
        """As LogWriter.write_bulk. The batch is encoded on the loop's thread, so let it be no larger than a few MiB."""
        return self._submit(partial(self._writer.write_bulk, batch), _size_of(batch))

    def write_atomic(self, batch: pa.RecordBatch) -> asyncio.Future[DlsnRange]:
        """As LogWriter.write_atomic."""
        return self._submit(partial(self._writer.write_atomic, batch), _size_of(batch))

    async def drain(self) -> None:
        """Wait until the log's writer has taken all that was written: memory is bounded by who awaits this."""
        await self._drained.wait()

    async def flush(self) -> DLSN:
        """As LogWriter.flush."""
        await self.drain()
        return await self._loop.run_in_executor(self._ending, self._writer.flush)

    async def mark_end_of_stream(self) -> None:
        """As LogWriter.mark_end_of_stream."""
        await self.drain()
        await self._loop.run_in_executor(self._ending, self._writer.mark_end_of_stream)

    async def close(self) -> None:
        """As LogWriter.close."""
        await self.drain()
        await self._loop.run_in_executor(self._ending, self._writer.close)

    async def abort(self) -> None:
        """As LogWriter.abort."""
        await self._loop.run_in_executor(self._ending, self._writer.abort)
        self._send(all_of_it=True)

    def _submit(self, submit: Callable[[], Future[_T]], size_bytes: int) -> asyncio.Future[_T]:
        future: asyncio.Future[_T] = self._loop.create_future()
        self._queue.append(_Waiting(submit, size_bytes, future))
        self._send()
        return future

    def _send(self, *, all_of_it: bool = False) -> None:
        """Submit what there is room for. The log's writer has no other caller, so it has room, too."""
        while self._queue and (all_of_it or self._pending_bytes < self._writer.pending_bytes_max):
            waiting = self._queue.popleft()
            try:
                taken = waiting.submit()
            except ScribenginError as error:
                if not waiting.future.done():
                    waiting.future.set_exception(error)
                continue
            except BaseException:  # a mistake of the caller's: nobody shall wait for what never comes
                waiting.future.cancel()
                raise
            self._pending_bytes += waiting.size_bytes
            taken.add_done_callback(partial(self._acked, waiting))
        (self._drained.clear if self._queue else self._drained.set)()

    def _acked(self, waiting: _Waiting, taken: Future[Any]) -> None:
        """On the log writer's thread: one call wakes the loop for all that it has not looked at yet."""
        with self._lock:
            self._acks.append((waiting, taken))
            if len(self._acks) > 1:
                return
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._take_acks)

    def _take_acks(self) -> None:
        with self._lock:
            acks, self._acks = self._acks, []
        for waiting, taken in acks:
            self._pending_bytes -= waiting.size_bytes
            if waiting.future.done():
                continue
            error = taken.exception()
            if error is None:
                waiting.future.set_result(taken.result())
            else:
                waiting.future.set_exception(error)
        self._send()


class AsyncLogReader(_Managed):
    """As LogReader, for one task at a time. Made by `AsyncNamespace.open_reader`.

    `async for record in reader` follows the log, and ends behind the last record of one that was sealed.
    """

    def __init__(self, reader: LogReader, ending: ThreadPoolExecutor) -> None:
        self._reader = reader
        self._ending = ending
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="log-async-reader")
        self._reading: asyncio.Future[list[LogRecord]] | None = None
        """What the thread reads just now; or has read, for somebody who was cancelled meanwhile."""
        self._left: deque[LogRecord] = deque()
        self._closed = False

    async def read(self, records_max: int = 1000, timeout_s: float | None = None) -> list[LogRecord]:
        """As LogReader.read, with its errors. Without `timeout_s` it waits for as long as it takes.

        Who is cancelled while it waits loses nothing: the next call returns what was read meanwhile.
        """
        loop = asyncio.get_running_loop()
        until_s = None if timeout_s is None else loop.time() + timeout_s
        while not self._left:
            left_s = _WAIT_S if until_s is None else max(0.0, until_s - loop.time())
            self._left.extend(await self._read(records_max, min(left_s, _WAIT_S)))
            if left_s == 0:
                break
        return [self._left.popleft() for _ in range(min(records_max, len(self._left)))]

    async def close(self) -> None:
        """As LogReader.close: who waits in `read` raises ReadCancelled, and who reads afterwards LogClosed."""
        await asyncio.get_running_loop().run_in_executor(self._ending, self._reader.close)
        self._closed = True
        self._thread.shutdown(wait=False)
        if self._reading is not None:
            self._reading.add_done_callback(_look_at)  # of somebody who was cancelled: nobody else will

    async def abort(self) -> None:
        """As close."""
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> LogRecord:
        if not self._left:
            try:
                self._left.extend(await self.read())
            except EndOfStream:
                raise StopAsyncIteration from None
        return self._left.popleft()

    async def _read(self, records_max: int, wait_s: float) -> list[LogRecord]:
        if self._closed:
            return self._reader.read(records_max)  # which raises what it says by then
        if self._reading is None:
            self._reading = asyncio.wrap_future(self._thread.submit(self._reader.read, records_max, wait_s))
        try:
            found = await asyncio.shield(self._reading)
        except asyncio.CancelledError:
            raise  # the next call asks what has become of it
        except BaseException:
            self._reading = None
            raise
        self._reading = None
        return found


def _size_of(batch: pa.RecordBatch) -> int:
    """Somewhat more than the log's writer counts for it: it must not find less room than was left by this."""
    size: int = batch.nbytes + batch.num_rows * _ROW_BYTES + _RECORD_BYTES
    return size


def _look_at(answer: asyncio.Future[Any]) -> None:
    """asyncio writes of every exception that nobody has looked at."""
    if not answer.cancelled():
        answer.exception()


def _abandon(undo: Callable[[_T], object], opening: Future[_T]) -> None:
    """Nobody waits for it any more: what was opened all the same is closed."""
    if not opening.cancelled() and opening.exception() is None:
        background("log-async-close", partial(_undone, undo, opening.result())).start()


def _undone(undo: Callable[[_T], object], opened: _T) -> None:
    with suppress(ScribenginError):  # nobody is there to be told, and its lock goes with the session
        undo(opened)
