"""Several logs as one stream whose records have no order: each batch goes where there is room.

**When a log's writer fails.** It was fenced, or its disk refused. What was handed to it and not acknowledged may or may
not be in that log, and to write it elsewhere could make it two records: so those futures fail, and the caller decides.
A record that the writer refused to take certainly was not written: it goes to the next log, and the caller notices
nothing. The failed log is left out, and opened again `retry_s` later; one that is sealed or deleted stays out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar

import pyarrow as pa

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.closing import ClosedOrAborted
from scribengin.errors import (
    ConfigInvalid,
    EndOfStream,
    LogClosed,
    LogNotFound,
    LogWriteFailed,
    OverCapacity,
    ScribenginError,
)
from scribengin.log import DlsnRange, LogNamespace, LogWriter
from scribengin.log.clients.partitioners import check_logs
from scribengin.log.clients.stream import LogPosition, LogStream, Outstanding, for_each, open_streams

_T = TypeVar("_T")
_NEVER = float("inf")
_POLICIES = ("least_pending", "round_robin")
_RECORD_OVERHEAD_BYTES = 64


@dataclass(frozen=True, slots=True)
class MultiLogRange:
    """Where the records of a batch stand among several logs."""

    log: str
    dlsns: DlsnRange


class _WriteLane:
    """A log, and how much of it is under way. Guarded by the writer's lock."""

    def __init__(self, stream: LogStream) -> None:
        self.stream = stream
        self.pending_bytes = 0
        self.retry_at_s: float | None = None
        """When its failed writer is to be replaced; None while the writer is good."""
        self.why = ""


