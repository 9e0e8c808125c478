"""Threads that others wait for, or nobody: calls with a limit of ours, and work in the background.

Clients of other people have no limit of their own, or do not keep it: `call_with_limit` gives them one.

`BackgroundWork` does for a log, beside its writer, what a completed segment asks for: purging, and compressed copies.
Its thread lives only while there is something to do, so many idle writers cost nothing, and appends never wait for it.
It needs no lock of the log's: every step is safe at any time, by anybody. What fails does not fail the writer; it is
kept where the operator sees it (`LogWriter.maintenance_failure` and a counter) and tried again after the next segment.

`LightFuture` is a future of which there may be very many: one for each record that waits for the disk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError, wait
from concurrent.futures._base import FINISHED, RUNNING
from contextlib import suppress
from typing import Any, TypeVar

from scribengin.errors import ScribenginError
from scribengin_registry.threads import background as background
from scribengin_registry.threads import delayed as delayed
from scribengin_registry.threads import pause as pause
from scribengin_registry.threads import started as started

_T = TypeVar("_T")
_TRY_AGAIN_S = 1.0


def call_with_limit(call: Callable[[], _T], limit_s: float) -> _T:
    """What a call returns or raises. Raises TimeoutError when it has done neither for `limit_s` seconds: its thread is
    left behind then, and with it whatever it uses, which nobody may use any more."""
    outcome: Future[_T] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:  # noqa: BLE001  a thread's outermost loop: whoever waits raises it
            outcome.set_exception(error)

    background("call", run).start()
    if not wait([outcome], limit_s).done:
        raise TimeoutError(f"no answer for {limit_s:g} s")
    return outcome.result()


def go_on_trying(name: str, attempt: Callable[[], bool]) -> None:
    """Try once more each second, in a thread of that name, until `attempt` says that it is done. What it raises of ours
    is tried again, too: nobody waits for it."""

    def run() -> None:
        done = False
        while not done:
            pause(_TRY_AGAIN_S)
            with suppress(ScribenginError):
                done = attempt()

    background(name, run).start()


FUTURE_BYTES = 512
"""What a record that was written by itself counts for in memory, beside its payload, while it waits. Its LightFuture
takes 112 bytes, and 1,464 more once somebody waits for it: few are waited for at a time."""
_MAKING = threading.Lock()
"""Held for as long as it takes to see whether somebody waits for a future."""
_NO_CALLBACKS: list[Callable[[Future[Any]], object]] = []
"""Of every future that has none. Nobody adds to it."""


class LightFuture(Future[_T]):
    """As Future, once it runs: it cannot be cancelled. What waiting takes (a condition, its lock, a queue) is made when
    somebody waits. So one that is only called back takes 112 bytes and not 1,600, and is one object for Python's
    collector. With 10,000 futures under way that collector took more time than all else that a client does.
    """

    def __init__(self) -> None:
        self._state = RUNNING
        self._result = None
        self._exception = None
        self._waited: threading.Condition | None = None
        self._done_callbacks: list[Callable[[Future[_T]], object]] = _NO_CALLBACKS

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]  # whoever asks for it waits
        with _MAKING:
            if self._waited is None:
                self._waiters = []
                self._done_callbacks = list(self._done_callbacks)
                self._waited = threading.Condition()
            return self._waited

    def done(self) -> bool:
        return self._state == FINISHED

    def result(self, timeout: float | None = None) -> _T:
        if self._state == FINISHED and self._exception is None:
            return self._result  # type: ignore[return-value]  # it has one
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        return self._exception if self._state == FINISHED else super().exception(timeout)

    def add_done_callback(self, fn: Callable[[Future[_T]], object]) -> None:
        with _MAKING:
            light = self._waited is None and self._state != FINISHED
            if light:
                self._done_callbacks = [*self._done_callbacks, fn]
        if not light:
            super().add_done_callback(fn)

    def set_result(self, result: _T) -> None:
        if not self._finish(result, None):
            super().set_result(result)

    def set_exception(self, exception: BaseException | None) -> None:
        if not self._finish(None, exception):
            super().set_exception(exception)

    def _finish(self, result: _T | None, exception: BaseException | None) -> bool:
        """False: somebody waits, and is to be told."""
        with _MAKING:
            if self._waited is not None:
                return False
            if self._state == FINISHED:
                raise InvalidStateError("it has finished before")
            self._result = result
            self._exception = exception
            self._state = FINISHED
        if self._done_callbacks:
            self._invoke_callbacks()  # type: ignore[attr-defined]  # of Future, which keeps it to itself
        return True


class BackgroundWork:
    """Runs `work` once for any number of `kick`s that came before it began. Thread-safe.

    `work` is given a function that says whether it should end early; `failed` is called when it raises.
    """

    def __init__(self, work: Callable[[Callable[[], bool]], object], failed: Callable[[], None]) -> None:
        self._work = work
        self._failed = failed
        self._lock = threading.Lock()
        self._due = self._closed = False
        self._thread: threading.Thread | None = None
        self.failure: Exception | None = None
        """Why the last run failed, if it did."""

    def kick(self) -> None:
        """Run soon. Returns at once."""
        with self._lock:
            if self._closed:
                return
            self._due = True
            if self._thread is None:
                thread = background("log-maintenance", self._run)
                thread.start()
                self._thread = thread

    def close(self) -> None:
        """Begin nothing more, and wait for what is being done. Idempotent."""
        with self._lock:
            self._closed = True
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while self._begin():
            try:
                self._work(lambda: self._closed)
                self.failure = None
            except Exception as error:  # noqa: BLE001  the thread's outermost loop: `failure` and a counter tell of it
                self.failure = error
                self._failed()

    def _begin(self) -> bool:
        with self._lock:
            if self._closed or not self._due:
                self._thread = None
                return False
            self._due = False
            return True
