"""One sender for all writers that a client has of a log: what they write meanwhile goes together.

Records gather while a request is under way, whichever writer they are of, and go with the next one. The sender's
thread sends a request again, under the same numbers, until a proxy has answered for good: a proxy's death, or a log
that goes from one to another, is not seen here. What is refused is refused to the writer whose record it is. What
nobody knows the fate of ends the writers of that request, and no others: those go on as a new sender.
"""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Sequence

from scribengin.base.threads import background
from scribengin.errors import (
    AccessDenied,
    CallerUnknown,
    EndOfStream,
    LogClosed,
    LogError,
    LogNotFound,
    OverCapacity,
    ScribenginError,
    WrittenTooFast,
)
from scribengin.log import LogDescriptor
from scribengin.log.write.results import SlotRange
from scribengin.proxy.client.delivery import ProxyDelivery
from scribengin.proxy.client.pending import Unit, WriterShare, body_of, places_of, rest_of
from scribengin.proxy.state.resend import Lost, NotSent, SenderState, Sent

_OF_ALL = (AccessDenied, CallerUnknown, EndOfStream, LogNotFound, WrittenTooFast)
"""What a request is refused with whatever its records are: none of them would fare better by itself. OverCapacity is
none of these: a limit of unacknowledged records may have room for half of them."""


def new_sender() -> bytes:
    """16 bytes that no other sender has."""
    return uuid.uuid4().bytes


