"""The other side of a Kafka in memory: whoever writes what we read, with the words of `KafkaSide`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer

from scribengin.testing.memory.kafka import MemoryKafka


class MemorySide(MemoryKafka):
    """A cluster in memory that tests write to as they write to a real one."""

    def partitions(self, topic: str) -> int:
        """How many partitions it has."""
        return len(self.topics[topic].partitions)

    def await_markers(self) -> None:
        """Readers see what became of all transactions that were ended."""
        self.write_marks()

    @contextmanager
    def transactional(self, transactional_id: str) -> Iterator[MemoryWriter]:
        """A producer of transactions, initialised. Afterwards readers see what became of them."""
        yield MemoryWriter(self, transactional_id)
        self.write_marks()

    def close(self) -> None:
        """Nothing is held."""


class MemoryWriter:
    """What tests call of kafka-python's producer."""

    def __init__(self, side: MemorySide, transactional_id: str) -> None:
        self._producer = side.client(Producer, {"transactional.id": transactional_id})
        self._producer.init_transactions()

    def begin_transaction(self) -> None:
        """Open one."""
        self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0, timestamp_ms: int = 0) -> None:
        """Write a record."""
        self._producer.produce(topic, value, None, partition, timestamp=timestamp_ms)

    def flush(self) -> None:
        """Return when it is there."""
        self._producer.flush()

    def commit_transaction(self) -> None:
        """Commit."""
        self._producer.commit_transaction()

    def abort_transaction(self) -> None:
        """Abort."""
        self._producer.abort_transaction()
