"""A control client of a `MemoryKafka`: the methods of confluent_kafka's that the engine calls, with their ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaError, TopicCollection, TopicPartition
from confluent_kafka import KafkaException as ClientError
from confluent_kafka.admin import ConfigResource, NewTopic, OffsetSpec, ResourceType

from scribengin.testing.memory.kafka.state import Partition, Place, failed

if TYPE_CHECKING:
    from scribengin.testing.memory.kafka.cluster import MemoryKafka

_TIMEOUT_S = 8.0
_BROKER = 1


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """One topic of `list_topics`."""

    partitions: dict[int, None]
    error: None = None


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """What `list_topics` gives."""

    cluster_id: str
    topics: dict[str, TopicMetadata]
    brokers: dict[int, None] = field(default_factory=lambda: {_BROKER: None})


@dataclass(frozen=True, slots=True)
class Described:
    """A value under the name that the client's answer has for it."""

    topic_id: str = ""
    offset: int = -1
    value: str = ""


class MemoryAdmin:
    """Thread-safe. Futures are done when they are returned."""

    def __init__(self, cluster: MemoryKafka, _conf: Mapping[str, Any]) -> None:
        self._cluster = cluster

    def poll(self, timeout: float = -1) -> int:
        """Nothing is told by the way."""
        return 0

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """All topics. Raises KafkaException."""
        try:
            return self._cluster.asked(self._metadata, timeout)
        except ClientError:
            raise failed(KafkaError._TRANSPORT, "Local: Broker transport failure") from None

    def _metadata(self) -> ClusterMetadata:
        found = self._cluster.topics.items()
        topics = {name: TopicMetadata(dict.fromkeys(range(len(topic.partitions)))) for name, topic in found}
        return ClusterMetadata(self._cluster.bootstrap, topics)

    def describe_topics(self, topics: TopicCollection, request_timeout: float = _TIMEOUT_S) -> dict[str, Future[Any]]:
        """The id of each topic."""

        def describe(name: str) -> Described:
            if name not in self._cluster.topics:
                raise _unknown()
            return Described(topic_id=self._cluster.topics[name].topic_id)

        return {name: self._future(partial(describe, name), request_timeout) for name in topics.topic_names}

    def list_offsets(
        self,
        asked: Mapping[TopicPartition, OffsetSpec],
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        request_timeout: float = _TIMEOUT_S,
    ) -> dict[TopicPartition, Future[Any]]:
        """An offset of each partition."""
        committed = isolation_level == IsolationLevel.READ_COMMITTED

        def find(partition: TopicPartition, spec: OffsetSpec) -> Described:
            topic = self._cluster.topics.get(partition.topic)
            if topic is None or partition.partition >= len(topic.partitions):
                raise _unknown()
            place, log = (partition.topic, partition.partition), topic.partitions[partition.partition]
            self._cluster.expect_leader(place)
            return Described(offset=self._offset(place, log, spec, committed=committed))

        return {
            partition: self._future(partial(find, partition, spec), request_timeout)
            for partition, spec in asked.items()
        }

    def alter_consumer_group_offsets(
        self, requests: Sequence[ConsumerGroupTopicPartitions], request_timeout: float = _TIMEOUT_S
    ) -> dict[str, Future[Any]]:
        """Move the offsets of a group that nobody is a member of."""

        def alter(request: ConsumerGroupTopicPartitions) -> ConsumerGroupTopicPartitions:
            self._cluster.expect_coordinator(request.group_id)
            offsets = {(p.topic, p.partition): (p.offset, p.metadata or "") for p in request.topic_partitions}
            self._cluster.commit_offsets(request.group_id, offsets)
            return request

        return {each.group_id: self._future(partial(alter, each), request_timeout) for each in requests}

    def create_topics(
        self, topics: Sequence[NewTopic], operation_timeout: float = 0, request_timeout: float = _TIMEOUT_S
    ) -> dict[str, Future[Any]]:
        """Create topics."""

        def create(wanted: NewTopic) -> None:
            settings = {key.replace(".", "_"): value for key, value in (wanted.config or {}).items()}
            self._cluster.create(wanted.topic, partitions=max(wanted.num_partitions, 1), **settings)

        return {each.topic: self._future(partial(create, each), request_timeout) for each in topics}

    def describe_configs(
        self, resources: Sequence[ConfigResource], request_timeout: float = _TIMEOUT_S
    ) -> dict[ConfigResource, Future[Any]]:
        """The settings of topics and brokers."""

        def describe(resource: ConfigResource) -> dict[str, Described]:
            if resource.restype != ResourceType.TOPIC:
                return {name: Described(value=value) for name, value in self._cluster.settings.items()}
            if resource.name not in self._cluster.topics:
                raise _unknown()
            settings = self._cluster.topics[resource.name].settings
            return {name: Described(value=value) for name, value in settings.items()}

        return {each: self._future(partial(describe, each), request_timeout) for each in resources}

    def _offset(self, place: Place, log: Partition, spec: OffsetSpec, *, committed: bool) -> int:
        """Raises KafkaException, from a leader that does not know its end yet."""
        shown = self._cluster.readable(place, committed=committed)
        short = shown < log.limit(place, committed=committed) and not self._cluster.tells_short_ends
        time_ms = getattr(spec, "timestamp", None)
        if time_ms is None and type(spec) is type(OffsetSpec.earliest()):
            return log.begin
        records = ((e.offset, e.record.time_ms) for e in log.entries if e.record is not None and e.offset < shown)
        found = None if time_ms is None else next((offset for offset, at_ms in records if at_ms >= time_ms), -1)
        if short and (found is None or found < 0):
            raise failed(KafkaError.OFFSET_NOT_AVAILABLE, "Broker: Leader high watermark is not caught up")
        return shown if found is None else found

    def _future(self, ask: Callable[[], Any], timeout_s: float) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(self._cluster.asked(ask, timeout_s))
        except ClientError as error:
            future.set_exception(error)
        return future


def _unknown() -> ClientError:
    return failed(KafkaError.UNKNOWN_TOPIC_OR_PART, "Broker: Unknown topic or partition")
