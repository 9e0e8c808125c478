"""What the brokers of a `MemoryKafka` hold: topics, partitions, transactions and the offsets of groups. Pure: no locks.

A transaction decides as a whole, and becomes visible place by place: each partition that it wrote to, and each group
whose offsets it moves, has a mark of its own (`Transaction.unmarked` are the places that have none yet).
"""

from __future__ import annotations

import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException

Place = tuple[str, int]
"""A topic's name and the number of one of its partitions; of a group, its name and GROUP."""
GROUP = -1
Header = tuple[str, bytes | None]
TOPIC_DEFAULTS = {
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(2**63 - 1),
    "message.timestamp.after.max.ms": "3600000",
}
BROKER_DEFAULTS = {"offsets.retention.minutes": "10080", "transactional.id.expiration.ms": "604800000"}


@dataclass(slots=True)
class Transaction:
    """One transaction: what it wrote to, and what became of it."""

    outcome: Literal["commit", "abort"] | None = None
    unmarked: dict[Place, float] = field(default_factory=dict)
    """Places that are part of it and have no mark yet, and when each gets it (once it is decided)."""
    offsets: dict[Place, dict[Place, tuple[int, str]]] = field(default_factory=dict)
    """Of each group: what it is to have committed."""


@dataclass(frozen=True, slots=True)
class ProducedRecord:
    """What a producer hands over."""

    key: bytes | None
    value: bytes | None
    headers: list[Header]
    time_ms: int
    """0: the broker's own time."""

    @property
    def size_bytes(self) -> int:
        """About what it takes in a batch."""
        headers = sum(len(key) + len(value or b"") for key, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers


@dataclass(frozen=True, slots=True)
class OffsetEntry:
    """One offset of a partition: a record, or (None) the mark of a transaction's end."""

    offset: int
    record: ProducedRecord | None
    transaction: Transaction | None
    time_type: int = TIMESTAMP_CREATE_TIME


@dataclass(slots=True)
class Partition:
    """A partition's log."""

    entries: list[OffsetEntry] = field(default_factory=list)
    begin: int = 0

    @property
    def end(self) -> int:
        """The high watermark."""
        return self.entries[-1].offset + 1 if self.entries else self.begin

    def stable_end(self, place: Place) -> int:
        """The last stable offset: before what open transactions have written, or such as have no mark here yet."""
        for entry in self.entries:
            if entry.transaction is not None and place in entry.transaction.unmarked:
                return entry.offset
        return self.end

    def limit(self, place: Place, *, committed: bool) -> int:
        """How far a reader may read."""
        return self.stable_end(place) if committed else self.end

    def records(self, place: Place, start: int, *, committed: bool, shown: int | None = None) -> Iterator[OffsetEntry]:
        """What a reader gets from `start` on, where the leader shows it up to `shown` (None: all that it may)."""
        limit = self.limit(place, committed=committed) if shown is None else shown
        for entry in self.entries:
            counts = not committed or entry.transaction is None or entry.transaction.outcome == "commit"
            if counts and start <= entry.offset < limit and entry.record is not None:
                yield entry

    def append(self, record: ProducedRecord | None, transaction: Transaction | None, time_type: int) -> None:
        """Write at the end."""
        self.entries.append(OffsetEntry(self.end, record, transaction, time_type))


@dataclass(slots=True)
class TopicLog:
    """A topic, its settings over TOPIC_DEFAULTS."""

    partitions: list[Partition]
    settings: dict[str, str]
    topic_id: str = field(default_factory=lambda: urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="))

    def append(self, number: int, record: ProducedRecord, transaction: Transaction | None, now_ms: int) -> None:
        """Write a record. Raises KafkaException for one that is too large."""
        if record.size_bytes > int(self.settings["max.message.bytes"]):
            raise failed(KafkaError.MSG_SIZE_TOO_LARGE, "Broker: Message size too large")
        by_broker = self.settings["message.timestamp.type"] == "LogAppendTime"
        stamped = now_ms if by_broker or not record.time_ms else record.time_ms
        record = ProducedRecord(record.key, record.value, record.headers, stamped)
        kind = TIMESTAMP_LOG_APPEND_TIME if by_broker else TIMESTAMP_CREATE_TIME
        self.partitions[number].append(record, transaction, kind)


@dataclass(slots=True)
class TransactionalId:
    """What the coordinator knows of a transactional id."""

    name: str
    epoch: int = 0
    timeout_s: float = 60.0
    open: Transaction | None = None
    """The one that is not decided, or whose marks are not all written."""
    since_s: float = 0.0
    last: tuple[int, Literal["commit", "abort"]] | None = None
    """Which of its producer's transactions that one ended last, and how."""

    @property
    def role(self) -> str:
        """What its coordinator leads."""
        return f"id/{self.name}"

    @property
    def is_undecided(self) -> bool:
        """Whether a transaction is open that nobody has ended."""
        return self.open is not None and self.open.outcome is None


class Concurrent(Exception):
    """What the broker answers while marks of the last transaction are missing, or there is no broker to answer: the
    client asks again."""


def role_of(place: Place) -> str:
    """What a partition, or a group, is called among what brokers lead."""
    return f"group/{place[0]}" if place[1] == GROUP else f"{place[0]}/{place[1]}"


def failed(code: int, text: str, *, fatal: bool = False) -> KafkaException:
    """As the client raises it."""
    error: KafkaException = KafkaException(KafkaError(code, text, fatal, False, False))
    return error


def fenced() -> KafkaException:
    """What a producer is told that another one has followed, or that held a transaction open for too long."""
    return failed(KafkaError._FENCED, "Local: This instance has been fenced by a newer instance", fatal=True)
