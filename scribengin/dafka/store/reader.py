"""The role of a store that answers who asks for records and heads."""

from __future__ import annotations

import pyarrow as pa

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.dafka.config import DafkaConfig
from scribengin.dafka.role import Role
from scribengin.dafka.state import DafkaPartition, FindStored, ReadStored, Send
from scribengin.dafka.store.answers import AnswerFailed, FoundStored, StoredAnswers
from scribengin.dafka.store.failures import PASSING, LogFailures
from scribengin.dafka.store.logs import StoredPartitions
from scribengin.dafka.store.times import StoredTime, find_time
from scribengin.dafka.wire import (
    ConsumerHello,
    DirectBatch,
    DirectRecord,
    Fetch,
    FindTime,
    GetHeads,
    KnownOfTime,
    Message,
    Subscription,
    pack_place,
    packed_groups,
    record_prefix,
)
from scribengin.errors import ColdSegmentMissing, LogNotFound
from scribengin.log import PAYLOAD

_SEARCHES_MAX = 10_000
"""So many questions for times wait, and who asks beyond that asks again."""


class StoreReader(Role):
    """Answers who asks for records and heads."""

    def __init__(self, logs: StoredPartitions, config: DafkaConfig) -> None:
        self.failures = LogFailures()
        self._logs = logs
        self._answers = StoredAnswers(logs)
        self._searches: dict[FindStored, None] = {}
        """Questions for times that wait for their turn: each takes a few looks into a log."""
        state = logs.state
        super().__init__("store", state.reader, config, state.reader_prefixes(), hears=True, by_peer=False)
        self.start()

    def close(self) -> None:
        """Idempotent."""
        super().close()
        self._answers.close()

    def on_messages(self, messages: list[Message], peer: str, now_s: float) -> None:
        """Questions. Each is answered by itself: one may have as many answers as there are partitions. Who asks the
        same several times at once is answered once."""
        questions = [one for one in messages if isinstance(one, Fetch | GetHeads | ConsumerHello | FindTime)]
        for _, message in dict.fromkeys((type(one), one) for one in questions):
            with self._logs.lock:
                done = self._logs.state.asked(message)
            self.send(done)
            for one in done:
                if isinstance(one, ReadStored) and (failed := self._answers.begin(one)) is not None:
                    self.failures.failed(failed.partition, failed.error)
                elif isinstance(one, FindStored) and len(self._searches) < _SEARCHES_MAX:
                    self._searches[one] = None
        self._wake_if_asked()

    def on_subscription(self, heard: Subscription) -> None:
        """A consumer that is connected now."""
        with self._logs.lock:
            done = self._logs.state.subscription(heard)
        self.send(done)

    def on_wake(self) -> None:
        """A few records for each that waits for some, and an answer for one who asks for a time."""
        if self._searches:
            self._find_time(next(iter(self._searches)))
        for one in self._answers.read(SYSTEM_CLOCK.monotonic_s()):
            if isinstance(one, FoundStored):
                self.failures.worked(one.partition)
                self._publish(*one)
            elif isinstance(one, AnswerFailed):
                self.failures.failed(one.partition, one.error)
            else:
                with self._logs.lock:
                    self._logs.state.truncated(DafkaPartition(one.subject, one.address), one.sequence)
                self.send([Send(one)])
        self._wake_if_asked()

    def _find_time(self, asked: FindStored) -> None:
        del self._searches[asked]
        partition = asked.partition
        with self._logs.lock:
            stored = self._logs.state.stored[partition]
        try:
            found = find_time(self._logs, self._logs.name(partition), stored.next, asked.at_ms)
            self.failures.worked(partition)
        except PASSING as error:
            if isinstance(error, LogNotFound) and not isinstance(error, ColdSegmentMissing):
                self.failures.worked(partition)
                found = StoredTime(KnownOfTime.BEGINS, stored.next)  # deleted: of what was before, nothing is kept
            else:  # who asks, asks again; others may know
                self.failures.failed(partition, error)
                found = StoredTime(KnownOfTime.NOTHING, 0)
        self.send([self._logs.state.time_found(asked, *found)])

    def on_tick(self, now_s: float) -> None:
        """Let go of readers that nobody asks on."""
        self._answers.tick(now_s)

    def _wake_if_asked(self) -> None:
        if self._answers.has_due or self._searches:
            with self.lock:
                self.wake()

    def _publish(self, to: str, partition: DafkaPartition, first: int, batch: pa.RecordBatch) -> None:
        subject, address = partition
        txids = batch.column("txid")
        if self._logs.state.answers_in_batches(to) and txids[-1].as_py() - first + 1 == batch.num_rows:
            self._publish_batches(to, partition, first, batch.column(PAYLOAD))
        else:
            prefix = record_prefix(DirectRecord, to, address, subject)
            self.publish_records(prefix, txids.to_pylist(), batch.column(PAYLOAD).to_pylist())

    def _publish_batches(self, to: str, partition: DafkaPartition, first: int, contents: pa.Array) -> None:
        """Out of what was read, without an object for each record. One that fills a frame goes as to everybody."""
        subject, address = partition
        one, many = (record_prefix(kind, to, address, subject) for kind in (DirectRecord, DirectBatch))
        sequence = first
        for records, packed in packed_groups(contents):
            if records == 1:
                self.publish_records(one, [sequence], [contents[sequence - first].as_py()])
            else:
                self.publish_frames([many + pack_place(sequence, records), packed])
            sequence += records
