"""Waiting for records: one consumer a process watches all partitions that somebody waits for, by long polls.

It is assigned where the waiting reader stands, and stays assigned as long as that one keeps up, so that a record wakes
its reader within a fetch's way. A reader with a backlog does not wait, and its partition is dropped from the watch, so
that nothing is fetched twice that is much.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from scribengin.base.threads import background, started
from scribengin.connectors.kafka.client.client import Partition, Troubles, engine_error, made
from scribengin.connectors.kafka.client.connection import KafkaConnectionConfig, settings
from scribengin.connectors.kafka.source.offsets import PartitionWatch
from scribengin.errors import ConfigInvalid, ScribenginError

BEHIND_MAX = 2000
"""A reader that is so many offsets behind what the watch has seen is not waiting for records."""
_POLL_S = 0.02
"""How late the thread may see that there is another partition to watch."""
_MESSAGES_MAX = 500


class Watch:
    """Thread-safe. Its thread and its consumer are made by the first `wait` that has to."""

    def __init__(self, config: KafkaConnectionConfig, isolation: str, looks: PartitionWatch) -> None:
        self._settings = settings(
            config,
            "scribengin-watch",
            group_id="scribengin-watch",  # the client wants one; it is never joined, and nothing is committed to it
            isolation_level=isolation,
            enable_auto_commit=False,
            enable_partition_eof=True,
            auto_offset_reset="error",
            queued_max_messages_kbytes=4096,
            fetch_message_max_bytes=262_144,
            fetch_wait_max_ms=100,
            fetch_error_backoff_ms=50,
        )
        self._bootstrap = config.bootstrap
        self._looks = looks
        self._changed = threading.Condition()
        self._waiting: dict[Partition, int] = {}
        """The partitions that are assigned, and how far their readers have got."""
        self._moved: set[Partition] = set()
        """Those whose readers must look for themselves: the watch cannot read them where they stand."""
        self._refused: dict[Partition, ConfigInvalid] = {}
        """Those that the brokers do not let it read. A reader would find nothing new there, and wait again at once."""
        self._to_assign: set[Partition] = set()
        self._to_unassign: set[Partition] = set()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._troubles = Troubles()

    def wait(self, partition: Partition, offset: int, timeout_s: float) -> bool:
        """Block until something can be read from `offset` on, or the timeout: whether there is (or seems to be).

        Raises ConfigInvalid.
        """
        with self._changed:
            self._refused.pop(partition, None)  # of long ago: it is assigned anew, and told again if it is still so
            if self._looks.known_end(partition) > offset:
                return True
            self._assign(partition, offset)
            beyond = self._changed.wait_for(lambda: self._stopping or self._is_beyond(partition, offset), timeout_s)
            self._moved.discard(partition)
            if (refusal := self._refused.pop(partition, None)) is not None:
                raise refusal
            return beyond and not self._stopping

    def drop(self, partition: Partition) -> None:
        """Nobody waits for it any more."""
        with self._changed:
            self._unassign([partition])

    def close(self) -> None:
        """End the thread and the consumer. Idempotent."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    # -- under the lock

    def _is_beyond(self, partition: Partition, offset: int) -> bool:
        return partition in self._moved or self._looks.known_end(partition) > offset

    def _assign(self, partition: Partition, offset: int) -> None:
        if self._thread is None and not self._stopping:
            self._thread = started(background("kafka-watch", self._run))
        assigned = partition in self._waiting
        self._waiting[partition] = offset
        if assigned or self._stopping:
            return
        self._to_unassign.discard(partition)
        self._to_assign.add(partition)

    def _unassign(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            if self._waiting.pop(partition, None) is not None:
                self._to_assign.discard(partition)
                self._to_unassign.add(partition)

    def _take(self, messages: list[Message]) -> None:
        unreadable: set[Partition] = set()
        ends: dict[Partition, int] = {}
        for message in messages:
            partition, error = (message.topic(), message.partition()), message.error()
            if error is None:
                ends[partition] = message.offset() + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                ends[partition] = message.offset()
            else:
                unreadable |= self._unreadable(partition, error)
        for partition, end in ends.items():
            if (offset := self._waiting.get(partition)) is None or end <= offset:
                continue
            self._looks.seen(partition, end)
            if self._looks.known_end(partition) < end:
                self._moved.add(partition)
        behind = {p for p, end in ends.items() if end - self._waiting.get(p, end) > BEHIND_MAX}
        self._moved |= unreadable
        self._unassign(unreadable | behind)
        self._changed.notify_all()

    def _unreadable(self, partition: Partition, error: KafkaError) -> set[Partition]:
        """Those that an error is about: out of range, or gone, which the reader's own look will say; or refused. What
        is said of a topic is of no partition, or of -1."""
        if isinstance(self._told(partition, error), ConfigInvalid):
            about = {p for p in self._waiting if p[0] == partition[0] and partition[1] in (p[1], -1, None)}
            told = {p: self._told(p, error) for p in about}
            self._refused |= {p: refusal for p, refusal in told.items() if isinstance(refusal, ConfigInvalid)}
            return about
        return {partition} & self._waiting.keys()

    def _told(self, partition: Partition, error: KafkaError) -> ScribenginError:
        return engine_error(error, self._bootstrap, f"waiting for records of {partition[0]}/{partition[1]}")

    # -- the thread

    def _run(self) -> None:
        consumer = made(Consumer, self._settings, self._troubles)
        assigned: set[Partition] = set()
        while not self._stopping:
            self._follow(consumer, assigned)
            first = consumer.poll(_POLL_S)
            if first is not None:
                messages = [first, *consumer.consume(_MESSAGES_MAX, 0)]
                with self._changed:
                    self._take(messages)
        consumer.close()

    def _follow(self, consumer: Consumer, assigned: set[Partition]) -> None:
        """Assign what is waited for now. A partition that goes and comes back is assigned at its new place."""
        with self._changed:
            gone, self._to_unassign = self._to_unassign & assigned, set()
            come, self._to_assign = self._to_assign, set()
            places = [TopicPartition(*partition, self._waiting[partition]) for partition in sorted(come)]
        gone |= come & assigned
        if gone:
            consumer.incremental_unassign([TopicPartition(*partition) for partition in sorted(gone)])
        if places:
            consumer.incremental_assign(places)
        assigned -= gone
        assigned |= come
