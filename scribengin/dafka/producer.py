"""A producer as programs use it: records in from any thread, and a future of when stores have them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import count
from typing import NamedTuple

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.text.counting import many, which
from scribengin.dafka.config import DafkaConfig
from scribengin.dafka.role import Role, new_address
from scribengin.dafka.state import DafkaPartition, ProducerState, Send
from scribengin.dafka.wire import (
    Fetch,
    FindTime,
    GetHeads,
    LiveRecord,
    Message,
    StoreAck,
    Subscription,
    record_prefix,
    topic_prefix,
)
from scribengin.errors import DafkaClosed, DafkaError, ProducerFull, RecordsUnacknowledged, StoresAhead

_ANSWERS_MAX = 2000
_Bytes = bytes | bytearray | memoryview


class _Waiting(NamedTuple):
    """Records that were published, up to `end`, and who waits until stores have them."""

    end: int
    first: int
    future: Future[range]


class DafkaProducer(Role):
    """Publishes to one topic, as one partition of it, from when it is made until `close`. Thread-safe.

    `resume` names a producer that was before, as which it goes on, and the sequence of the record to publish next. Who
    goes on so publishes the very records under each sequence that were published under it before. `published` says
    where those end, if that is known: a store that has more, has records of somebody else under those sequences.
    """

    def __init__(
        self,
        topic: str,
        config: DafkaConfig | None = None,
        *,
        resume: tuple[str, int] | None = None,
        published: int | None = None,
    ) -> None:
        config = config or DafkaConfig()
        own = new_address()
        address, first = (own, 0) if resume is None else resume
        self.partition = DafkaPartition(topic, address)
        said = config.producer
        self._said = said
        self._state = ProducerState(
            self.partition,
            acks_min=said.min_acks,
            records_max=said.high_watermark,
            head_interval_s=said.head_interval / 1000,
            first=first,
            resumed=resume is not None,
            published=published,
            batches=config.batches,
        )
        self._unsent: list[bytes] = []
        self._waiting: deque[_Waiting] = deque()
        self._prefix = record_prefix(LiveRecord, topic, self.partition.address, topic)
        prefixes = [topic_prefix(kind, self.partition.address, exact=False) for kind in (StoreAck, Fetch, FindTime)]
        prefixes.append(topic_prefix(GetHeads, topic))
        super().__init__("producer", own, config, prefixes, hears=True, by_peer=True)
        self.start()

    @property
    def next(self) -> int:
        """The sequence of the record to publish next."""
        with self.lock:
            return self._state.next

    @property
    def unacknowledged(self) -> int:
        """How many records stores have not acknowledged."""
        with self.lock:
            return self._state.next - self._state.acked

    @property
    def sends_batches(self) -> bool:
        """Whether records that wait go together in one frame: all who listen take that."""
        return self._state.sends_batches

    def publish(self, content: _Bytes) -> Future[range]:
        """Publish a record, as `publish_many`. It is sent at once; those that wait meanwhile go together."""
        return self.publish_many([content])

    def publish_many(self, contents: Sequence[_Bytes]) -> Future[range]:
        """Publish records. The future gives their sequences once `min_acks` stores have all of them; of none, at once.

        Waits while too many are unacknowledged, or raises ProducerFull at once if the configuration says so, and in
        any case for more than ever fit. Raises DafkaClosed, and StoresAhead, as the future does, and DafkaError for
        what is no bytes. Bytes that may change later are taken as they are now.
        """
        future: Future[range] = Future()
        future.set_running_or_notify_cancel()  # what is published cannot be taken back: nobody cancels it
        contents = self._frozen(contents)
        with self.lock:
            self.lock.wait_for(lambda: self._ended or not self._must_wait(len(contents)))
            self._check_going()
            if not contents:  # no acknowledgement ever comes of them
                future.set_result(range(self._state.next, self._state.next))
                return future
            first = self._state.publish(contents, SYSTEM_CLOCK.monotonic_s(), SYSTEM_CLOCK.now_ms())
            self._unsent += contents
            self._waiting.append(_Waiting(first + len(contents), first, future))
            self.wake()
        return future

    def wait_for_room(self, records: int, timeout_s: float | None = None) -> bool:
        """Whether so many records, at most `high_watermark`, may be published without waiting, after so long at most.
        Raises DafkaClosed, StoresAhead."""
        with self.lock:
            self.lock.wait_for(lambda: self._ended or records <= self._state.room, timeout_s)
            self._check_going()
            return records <= self._state.room

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until stores have all that was published. Raises RecordsUnacknowledged after `timeout_s`, and
        StoresAhead."""
        with self.lock:
            end = self._state.next
            done = self.lock.wait_for(lambda: self._state.acked >= end or self._ended, timeout_s)
            if self._state.acked < end:
                if done:
                    self._check_going()
                raise self._unacknowledged()

    def close(self, timeout_s: float | None = None) -> None:
        """Wait until stores have all that was published, unless `terminate_unacked` is set, and leave. Raises
        RecordsUnacknowledged when they have not after `timeout_s`, StoresAhead, and DafkaClosed: it has left then, too.
        Idempotent."""
        missing: RecordsUnacknowledged | None = None
        try:
            if not self._said.terminate_unacked and not self._ended:
                self.flush(timeout_s)
        except RecordsUnacknowledged as error:
            missing = error
        finally:
            super().close()
            for waiting in self._all_waiting():
                waiting.future.set_exception(missing or self._unacknowledged())
        if missing is not None:
            raise missing

    def on_wake(self) -> None:
        """Publish what was handed over since the last time: alone, or together with what waits with it."""
        with self.lock:
            contents, self._unsent = self._unsent, []
            first = self._state.next - len(contents)
        if self._state.sends_batches:
            self.send(map(Send, self._state.live(first, contents)))
        else:
            self.publish_records(self._prefix, count(first), contents)
        with self.lock:
            answers = self._state.answers(_ANSWERS_MAX)
            if answers:
                self.wake()
        self.send(answers)

    def on_messages(self, messages: list[Message], peer: str, now_s: float) -> None:
        """Acknowledgements and questions."""
        self._settle(lambda: [send for message in messages for send in self._state.message(message, peer)])

    def on_subscription(self, heard: Subscription) -> None:
        """Who listens says in which form records may go, and whose acknowledgements count."""
        self._settle(lambda: self._state.subscription(heard))

    def on_peer_gone(self, peer: str) -> None:
        """What it has acknowledged does not count any more."""
        with self.lock:
            self._state.store_gone(peer)

    def on_tick(self, now_s: float) -> None:
        """Say how far it has published."""
        with self.lock:
            heads = self._state.tick(now_s)
        self.send(heads)

    def on_failure(self) -> None:
        """Who waits for stores waits in vain."""
        for waiting in self._all_waiting():
            error = DafkaClosed(f"the producer {self.address} has ended: {self.failure}")
            error.__cause__ = self.failure
            waiting.future.set_exception(error)

    def _settle(self, step: Callable[[], list[Send]]) -> None:
        """Something has come by which stores may have more."""
        with self.lock:
            before = self._state.acked
            sent = step()
            done: list[_Waiting] = []
            while self._waiting and self._waiting[0].end <= self._state.acked:
                done.append(self._waiting.popleft())
            refused: list[_Waiting] = []
            if self._state.ahead is not None:
                refused = self._all_waiting()
            if self._state.acked > before or self._state.ahead is not None:
                self.lock.notify_all()
            self.wake()
        for waiting in done:
            waiting.future.set_result(range(waiting.first, waiting.end))
        for waiting in refused:
            waiting.future.set_exception(self._stores_ahead())
        self.send(sent)

    def _all_waiting(self) -> list[_Waiting]:
        """All who wait. Of several that end them, one gets each: a future is told once."""
        with self.lock:
            waited = [*self._waiting]
            self._waiting.clear()
        return waited

    def _frozen(self, contents: Sequence[_Bytes]) -> list[bytes]:
        """The records as they are now. What is none would end the thread that sends, and all that others published."""
        records = list(contents)
        if {*map(type, records)} <= {bytes}:
            return records  # type: ignore[return-value]  # as was just seen
        for content in records:
            if not isinstance(content, _Bytes):
                raise DafkaError(
                    f"a record of '{self.partition.subject}' is bytes, and not {type(content).__name__}: "
                    f"{content!r:.100}; encode it"
                )
        return [*map(bytes, records)]

    @property
    def _ended(self) -> bool:
        """Whether it takes no more, and nothing more is acknowledged."""
        return self._closing or self.failure is not None or self._state.ahead is not None

    def _check_going(self) -> None:
        self.check_open()
        if self._state.ahead is not None:
            raise self._stores_ahead()

    def _stores_ahead(self) -> StoresAhead:
        subject, address = self.partition
        return StoresAhead(
            f"a store has records of topic '{subject}', producer {address}, up to {(self._state.ahead or 0) - 1}: "
            "more than were ever published"
        )

    def _must_wait(self, records: int) -> bool:
        if records > self._said.high_watermark:
            raise ProducerFull(
                f"{many(records, 'record')} at once are more than the high watermark, {self._said.high_watermark}"
            )
        return self._said.when_full == "wait" and records > self._state.room

    def _unacknowledged(self) -> RecordsUnacknowledged:
        missing, wanted = self._state.next - self._state.acked, self._said.min_acks
        stores = which(wanted, "a store", f"{wanted} stores")
        return RecordsUnacknowledged(
            f"{many(missing, 'record')} of '{self.partition.subject}' {which(missing, 'is', 'are')} not acknowledged "
            f"by {stores}: start a store, or set producer.terminate_unacked"
        )
