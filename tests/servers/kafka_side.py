"""The other side of a Kafka topic, by kafka-python: whoever writes what we read. None of the engine's code."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager

from kafka import KafkaAdminClient, KafkaProducer, OffsetSpec, TopicPartition
from kafka.admin import NewPartitions, NewTopic

from scribengin.testing.waiting import wait_until
from tests.servers.kafka_clients import PATIENT, PATIENT_PRODUCER, await_markers

_TIMEOUT_S = 180.0
Headers = Sequence[tuple[str, bytes]]


class KafkaSide:
    """Clients of one cluster that tests write with."""

    def __init__(self, bootstrap: str, **security: str) -> None:
        """`security`: kafka-python's settings of a connection that needs some."""
        self.bootstrap = bootstrap
        self.admin = KafkaAdminClient(bootstrap_servers=bootstrap, **PATIENT, **security)
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap, metadata_max_age_ms=200, **PATIENT_PRODUCER, **security
        )

    def create(self, topic: str, *, partitions: int = 1, **settings: str) -> None:
        """Create a topic, and wait until it can be written."""
        made = NewTopic(topic, partitions, 1, topic_configs={k.replace("_", "."): v for k, v in settings.items()})
        self.admin.create_topics([made])
        wait_until(lambda: self.partitions(topic) == partitions, _TIMEOUT_S, f"topic {topic}")

    def delete(self, topic: str) -> None:
        """Delete a topic, and wait until it is gone."""
        self.admin.delete_topics([topic])
        wait_until(lambda: topic not in self.admin.list_topics(), _TIMEOUT_S, f"topic {topic} to go")

    def add_partitions(self, topic: str, total: int) -> None:
        """Let the topic have so many partitions."""
        self.admin.create_partitions({topic: NewPartitions(total)})
        wait_until(lambda: len(self._producer.partitions_for(topic)) == total, _TIMEOUT_S, f"{total} partitions")

    @property
    def topics(self) -> Collection[str]:
        """The names of all topics."""
        return list(self.admin.list_topics())

    def partitions(self, topic: str) -> int:
        """How many partitions it has."""
        (found,) = self.admin.describe_topics([topic])
        return len(found["partitions"])

    def send(
        self, topic: str, payloads: Iterable[bytes | None], *, partition: int = 0, key: bytes | None = None
    ) -> None:
        """Append records, and wait until they can be read."""
        futures = [self._producer.send(topic, value, key=key, partition=partition) for value in payloads]
        self._producer.flush()
        for future in futures:
            future.get(_TIMEOUT_S)

    def send_record(
        self, topic: str, value: bytes | None, *, key: bytes | None = None, timestamp_ms: int, headers: Headers = ()
    ) -> int:
        """Append one record to partition 0 and return its offset."""
        future = self._producer.send(
            topic, value, key=key, partition=0, timestamp_ms=timestamp_ms, headers=list(headers)
        )
        self._producer.flush()
        return int(future.get(_TIMEOUT_S).offset)

    def end(self, topic: str) -> int:
        """The end of partition 0."""
        partition = TopicPartition(topic, 0)
        return int(self.admin.list_partition_offsets({partition: OffsetSpec.LATEST})[partition].offset)

    def delete_records(self, topic: str, before: int) -> None:
        """Give up the first records of partition 0, as retention does."""
        self.admin.delete_records({TopicPartition(topic, 0): before})

    def await_markers(self) -> None:
        """Wait until readers see what became of all transactions that were ended."""
        await_markers(self.admin)

    def transactional(self, transactional_id: str) -> AbstractContextManager[KafkaProducer]:
        """See the function of that name."""
        return transactional(self.bootstrap, transactional_id)

    def close(self) -> None:
        """Close the clients."""
        self._producer.close()
        self.admin.close()


@contextmanager
def transactional(bootstrap: str, transactional_id: str) -> Iterator[KafkaProducer]:
    """A producer of transactions, initialised. Afterwards readers see what became of them."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id, **PATIENT_PRODUCER)
    producer.init_transactions()
    with closing(producer):
        yield producer
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap, **PATIENT)) as admin:
        await_markers(admin)
