"""Kafka as the transaction coordinator: one transaction a round for all topics of a task, and how its outcome
is found out later.

Only the producer that opened a transaction can commit it, so the registry cannot decide about a round alone. Every
transaction therefore carries, in the metadata of an offset that it commits for a private group, which round it is; and
that metadata is committed with it or not at all. Whoever comes later

1. calls `init_transactions` under the same transactional id: that fences the producer before it, and completes or
   aborts what it left in doubt. From here on nothing can be committed that is not committed now;
2. reads the group's metadata, with `read_committed`: so the answer waits for a transaction that is being completed.

The other order would read an answer that the old producer can still change.

The id and the group are one token's, made when the sink's stream is, and kept in the registry: no two tasks, dataflows
or registries ever share one. The task uses those of its first stream in the cluster.

A group's offsets expire (offsets.retention.minutes), and are deleted with their topic. So that silence never has to be
guessed about, an owner writes the last decision again before it stages anything, if it is missing or was not
written lately.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from scribengin.base.clock import Clock
from scribengin.base.commit_log import Decision
from scribengin.base.failpoints import failpoint
from scribengin.base.model import Descriptor
from scribengin.base.text.counting import many, which
from scribengin.base.threads import call_with_limit
from scribengin.connectors.contract import TransactionCoordinator
from scribengin.connectors.kafka.client.client import Troubles, made
from scribengin.connectors.kafka.client.connection import settings
from scribengin.connectors.kafka.client.failures import failure
from scribengin.connectors.kafka.sink.config import KafkaSinkConfig
from scribengin.errors import DataflowError, DecisionMissing, DecisionUnknown, ScribenginError, SystemUnreachable
from scribengin_registry.contract import Registry
from scribengin_registry.errors import NodeExists

REFRESH_AFTER_S = 900.0
"""A decision that was written longer ago is written again before it is relied on."""
RETENTION_MINUTES_MIN = 60
"""A cluster that forgets sooner is refused: a decision must outlive the time in which it is needed."""
REQUEST_TIMEOUT_S = 30.0
GIVEN_UP_AFTER_S = 45.0
"""For a call that has not even ended by its own limit."""
_MOVING = frozenset(
    {KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS}
)
_MOVED_MAX = 150
_MOVED_PAUSE_S = 0.2
"""A group's coordinator that moves is asked for again so many times, with so long in between."""
_SPEED: dict[str, Any] = {
    # With the default back-off of 100 ms the 99th percentile of a small transaction is 124 ms, with this 7.
    "retry.backoff.ms": 2,
    "retry.backoff.max.ms": 10,
    "linger.ms": 5,
    "queue.buffering.max.messages": 1_000_000,
    "partitioner": "murmur2_random",
    "delivery.report.only.error": True,
}


class TransactionDescriptor(Descriptor):
    """The data of a stream's `transaction` node: who the producer is, and where its decisions stand."""

    transactional_id: str
    group: str


def ensure_transaction(registry: Registry, node: str, config: KafkaSinkConfig, stream: str) -> TransactionDescriptor:
    """The descriptor of a stream, made if there is none yet. It is made once, and never changes."""
    found = registry.find(node)
    if found is None:
        name = f"{config.transactional_id_prefix}-{config.topic}-{stream}-{uuid.uuid4().hex}"
        descriptor = TransactionDescriptor(transactional_id=name, group=name)
        with suppress(NodeExists), failpoint("kafka.stream_create"):
            registry.create(node, descriptor.to_bytes(), parents=True)
        found = registry.get(node)
    return TransactionDescriptor.from_bytes(found.data, path=node)