class LogSender:
    """Sends the records of a log for any number of writers. Thread-safe."""

    def __init__(self, delivery: ProxyDelivery, log: str, directory: str, segment: int = 1) -> None:
        """`segment` is one that the log has: nothing of this sender is in an earlier one."""
        self._delivery = delivery
        self._log = log
        self.directory = directory
        self._state = SenderState(new_sender, delivery.config.patience_s, segment=segment)
        self.lock = threading.Lock()
        """Guards all below, and the shares of the writers."""
        self._work = threading.Condition(self.lock)
        """Its thread waits for that."""
        self._changed = threading.Condition(self.lock)
        """Writers wait for that."""
        self._writers = 0
        self._queue: deque[Unit] = deque()
        self._sending: list[Unit] = []
        self._sizes: deque[int] = deque()
        """So many units go with each of the next requests: what was refused together is cut in two."""
        self._idle = False
        self._waiting = 0
        """Writers that wait for a change."""
        self._thread: threading.Thread | None = None

    def join(self) -> None:
        """A writer more."""
        with self.lock:
            self._writers += 1

    def leave(self) -> bool:
        """A writer less. True: it was the last one."""
        with self.lock:
            self._writers -= 1
            self._work.notify_all()
            return not self._writers

    def submit(self, unit: Unit) -> None:
        """Queue it. The caller holds the lock, and has found room. Raises what the system does that has no thread."""
        if self._thread is None:
            thread = background(f"proxied-sender {self._log}", self._run)
            thread.start()
            self._thread = thread
        unit.since_s = self._delivery.clock.monotonic_s()
        self._queue.append(unit)
        unit.owner.pending_units += 1
        unit.owner.pending_bytes += unit.held_bytes
        if self._idle:
            self._idle = False
            self._work.notify_all()

    def wait_for_room(self, share: WriterShare, bytes_max: int) -> None:
        """Wait until the writer has less under way, or has ended. The caller holds the lock. Raises LogError in a
        callback, which must not wait."""
        while share.pending_bytes >= bytes_max and share.failure is None and not share.closed:
            self._wait()

    def wait_until_done(self, share: WriterShare) -> None:
        """Wait until nothing of the writer is under way, or it has failed. The caller holds the lock. Raises LogError
        in a callback, which must not wait."""
        while share.pending_units and share.failure is None:
            self._wait()

    def check_may_wait(self) -> None:
        """Raises LogError in a callback: what it would wait for its own thread does."""
        if threading.current_thread() is self._thread:
            raise LogError(
                f"log '{self._log}': a future's callback would wait for the thread that it runs on; hand the work to "
                "another thread, as through a queue"
            )

    def drop(self, share: WriterShare) -> None:
        """Close the writer. What it has under way fails, though some of it may be written."""
        with self.lock:
            share.closed = True
            dropped = self._forget(share)
            self._work.notify_all()
            self._changed.notify_all()
        for unit in dropped:
            unit.fail(LogClosed(f"log '{self._log}': the writer was closed before this was written; open a new one"))

    def _wait(self) -> None:
        self.check_may_wait()
        self._waiting += 1
        try:
            self._changed.wait()
        finally:
            self._waiting -= 1

    def _forget(self, share: WriterShare) -> list[Unit]:
        """What the writer has under way. Nothing of it that was not sent is sent. The caller holds the lock."""
        queued = [unit for unit in self._queue if unit.owner is share]
        if queued:
            self._queue = deque(unit for unit in self._queue if unit.owner is not share)
            share.pending_units -= len(queued)
            share.pending_bytes -= sum(unit.held_bytes for unit in queued)
        return [*(unit for unit in self._sending if unit.owner is share), *queued]

    def _run(self) -> None:
        try:
            while units := self._take():
                self._send(units)
        except BaseException as error:  # noqa: BLE001  a thread's outermost loop: whoever waits for it hears of it
            self._broken(error)

    def _send(self, units: list[Unit]) -> None:
        first, last = units[0], units[-1]
        found = self._delivery.send(
            self._state,
            self._log,
            self.directory,
            body_of(units),
            txids=first.txids,
            atomic=first.atomic,
            since_s=last.since_s,
            pause=self._pause,
        )
        match found:
            case Sent(runs):
                self._written(units, runs)
            case NotSent(error) if len(units) > 1 and not isinstance(error, _OF_ALL):
                self._split(units)
            case NotSent(error):
                self._refused([*units, *self._no_better(error)], error)
            case Lost(error, silence):
                self._lost(units, error, silence)

    def _broken(self, error: BaseException) -> None:
        """The thread ends. Whether what it was sending is in the log nobody knows: the writers of that, and of what
        waits, end. What others write later has another thread, and another sender."""
        with self.lock:
            units = [*self._sending, *self._queue]
            self._sending = []
            self._queue.clear()
            self._sizes.clear()
            self._state = self._fresh_state()
            self._idle = False
            self._thread = None
            for unit in units:
                unit.owner.failure = unit.owner.failure or error
                unit.owner.pending_units -= 1
                unit.owner.pending_bytes -= unit.held_bytes
            self._changed.notify_all()
        for unit in units:
            unit.fail(error)

    def _pause(self, seconds: float) -> bool:
        """Wait before the request is sent again. True: nobody waits for it any more."""
        with self.lock:
            return self._work.wait_for(lambda: all(unit.owner.closed for unit in self._sending), seconds)

    def _take(self) -> list[Unit]:
        """What goes together with the next request; nothing when the thread is to end."""
        with self.lock:
            while not self._queue and self._writers:
                self._idle = True
                self._work.wait()
            self._idle = False
            count = self._sizes.popleft() if self._sizes else len(self._queue)
            size = 0
            while self._queue and len(self._sending) < count:
                unit = self._queue[0]
                size += unit.size_bytes
                if self._sending and not self._goes_with(self._sending[0], unit, size):
                    break
                self._sending.append(self._queue.popleft())
            if not self._sending:
                self._thread = None
            return list(self._sending)

    def _goes_with(self, first: Unit, unit: Unit, size: int) -> bool:
        if first.atomic or unit.atomic or first.txids != unit.txids:
            return False
        return size <= self._delivery.config.request_bytes_max

    def _written(self, units: list[Unit], runs: Sequence[SlotRange]) -> None:
        for unit, places in places_of(units, runs):
            unit.written(places)
            unit.owner.last_dlsn = places[-1].last
        self._done(units)

    def _split(self, units: list[Unit]) -> None:
        """They were refused together: one of them may be what was refused."""
        with self.lock:
            self._sending = []
            self._queue.extendleft(reversed(units))
            half = len(units) // 2
            self._sizes.extendleft((len(units) - half, half))

    def _no_better(self, error: BaseException) -> list[Unit]:
        """What was refused together with a record for which a log has no room, when that was sent by itself: others
        use the room up, so the rest would come back one by one. What goes with it is under way with it."""
        if not isinstance(error, OverCapacity) or isinstance(error, _OF_ALL):
            return []
        with self.lock:
            rest = [self._queue.popleft() for _ in range(min(sum(self._sizes), len(self._queue)))]
            self._sizes.clear()
            self._sending.extend(rest)
        return rest

    def _refused(self, units: list[Unit], error: BaseException) -> None:
        """They are not in the log, and neither is what follows of their batches."""
        with self.lock:
            rest = rest_of(self._queue, units)
            if rest:
                self._queue = deque(unit for unit in self._queue if unit not in rest)
        for unit in units:
            unit.fail(error)
        self._done([*units, *rest])
        self._end([unit.owner for unit in units if not unit.owner.durable], error)

    def _lost(self, units: list[Unit], error: BaseException, silence: ScribenginError | None) -> None:
        """Whether they are in the log nobody knows: their writers end, and the others go on as a new sender."""
        self._state = self._fresh_state(silence)
        self._end([unit.owner for unit in units], error)
        self._done(units)

    def _fresh_state(self, silence: ScribenginError | None = None) -> SenderState:
        return SenderState(new_sender, self._delivery.config.patience_s, silence, self._state.segment)

    def _end(self, owners: Sequence[WriterShare], error: BaseException) -> None:
        """These writers have failed."""
        dropped: list[Unit] = []
        with self.lock:
            for owner in dict.fromkeys(owners):
                owner.failure = owner.failure or error
                dropped += self._forget(owner)
            self._changed.notify_all()
        for unit in dropped:
            unit.fail(error)

    def _done(self, units: Sequence[Unit]) -> None:
        with self.lock:
            self._sending = []
            for unit in units:
                owner = unit.owner
                owner.pending_units -= 1
                owner.pending_bytes -= unit.held_bytes
            if self._waiting:
                self._changed.notify_all()


class LogSenders:
    """The senders of a client, one for each log that it writes. One that was made anew is another one. Thread-safe."""

    def __init__(self, delivery: ProxyDelivery) -> None:
        self._delivery = delivery
        self._lock = threading.Lock()
        self._senders: dict[str, LogSender] = {}

    def join(self, log: LogDescriptor, segment: int = 1) -> LogSender:
        """The sender of the log, for a writer more. `segment` is one that the log has."""
        with self._lock:
            sender = self._senders.get(log.directory)
            if sender is None:
                sender = self._senders[log.directory] = LogSender(self._delivery, log.name, log.directory, segment)
            sender.join()
            return sender

    def leave(self, sender: LogSender) -> None:
        """A writer less."""
        with self._lock:
            if sender.leave() and self._senders.get(sender.directory) is sender:
                del self._senders[sender.directory]
