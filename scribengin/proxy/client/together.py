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

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.errors import MessageInvalid, ProxyUnreachable, ScribenginError
from scribengin.proxy.wire.bundles import OF_ALL, SEND_ALONE, WRITES, encode_bundle
from scribengin.proxy.wire.requests import WRITE

_CALLS_MAX = 2
"""So many bundles are under way: one is written while the next is on its way."""
_BUNDLE_BYTES_MAX = 8 * 1024 * 1024
_HURRY_S = 3.0
"""Who has less time than that sends its own request alone. A call ends with the patience of who sends it, and a proxy
may take two seconds for a bundle: the others would be cut short, and not know what became of their records."""

_Answers = Callable[[str, bytes, float], Iterator[pa.Buffer]]
"""Makes a call of that kind with that body, within so many seconds. Its answers, as they come."""


class _Call:
    """A request that waits. Its thread is woken when it is answered, or when it is its turn to send."""

    __slots__ = ("answer", "body", "error", "sends", "until_s", "woken")

    def __init__(self, body: bytes, until_s: float) -> None:
        self.body = body
        self.until_s = until_s
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

    def __init__(self, answers: _Answers, clock: Clock = SYSTEM_CLOCK) -> None:
        self._answers = answers
        self._clock = clock
        self._lock = threading.Lock()
        self._queue: deque[_Call] = deque()
        self._under_way = 0

    def call(self, body: bytes, timeout_s: float) -> list[pa.Buffer]:
        """The messages of the answer to a request. Raises what the call raises, and ProxyUnreachable when there was no
        answer in that time, which begins now: it is for its turn, the bundle, and a call by itself, all together."""
        mine = _Call(body, self._clock.monotonic_s() + timeout_s)
        with self._lock:
            mine.sends = self._under_way < _CALLS_MAX
            if mine.sends:
                self._under_way += 1
            else:
                self._queue.append(mine)
        if not mine.sends and not mine.woken.wait(timeout_s):
            self._give_up_turn(mine, timeout_s)
        if mine.sends:
            self._send(mine)
        if mine.error is not None:
            raise mine.error
        if mine.answer is not None and bytes(mine.answer.slice(0, 1)) == SEND_ALONE:
            return list(self._answers(WRITE, body, self._left_s(mine)))
        return [mine.answer]

    def _send(self, mine: _Call) -> None:
        """Send it with all that waits, and have the next of the queue send what came meanwhile."""
        calls = [mine]
        error: ScribenginError = ProxyUnreachable("the call was ended before it was answered")
        try:
            left_s = self._left_s(mine)
            calls = [mine] if left_s < _HURRY_S else self._with_waiting(mine)
            self._send_all(calls, left_s)
        except ScribenginError as why:
            error = why
        finally:
            for call in calls:
                if call.answer is None:
                    call.told(None, error)
            self._next_sends()

    def _left_s(self, mine: _Call) -> float:
        """So long it may take still. Raises ProxyUnreachable if that is nothing: to Flight it would be no limit."""
        left_s = mine.until_s - self._clock.monotonic_s()
        if left_s <= 0:
            raise ProxyUnreachable("the proxy has not answered in time", timed_out=True)
        return left_s

    def _give_up_turn(self, mine: _Call, timeout_s: float) -> None:
        """Raises ProxyUnreachable, unless it is just now its turn to send, or it was answered. Whoever sends it in a
        bundle may have longer than it has."""
        with self._lock:
            waits = mine in self._queue
            if waits:
                self._queue.remove(mine)
            elif mine.sends or mine.woken.is_set():
                return
        what = "the requests before this one" if waits else "this request"
        raise ProxyUnreachable(f"the proxy has not answered {what} for {timeout_s:g} s", timed_out=True)

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