class KafkaTransaction(TransactionCoordinator):
    """The transactions of one task, one at a time. Used by one thread."""

    def __init__(
        self,
        config: KafkaSinkConfig,
        descriptor: TransactionDescriptor,
        *,
        dataflow: str,
        task: str,
        bytes_max: int,
        clock: Clock,
    ) -> None:
        """Asks nobody yet. `bytes_max` is the largest batch that the topic takes. Raises ConfigInvalid."""
        self._bootstrap = config.bootstrap
        self._name = descriptor.group
        self._place = TopicPartition(config.topic, 0)
        self._topics = {config.topic}
        """Those that the transaction writes."""
        self._said_by = {"dataflow": dataflow, "task": task}
        self._clock = clock
        self._troubles = Troubles()
        client_id = f"scribengin-{dataflow}-{task}"
        safe = producer_settings(config, client_id, bytes_max)
        self.batch_bytes = int(safe["batch.size"])
        """How large the batches are that the brokers get: no topic of the task may take less."""
        timeout_ms = int(config.transaction_timeout_s * 1000)
        mine = {"transactional.id": descriptor.transactional_id, "transaction.timeout.ms": timeout_ms}
        self.producer: Producer = made(Producer, {**safe, **mine}, self._troubles)
        private = {"group_id": descriptor.group, "isolation_level": "read_committed", "enable_auto_commit": False}
        self._memory: Consumer = made(Consumer, settings(config, client_id, **private), self._troubles)
        self._last: Decision | None = None
        self._last_s: float | None = None
        self._prepared: Decision | None = None
        self._open = False
        self._closed = False
        self.opened = 0
        """Transactions that were opened, and the number of the last that was committed: what writers go by."""
        self.committed = 0

    @property
    def name(self) -> str:
        return self._name

    @property
    def staged(self) -> bool:
        return self._open

    def recover(self) -> Decision | None:
        with self._asking("fencing the last owner's transaction"), failpoint("kafka.init"):
            _ask(self.producer.init_transactions)
        with self._asking("reading the last decision"):
            found = committed_offset(self._memory, self._place)
        self._last = None if found.offset < 0 else self._decision(found.metadata)
        return self._last

    def establish(self, last: Decision) -> None:
        with self._asking("writing the last decision again"), failpoint("kafka.establish"):
            self.producer.begin_transaction()
            _ask(self.producer.send_offsets_to_transaction, *self._carrying(last))
            _ask(self.producer.commit_transaction)
        self._last = last
        self._last_s = self._clock.monotonic_s()

    def begin(self, topic: str) -> None:
        """Open the transaction, unless it is open: for writers, before they produce to that topic."""
        if self._open:
            self._topics.add(topic)
            return
        self._topics = {topic}
        if self._last is not None and self._is_old():
            self.establish(self._last)
        with self._asking("beginning a transaction"):
            self.producer.begin_transaction()
        self._open = True
        self.opened += 1

    def prepare(self, decision: Decision) -> None:
        self.flush()
        with self._asking("adding the decision to the transaction"), failpoint("kafka.prepare"):
            _ask(self.producer.send_offsets_to_transaction, *self._carrying(decision))
        self._prepared = decision

    def commit(self) -> None:
        if self._prepared is None:
            raise DataflowError(f"the transaction of '{self._name}' is not prepared")
        try:
            with self._asking("committing a transaction"), failpoint("kafka.commit"):
                _ask(self.producer.commit_transaction)
        except DecisionUnknown:
            raise
        except ScribenginError as error:  # whatever it was, it says nothing about what the broker did
            raise DecisionUnknown(str(error)) from None
        self._last = self._prepared
        self._last_s = self._clock.monotonic_s()
        self._open = False
        self._prepared = None
        self.committed = self.opened

    def abort(self) -> None:
        if not self._open:
            return
        with self._asking("aborting a transaction"), failpoint("kafka.abort"):
            # librdkafka (its issue 4849) may ask for the abort before it has added the first partition, which the
            # broker refuses and the producer does not survive: so what is on its way goes there before.
            self.producer.flush(REQUEST_TIMEOUT_S)
            _ask(self.producer.abort_transaction)
        self._open = False
        self._prepared = None

    def flush(self) -> None:
        """Return when the brokers have everything. Raises SystemUnreachable, DecisionUnknown."""
        with self._asking("writing the round's records"):
            left = self.producer.flush(REQUEST_TIMEOUT_S)
        if left:
            raise SystemUnreachable(
                f"Kafka at {self._bootstrap}: {many(left, 'record')} {which(left, 'was', 'were')} not taken "
                f"within {REQUEST_TIMEOUT_S:g} s; the round is rolled back and tried again: see whether the brokers run"
            )

    def failure(self, error: KafkaException, doing: str) -> ScribenginError:
        """What to raise for an error of the producer. Which topic or right is meant, the client does not always say."""
        topics = ", ".join(sorted(self._topics))
        where = f"transaction and group {self._name}, {which(len(self._topics), 'topic', 'topics')} {topics}"
        return failure(error, self._bootstrap, f"{doing} ({where})", self._troubles)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        # Not Producer.close(): it would abort the transaction, and wait for that as long as the brokers are away.
        # Without it the client ends at once, and whoever comes next brings the transaction to its end.
        del self.producer, self._memory

    def _carrying(self, decision: Decision) -> tuple[list[TopicPartition], Any]:
        said = {**self._said_by, "epoch": decision.epoch, "round": decision.round}
        place = TopicPartition(self._place.topic, 0, decision.round, json.dumps(said))
        return [place], self._memory.consumer_group_metadata()

    def _decision(self, metadata: str | None) -> Decision:
        text = (metadata or "").rstrip("\0")  # confluent-kafka stores the end of its C string, too
        try:
            said = json.loads(text)
            told_by = {key: said[key] for key in self._said_by}
            decision = Decision(coordinator=self._name, epoch=int(said["epoch"]), round=int(said["round"]))
        except (ValueError, KeyError, TypeError):
            raise DecisionMissing(self._foreign(text)) from None
        if told_by != self._said_by:
            raise DecisionMissing(self._foreign(text))
        return decision

    def _foreign(self, text: str) -> str:
        return (
            f"group '{self._name}' at {self._bootstrap} holds {text[:200]!r}, which this task did not write; nobody "
            f"else may use that group: delete its offsets of topic {self._place.topic} once you know what wrote them"
        )

    def _is_old(self) -> bool:
        return self._last_s is None or self._clock.monotonic_s() - self._last_s > REFRESH_AFTER_S

    @contextmanager
    def _asking(self, doing: str) -> Iterator[None]:
        try:
            yield
            self._troubles.take()
        except KafkaException as error:
            raise self.failure(error, doing) from None
        except TimeoutError as error:
            raise SystemUnreachable(
                f"Kafka at {self._bootstrap}, {doing}: {error}; the producer is given up, and the task is taken over "
                "again with another: see whether the brokers run"
            ) from None