class BalancedWriter(ClosedOrAborted):
    """Writes several logs as their only writer. Thread-safe. DistributedLog's multi-stream writer.

    `policy`: `least_pending` takes the log with the fewest bytes under way, `round_robin` the next one.
    """

    def __init__(
        self,
        namespace: LogNamespace,
        logs: Sequence[str],
        *,
        policy: Literal["least_pending", "round_robin"] = "least_pending",
        timeout_s: float = 10.0,
        retry_s: float = 5.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Become the writer of all `logs`, waiting for each lock up to `timeout_s`. Raises ConfigInvalid, and as
        `LogNamespace.open_writer`; then it is the writer of none."""
        if policy not in _POLICIES:
            raise ConfigInvalid(f"there is no policy {policy!r}: choose one of {', '.join(_POLICIES)}")
        streams = open_streams(namespace, check_logs(logs), timeout_s=timeout_s)
        self._lanes = [_WriteLane(stream) for stream in streams]
        self._by_bytes = policy == "least_pending"
        self._retry_s = retry_s
        self._clock = clock
        self._lock = threading.Lock()
        self._turn = 0
        self._closed = False
        self._outstanding = Outstanding()

    def write(self, payload: bytes, *, key: bytes | None = None, channel: str | None = None) -> Future[LogPosition]:
        """Append one record to one of the logs. Raises RecordTooLarge and LogError as `LogWriter.write`, LogClosed, and
        LogWriteFailed when no log can be written; the future raises what ended the writer."""
        size = len(payload) + len(key or b"") + _RECORD_OVERHEAD_BYTES
        lane, answer = self._submit(size, lambda writer: writer.write(payload, key=key, channel=channel))
        log = lane.stream.log
        return self._outstanding.follow(answer, lambda dlsn: LogPosition(log, dlsn))

    def write_bulk(self, batch: pa.RecordBatch) -> Future[MultiLogRange]:
        """Append the rows of `batch` to one of the logs. Raises as `write`, before anything of it is written."""
        lane, answer = self._submit(batch.nbytes, lambda writer: writer.write_bulk(batch))
        log = lane.stream.log
        return self._outstanding.follow(answer, lambda dlsns: MultiLogRange(log, dlsns))

    def failed_logs(self) -> dict[str, str]:
        """The logs that are left out just now, and why."""
        with self._lock:
            return {lane.stream.log: lane.why for lane in self._lanes if lane.retry_at_s is not None}

    def flush(self) -> None:
        """Wait until all that was written before is acknowledged or has failed. Raises the first failure since the last
        call that raised one."""
        writers = [lane.stream.writer for lane in self._lanes]
        for_each([*(writer.flush for writer in writers if not writer.failed), self._outstanding.wait])

    def close(self) -> None:
        """Flush and close all writers. Idempotent. Raises as `flush`."""
        self._closed = True
        for_each(
            [
                self.flush,
                *(lane.stream.abort if lane.stream.writer.failed else lane.stream.close for lane in self._lanes),
            ]
        )

    def abort(self) -> None:
        """Give all locks back without flushing: what is pending fails with LogClosed. Idempotent."""
        self._closed = True
        for_each(lane.stream.abort for lane in self._lanes)

    def _submit(self, size: int, submit: Callable[[LogWriter], Future[_T]]) -> tuple[_WriteLane, Future[_T]]:
        """Hand something to the best log that takes it."""
        full: dict[_WriteLane, OverCapacity] = {}
        for _attempt in range(2 * len(self._lanes)):  # at worst, each fails once and its new writer once more
            self._check_open()
            lane = self._take_lane(size, full)
            if lane is None:
                break
            writer = lane.stream.writer
            try:
                answer = submit(writer)
            except ScribenginError as error:
                self._put_back(lane, size)
                self._check_open()
                if writer.failed:
                    self._leave_out(lane, error)
                elif isinstance(error, OverCapacity):
                    full[lane] = error
                else:
                    raise  # it is the record that is wrong
            except BaseException:
                self._put_back(lane, size)
                raise
            else:
                answer.add_done_callback(partial(self._answered, lane, size))
                return lane, answer
        if full:
            raise next(iter(full.values()))
        raise LogWriteFailed(
            f"none of the logs can be written, so nothing was ({self.failed_logs()}); "
            f"those that still exist are tried again every {self._retry_s:g} s"
        )

    def _take_lane(self, size: int, full: Container[_WriteLane]) -> _WriteLane | None:
        """The best log that can be written and is not `full`, with `size` bytes more under way. Opens those again whose
        time has come."""
        self._reopen_due()
        with self._lock:
            count = len(self._lanes)
            in_turn = [self._lanes[(self._turn + step) % count] for step in range(count)]
            good = [lane for lane in in_turn if lane.retry_at_s is None and lane not in full]
            if not good:
                return None
            best = min(good, key=lambda lane: lane.pending_bytes) if self._by_bytes else good[0]
            self._turn = (self._lanes.index(best) + 1) % count
            best.pending_bytes += size
            return best

    def _put_back(self, lane: _WriteLane, size: int) -> None:
        with self._lock:
            lane.pending_bytes -= size

    def _answered(self, lane: _WriteLane, size: int, _answer: Future[_T]) -> None:
        self._put_back(lane, size)

    def _leave_out(self, lane: _WriteLane, error: ScribenginError) -> None:
        with self._lock:
            if lane.retry_at_s is None:
                lane.retry_at_s = self._clock.monotonic_s() + self._retry_s
                lane.why = str(error)

    def _reopen_due(self) -> None:
        """Replace writers whose time has come, in the caller's thread; meanwhile other threads use the other logs."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            due = [lane for lane in self._lanes if lane.retry_at_s is not None and lane.retry_at_s <= now_s]
            for lane in due:
                lane.retry_at_s = now_s + self._retry_s  # so that only this thread tries
        for lane in due:
            try:
                lane.stream.reopen(timeout_s=0)
            except LogClosed:
                raise
            except ScribenginError as error:  # it is sealed or gone; or owned by somebody, or not to be had just now
                gone = isinstance(error, EndOfStream | LogNotFound)
                with self._lock:
                    lane.why = str(error)
                    lane.retry_at_s = _NEVER if gone else lane.retry_at_s
            else:
                with self._lock:
                    lane.retry_at_s = None

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosed("the balanced writer is closed; make a new one")
