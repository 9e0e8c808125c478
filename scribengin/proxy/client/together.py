"""Calls of one proxy that are made at the same time, as one call.

Threads that have something to send wait in a queue while a few calls are under way. The first of the queue then sends
all of it as one bundle, and hands the answers to the others. So no thread is needed beside theirs, and the more there
is to send, the more goes together.

A proxy answers a bundle soon. A request that has to wait longer is sent by itself, beside the bundles: so a log that
has stalled does not stall the others.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator

import pyarrow as pa

from scribengin.errors import MessageInvalid, ProxyUnreachable, ScribenginError
from scribengin.proxy.wire.bundles import OF_ALL, SEND_ALONE, WRITES, encode_bundle
from scribengin.proxy.wire.requests import WRITE

_CALLS_MAX = 2
"""So many bundles are under way: one is written while the next is on its way."""
_BUNDLE_BYTES_MAX = 8 * 1024 * 1024

_Answers = Callable[[str, bytes, float], Iterator[pa.Buffer]]
"""Makes a call of that kind with that body, within so many seconds. Its answers, as they come."""


class _Call:
    """A request that waits. Its thread is woken when it is answered, or when it is its turn to send."""

    __slots__ = ("answer", "body", "error", "sends", "woken")

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.answer: pa.Buffer | None = None
        self.error: BaseException | None = None
        self.sends = False
        self.woken = threading.Event()

    def told(self, answer: pa.Buffer | None, error: BaseException | None) -> None:
        """This became of it."""
        self.answer = answer
        self.error = error
        self.woken.set()


class SharedCalls:
    """Requests to write, of any number of threads, to one proxy. Thread-safe."""

    def __init__(self, answers: _Answers) -> None:
        self._answers = answers
        self._lock = threading.Lock()
        self._queue: deque[_Call] = deque()
        self._under_way = 0

    def call(self, body: bytes, timeout_s: float) -> list[pa.Buffer]:
        """The messages of the answer to a request. Raises what the call raises, and ProxyUnreachable when it was not
        its turn in that time."""
        mine = _Call(body)
        with self._lock:
            mine.sends = self._under_way < _CALLS_MAX
            if mine.sends:
                self._under_way += 1
            else:
                self._queue.append(mine)
        if not mine.sends and not mine.woken.wait(timeout_s):
            self._give_up_turn(mine, timeout_s)
            mine.woken.wait()  # it is under way: whoever sends it has a limit of time, and tells all
        if mine.sends:
            self._send(mine, timeout_s)
        if mine.error is not None:
            raise mine.error
        if mine.answer is not None and bytes(mine.answer.slice(0, 1)) == SEND_ALONE:
            return list(self._answers(WRITE, body, timeout_s))
        return [mine.answer]

    def _send(self, mine: _Call, timeout_s: float) -> None:
        """Send it with all that waits, and have the next of the queue send what came meanwhile."""
        calls = self._with_waiting(mine)
        error: ScribenginError = ProxyUnreachable("the call was ended before it was answered")
        try:
            self._send_all(calls, timeout_s)
        except ScribenginError as why:
            error = why
        finally:
            for call in calls:
                if call.answer is None:
                    call.told(None, error)
            self._next_sends()

    def _give_up_turn(self, mine: _Call, timeout_s: float) -> None:
        """Raises ProxyUnreachable if it waits in the queue still."""
        with self._lock:
            if mine not in self._queue:
                return
            self._queue.remove(mine)
        raise ProxyUnreachable(f"the proxy has not answered the requests before this one for {timeout_s:g} s")

    def _next_sends(self) -> None:
        with self._lock:
            following = self._queue.popleft() if self._queue else None
            if following is None:
                self._under_way -= 1
            else:
                following.sends = True
        if following is not None:
            following.woken.set()

    def _with_waiting(self, first: _Call) -> list[_Call]:
        with self._lock:
            calls = [first]
            size = len(first.body)
            while self._queue and size + len(self._queue[0].body) <= _BUNDLE_BYTES_MAX:
                calls.append(self._queue.popleft())
                size += len(calls[-1].body)
            return calls

    def _send_all(self, calls: list[_Call], timeout_s: float) -> None:
        # One request is a bundle, too: by itself it might wait for its log, and hold up what comes behind it.
        answers = self._answers(WRITES, encode_bundle([call.body for call in calls]), timeout_s)
        waiting = deque(calls)
        for answer in answers:
            if bytes(answer.slice(0, 1)) == OF_ALL:
                answer = answer.slice(1)
                while len(waiting) > 1:
                    waiting.popleft().told(answer, None)
            if not waiting:
                break
            waiting.popleft().told(answer, None)
        if waiting:
            raise MessageInvalid(f"a proxy has left {len(waiting)} of {len(calls)} requests without an answer")