def committed_offset(member: Consumer, place: TopicPartition) -> TopicPartition:
    """What the member's group has committed for a partition. A coordinator that is not there yet, or is moving, is
    waited for, which librdkafka does only while it knows of none. Raises KafkaException, TimeoutError."""
    for again in range(_MOVED_MAX, -1, -1):
        try:
            (found,) = _ask(member.committed, [place])
            if found.error is not None:
                raise KafkaException(found.error)
            break
        except KafkaException as error:
            if error.args[0].code() == KafkaError._TIMED_OUT:
                _refuse_denied(member)
            if error.args[0].code() not in _MOVING or not again:
                raise
        member.poll(_MOVED_PAUSE_S)  # it looks for the new one meanwhile, and tells its troubles
    return found


def _refuse_denied(member: Consumer) -> None:
    """Raise KafkaException where the broker refuses the group: the client tells that to who polls, and to no other."""
    told = member.poll(0)
    error = None if told is None else told.error()
    if error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
        raise KafkaException(error)


def _ask(call: Callable[..., Any], *arguments: Any) -> Any:
    """Make a call of the client that waits for brokers. Raises KafkaException, and TimeoutError when the client does
    not keep to the limit that it was given: seen of `send_offsets_to_transaction` when the broker was killed and back.
    """
    return call_with_limit(lambda: call(*arguments, REQUEST_TIMEOUT_S), GIVEN_UP_AFTER_S)


def producer_settings(config: KafkaSinkConfig, client_id: str, bytes_max: int) -> dict[str, Any]:
    """What every producer of a sink is made with: safe first, then fast, then as the user has it."""
    sizes = {"message.max.bytes": 1_000_000_000, "batch.size": min(bytes_max, 1_000_000)}  # records are checked before
    return {
        **_SPEED,
        **sizes,
        **settings(config, client_id),
        "acks": "all",
        "enable.idempotence": True,
    }
