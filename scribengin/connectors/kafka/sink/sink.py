"""A Kafka topic as a sink: exactly once through the task's transaction (transaction.py), or at least once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing

import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.connectors.contract import (
    RECORD_SCHEMA,
    Attempt,
    Guarantee,
    Sink,
    SinkStreamDescriptor,
    SinkStreamWriter,
    TransactionCoordinator,
)
from scribengin.connectors.kafka.client.client import Troubles, engine_error, made
from scribengin.connectors.kafka.client.connection import settings
from scribengin.connectors.kafka.sink.config import KafkaSinkConfig
from scribengin.connectors.kafka.sink.current import CurrentTarget
from scribengin.connectors.kafka.sink.records import SIDE_COLUMNS, Target
from scribengin.connectors.kafka.sink.topic import Topic, TopicFacts
from scribengin.connectors.kafka.sink.transaction import RETENTION_MINUTES_MIN, KafkaTransaction, ensure_transaction
from scribengin.connectors.kafka.sink.writing import AtLeastOnceWriter, TransactionalWriter
from scribengin.connectors.opening import StreamNodes
from scribengin.errors import ConfigInvalid, DataflowError
from scribengin_registry.contract import Registry

_POLL_S = 10.0
_MARKERS_S = 1.0
_MARKERS_POLL_S = 0.02
_BATCH_RECORDS = 10_000


class KafkaSink(Sink):
    """One topic, written by all tasks. Stream k writes records without a key to partition k, round robin."""

    def __init__(
        self, name: str, config: KafkaSinkConfig, registry: Registry, *, dataflow: str, nodes: StreamNodes, clock: Clock
    ) -> None:
        """`nodes`: where its streams have their nodes in the registry. Raises ConfigInvalid."""
        self._name = name
        self._config = config
        self._registry = registry
        self._dataflow = dataflow
        self._nodes = nodes
        self._clock = clock
        self._topic = Topic(config, config.topic)
        self._resource: str | None = None

    @property
    def resource(self) -> str:
        """Raises SystemUnreachable, and ConfigInvalid for a topic that is neither there nor to be made."""
        if self._resource is None:
            resource = self._resource_in(self._topic.cluster_id())
            if self._config.create is None:
                self._facts()
            self._refuse_forgetful()
            self._resource = resource
        return self._resource

    @property
    def side_columns(self) -> pa.Schema:
        return SIDE_COLUMNS

    @property
    def guarantee(self) -> Guarantee:
        return "exactly once" if self._config.guarantee == "exactly_once" else "at least once"

    def streams(self, count: int) -> list[SinkStreamDescriptor]:
        return [SinkStreamDescriptor(sink=self._name, resource=self.resource, name=str(k)) for k in range(count)]

    def create(self, streams: Sequence[SinkStreamDescriptor]) -> None:
        if self._config.create is not None and self._topic.facts() is None:
            self._topic.create(self._config.create)
        for stream in streams:
            if self._config.guarantee == "exactly_once":
                ensure_transaction(self._registry, self._node(stream), self._config, stream.name)

    def coordinator_id(self, stream: SinkStreamDescriptor) -> str | None:
        return stream.resource.rpartition("/")[0] if self._config.guarantee == "exactly_once" else None

    def open_coordinator(self, stream: SinkStreamDescriptor, task: str) -> TransactionCoordinator:
        descriptor = ensure_transaction(self._registry, self._node(stream), self._config, stream.name)
        return KafkaTransaction(
            self._config,
            descriptor,
            dataflow=self._dataflow,
            task=task,
            bytes_max=self._facts_of(stream).bytes_max,
            clock=self._clock,
        )

    def open_writer(self, stream: SinkStreamDescriptor, attempt: Attempt) -> SinkStreamWriter:
        target = CurrentTarget(lambda: self._target(stream), self._clock)
        if self._config.guarantee == "at_least_once":
            return AtLeastOnceWriter(target, self._config, attempt)
        if not isinstance(attempt.coordinator, KafkaTransaction):
            raise DataflowError(
                f"sink '{self._name}': a writer of topic {self._config.topic} needs its task's transaction"
            )
        if (bytes_max := target.now.bytes_max) < attempt.coordinator.batch_bytes:
            raise ConfigInvalid(
                f"sink '{self._name}': topic {self._config.topic} takes batches of {bytes_max} bytes at most, and the "
                f"task's transaction, which another sink began, sends up to {attempt.coordinator.batch_bytes}: set "
                f"`client: {{batch.size: {bytes_max}}}` for every sink of the cluster"
            )
        return TransactionalWriter(target, attempt.coordinator, attempt)

    def committed(self, stream: SinkStreamDescriptor) -> Iterable[pa.RecordBatch]:
        """The committed records of the partition that the stream writes to by default, its `txid` their offset."""
        target = self._target(stream)
        private = {"group_id": "scribengin-looking", "isolation_level": "read_committed", "enable_auto_commit": False}
        quick = {"enable_partition_eof": True, "fetch_wait_max_ms": 10}
        conf = settings(self._config, "scribengin-looking", **private, **quick)
        with closing(made(Consumer, conf, Troubles())) as consumer:
            place = TopicPartition(target.topic, target.partition, OFFSET_BEGINNING)
            consumer.assign([place])
            yield from self._read_to_end(consumer, place)

    def close(self) -> None:
        """Nothing is held."""

    def _read_to_end(self, consumer: Consumer, place: TopicPartition) -> Iterable[pa.RecordBatch]:
        """A commit is answered before its markers are in the partitions: what lies behind the last stable offset, and
        is no open transaction's, is to be seen soon."""
        patience_s: float | None = None
        while patience_s is None or SYSTEM_CLOCK.monotonic_s() < patience_s:
            first = consumer.poll(_POLL_S if patience_s is None else _MARKERS_POLL_S)
            if first is None and patience_s is None:
                raise engine_error(
                    KafkaError(KafkaError._TIMED_OUT), self._config.bootstrap, "reading what was committed"
                )
            messages = [] if first is None else [first, *consumer.consume(_BATCH_RECORDS, timeout=0)]
            rows = [(m.offset(), None, m.key(), m.value()) for m in messages if m.error() is None]
            if rows:
                columns = zip(zip(*rows, strict=True), RECORD_SCHEMA, strict=True)
                yield pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in columns], schema=RECORD_SCHEMA)
            for end in (message for message in messages if message.error() is not None):
                if end.error().code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                    continue  # of a group that the client wants to have, and which is never used
                if end.error().code() != KafkaError._PARTITION_EOF:
                    raise engine_error(end.error(), self._config.bootstrap, "reading what was committed")
                if end.offset() >= consumer.get_watermark_offsets(place, cached=True)[1]:
                    return
                patience_s = SYSTEM_CLOCK.monotonic_s() + _MARKERS_S

    def _target(self, stream: SinkStreamDescriptor) -> Target:
        facts, config = self._facts_of(stream), self._config
        return Target(
            topic=config.topic,
            partitions=facts.partitions,
            partition=int(stream.name) % facts.partitions,
            bytes_max=facts.bytes_max,
            by_key=config.partition_by == "key",
            tombstones=config.tombstones,
            behind_max_ms=facts.behind_max_ms,
            ahead_max_ms=facts.ahead_max_ms,
        )

    def _resource_in(self, cluster: str) -> str:
        return f"kafka:{cluster}/{self._config.topic}"

    def _facts_of(self, stream: SinkStreamDescriptor) -> TopicFacts:
        """Raises ConfigInvalid where the brokers are another cluster than that of the stream: what was written, and
        the decisions of its rounds, are there."""
        facts = self._facts()
        if stream.resource != self._resource_in(facts.cluster_id):
            raise ConfigInvalid(
                f"sink '{self._name}': the brokers at {self._config.bootstrap} are the cluster {facts.cluster_id}, and "
                f"its tasks write to topic {self._config.topic} of {stream.resource.removeprefix('kafka:')}; correct "
                "`bootstrap`, or submit another dataflow for that cluster"
            )
        return facts

    def _facts(self) -> TopicFacts:
        facts = self._topic.facts()
        if facts is None:
            raise ConfigInvalid(
                f"sink '{self._name}': there is no topic {self._config.topic} at {self._config.bootstrap}; make it, or "
                "have it made: `create: {partitions: ..., replication: ...}`; or permit the sink's user to see it"
            )
        return facts

    def _refuse_forgetful(self) -> None:
        if self._config.guarantee != "exactly_once":
            return
        told = self._topic.broker_settings()
        minutes = int(told.get("offsets.retention.minutes", RETENTION_MINUTES_MIN))
        expiration_ms = int(told.get("transactional.id.expiration.ms", RETENTION_MINUTES_MIN * 60_000))
        if min(minutes, expiration_ms // 60_000) < RETENTION_MINUTES_MIN:
            raise ConfigInvalid(
                f"sink '{self._name}': the brokers at {self._config.bootstrap} forget offsets after {minutes} minutes "
                f"and transactional ids after {expiration_ms} ms, and an outcome must be known for "
                f"{RETENTION_MINUTES_MIN} minutes: raise offsets.retention.minutes and transactional.id.expiration.ms "
                "there, or set `guarantee: at_least_once`"
            )

    def _node(self, stream: SinkStreamDescriptor) -> str:
        return f"{self._nodes.sink_stream(stream.resource, stream.name)}/transaction"
