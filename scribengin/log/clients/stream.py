"""What clients that write several logs have in common: a log with a writer that can be replaced, and waiting for all
that is under way."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeVar

from scribengin.errors import LogClosed
from scribengin.log import DLSN, LogNamespace, LogWriter

_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class LogPosition:
    """Where a record stands among several logs."""

    log: str
    dlsn: DLSN


class LogStream:
    """One log and its writer. Thread-safe. A writer that has failed stays until `reopen`."""

    def __init__(self, namespace: LogNamespace, log: str, *, timeout_s: float) -> None:
        self.log = log
        self._namespace = namespace
        self._replacing = threading.Lock()
        self._closed = False
        self._writer = namespace.open_writer(log, timeout_s=timeout_s)

    @property
    def writer(self) -> LogWriter:
        """The writer just now; it may have failed."""
        return self._writer

    def reopen(self, *, timeout_s: float) -> bool:
        """Replace a writer that has failed, by one that has recovered the log. Whether there was one to replace.

        Raises as `LogNamespace.open_writer`, and LogClosed; the failed one stays then.
        """
        with self._replacing:
            if self._closed:
                raise LogClosed(f"log '{self.log}': its stream is closed; make a new client")
            if not self._writer.failed:
                return False
            self._writer.abort()
            self._writer = self._namespace.open_writer(self.log, timeout_s=timeout_s)
            return True

    def close(self) -> None:
        """As `LogWriter.close`."""
        with self._replacing:
            self._closed = True
            self._writer.close()

    def abort(self) -> None:
        """As `LogWriter.abort`."""
        with self._replacing:
            self._closed = True
            self._writer.abort()


def open_streams(namespace: LogNamespace, logs: Sequence[str], *, timeout_s: float) -> list[LogStream]:
    """Open a writer for each log, or for none of them. Raises as `LogNamespace.open_writer`."""
    with ExitStack() as opened:
        streams = []
        for log in logs:
            streams.append(LogStream(namespace, log, timeout_s=timeout_s))
            opened.callback(streams[-1].abort)
        opened.pop_all()
        return streams


def for_each(calls: Iterable[Callable[[], object]]) -> None:
    """Call all of them in order, also when some raise; then raise what the last of those did, the others as its
    context."""
    with ExitStack() as stack:
        for call in reversed(list(calls)):
            stack.callback(call)


class Outstanding:
    """What was handed over and has not been answered. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._numbers = itertools.count()
        self._open: dict[int, None] = {}
        self._failure: BaseException | None = None

    def follow(self, answer: Future[_T], convert: Callable[[_T], _R]) -> Future[_R]:
        """A future of what `convert` makes of the answer. It is counted until it has resolved."""
        return self.chain(answer, convert, self.promise())

    def promise(self) -> Future[_R]:
        """A future that is counted until it has resolved: `wait` waits for it."""
        promised: Future[_R] = Future()
        promised.set_running_or_notify_cancel()  # as a log's own futures: it cannot be called back
        with self._changed:
            number = next(self._numbers)
            self._open[number] = None
        promised.add_done_callback(lambda done: self._answered(number, done.exception()))
        return promised

    @staticmethod
    def chain(answer: Future[_T], convert: Callable[[_T], _R], promised: Future[_R]) -> Future[_R]:
        """Let `promised` resolve with `answer`."""

        def resolve(done: Future[_T]) -> None:
            error = done.exception()
            if error is None:
                promised.set_result(convert(done.result()))
            else:
                promised.set_exception(error)

        answer.add_done_callback(resolve)
        return promised

    def wait(self) -> None:
        """Return once all that was handed over before the call is answered. Raises the first failure among the answers
        since the last call that raised one."""
        with self._changed:
            last = next(self._numbers)
            self._changed.wait_for(lambda: not self._open or next(iter(self._open)) > last)
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _answered(self, number: int, error: BaseException | None) -> None:
        with self._changed:
            del self._open[number]
            self._failure = self._failure or error
            self._changed.notify_all()
