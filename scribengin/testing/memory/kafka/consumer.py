"""A consumer of a `MemoryKafka`: the methods of confluent_kafka's that the engine calls, with their ways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from scribengin.testing.memory.kafka.state import Concurrent, OffsetEntry, Partition, Place

if TYPE_CHECKING:
    from scribengin.testing.memory.kafka.cluster import MemoryKafka


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """What `consumer_group_metadata` gives, for `send_offsets_to_transaction`."""

    group: str


@dataclass(slots=True)
class _Assigned:
    """Where one partition is read, and at which of its ends that was said last."""

    at: int
    told_end: int = -1
    lost: bool = False


class MemoryConsumer:
    """Reads what it is assigned. It joins no group. Used by one thread at a time."""

    def __init__(self, cluster: MemoryKafka, conf: Mapping[str, Any]) -> None:
        self._cluster = cluster
        self._group = str(conf.get("group.id", ""))
        self._committed = conf.get("isolation.level", "read_committed") == "read_committed"
        self._tells_ends = bool(conf.get("enable.partition.eof", False))
        self._reset = str(conf.get("auto.offset.reset", "latest"))
        self._assigned: dict[Place, _Assigned] = {}

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read these, and no others."""
        self._assigned = {}
        self.incremental_assign(partitions)

    def incremental_assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read these, too."""
        for each in partitions:
            self._assigned[each.topic, each.partition] = _Assigned(each.offset)

    def incremental_unassign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read these no more."""
        for each in partitions:
            self._assigned.pop((each.topic, each.partition), None)

    def unassign(self) -> None:
        """Read nothing."""
        self._assigned = {}

    def poll(self, timeout: float = -1) -> Message | None:
        """The next message, an error or an end among them; None after the timeout."""
        found = self.consume(1, timeout)
        return found[0] if found else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Messages, as soon as there are any; none after the timeout."""
        deadline_s = self._cluster.clock.monotonic_s() + (timeout if timeout >= 0 else 3e9)
        with self._cluster.changed:
            while True:
                found = self._next(num_messages)
                left_s = deadline_s - self._cluster.clock.monotonic_s()
                if found or left_s <= 0:
                    return found
                self._cluster.changed.wait(min(left_s, 0.05))

    def committed(self, partitions: Sequence[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """What the group has committed. Raises KafkaException."""
        places = [(each.topic, each.partition) for each in partitions]
        found = self._cluster.asked(
            lambda: self._cluster.committed(self._group, places, stable=self._committed),
            timeout,
            act="committed",
            name=self._group,
        )
        offsets = [offset if offset is not None else (OFFSET_INVALID, "") for offset in found]
        return [TopicPartition(*place, *offset) for place, offset in zip(places, offsets, strict=True)]

    def consumer_group_metadata(self) -> GroupMetadata:
        """What names the group."""
        return GroupMetadata(self._group)

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        """Where the partition begins and ends, whatever the isolation."""
        log = self._cluster.topics[partition.topic].partitions[partition.partition]
        return log.begin, self._cluster.readable((partition.topic, partition.partition), committed=False)

    def close(self) -> None:
        """Nothing is held."""
        self._assigned = {}

    # -- under the lock

    def _next(self, count: int) -> list[Message]:
        if self._cluster.away or not self._cluster.brokers.running:
            return []
        self._cluster.tick()
        found: list[Message] = []
        for place, assigned in self._assigned.items():
            if len(found) < count:
                found += self._of(place, assigned, count - len(found))
        return found

    def _of(self, place: Place, assigned: _Assigned, count: int) -> list[Message]:
        if assigned.lost:
            return []
        topic = self._cluster.topics.get(place[0])
        if topic is None or place[1] >= len(topic.partitions):
            return [self._lost(place, assigned, KafkaError.UNKNOWN_TOPIC_OR_PART)]
        log = topic.partitions[place[1]]
        if not self._cluster.leads(place):
            return []
        self._resolve(place, assigned, log)
        if not log.begin <= assigned.at <= log.end:
            if self._reset == "error":
                return [self._lost(place, assigned, KafkaError._AUTO_OFFSET_RESET)]
            assigned.at = log.begin if self._reset in ("earliest", "smallest", "beginning") else log.end
        found = []
        shown = self._cluster.readable(place, committed=self._committed)
        for entry in log.records(place, assigned.at, committed=self._committed, shown=shown):
            found.append(_message(place, entry))
            assigned.at = entry.offset + 1
            if len(found) == count:
                return found
        return found + self._ended(place, assigned, log, shown)

    def _ended(self, place: Place, assigned: _Assigned, log: Partition, shown: int) -> list[Message]:
        if shown < assigned.at and shown < log.limit(place, committed=self._committed):
            return []  # it has read what the new leader does not show yet
        assigned.at = max(assigned.at, shown)
        if not self._tells_ends or assigned.told_end == assigned.at:
            return []
        assigned.told_end = assigned.at
        return [_error(place, assigned.at, KafkaError._PARTITION_EOF)]

    def _resolve(self, place: Place, assigned: _Assigned, log: Partition) -> None:
        if assigned.at == OFFSET_BEGINNING:
            assigned.at = log.begin
        elif assigned.at == OFFSET_END:
            assigned.at = self._cluster.readable(place, committed=self._committed)
        elif assigned.at == OFFSET_INVALID:
            try:
                (found,) = self._cluster.committed(self._group, [place], stable=self._committed)
            except (Concurrent, KafkaException):
                return
            assigned.at = found[0] if found is not None else -1

    def _lost(self, place: Place, assigned: _Assigned, code: int) -> Message:
        assigned.lost = True
        return _error(place, max(assigned.at, 0), code)


def _message(place: Place, entry: OffsetEntry) -> Message:
    record = entry.record
    assert record is not None
    return Message(
        topic=place[0],
        partition=place[1],
        offset=entry.offset,
        key=record.key,
        value=record.value,
        headers=record.headers or None,
        timestamp=(entry.time_type, record.time_ms),
    )


def _error(place: Place, offset: int, code: int) -> Message:
    return Message(topic=place[0], partition=place[1], offset=offset, error=KafkaError(code))
