"""What a source asks of a Kafka cluster beside records: topics, offsets, groups. One control client for all that asks.

`KafkaControl.of` shares one client among everything in this process that means the same connection. Whatever goes wrong
is raised as one of our errors, in one line: SystemUnreachable for what will pass, ConfigInvalid for what will not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.connectors.kafka.client.connection import KafkaConnectionConfig, connection_key, is_time, settings
from scribengin.connectors.kafka.client.ends import PartitionEnds
from scribengin.errors import ConfigInvalid, DataflowError, ScribenginError, SystemUnreachable

Partition = tuple[str, int]
"""A topic's name, and the number of one of its partitions."""

REQUEST_TIMEOUT_S = 8.0
MUTE_MAX_S = 20.0
"""A control client that has had no answer for so long is replaced: one was seen that did not find a broker again which
had been away, while others did. All other clients are made anew after an error as it is."""
_CONTROL = "scribengin-control"
_UNUSED_MAX = 4
"""So many control clients stay though nobody uses them."""
_REFUSED = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_HAS_MEMBERS = frozenset(
    {
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.NON_EMPTY_GROUP,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError.STALE_MEMBER_EPOCH,
    }
)
"""What brokers say to who moves a group's offsets while consumers are in it."""
_GONE = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})
_PASSING = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError._WAIT_COORD,
        KafkaError._NOENT,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.KAFKA_STORAGE_ERROR,
    }
)


class Troubles:
    """What a client of librdkafka says by the way, the reason behind a request that timed out among it.

    Whoever is answered takes it, too: of what was said before that, nothing explains what fails hours later. A refusal
    that had passed would end a task whose brokers are only away.
    """

    def __init__(self) -> None:
        self._last: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        """The `error_cb` of a client."""
        refused = self._last is not None and self._last.code() in _REFUSED
        if error.code() != KafkaError._ALL_BROKERS_DOWN and not refused:
            self._last = error

    def take(self) -> KafkaError | None:
        """The last one, once."""
        last, self._last = self._last, None
        return last

    def take_from(self, admin: AdminClient) -> KafkaError | None:
        """As `take`, of a client that tells nothing before it is polled."""
        admin.poll(0)
        return self.take()


def engine_error(error: KafkaError, bootstrap: str, doing: str, trouble: KafkaError | None = None) -> ScribenginError:
    """What to raise for an error of the client that came up while `doing` something; `trouble` may know more of it."""
    said = error if trouble is None or error.code() in _GONE else trouble
    text = f"Kafka at {bootstrap}, {doing}: {said.str()}"
    if error.code() in _REFUSED or said.code() in _REFUSED:
        return ConfigInvalid(f"{text}; correct the source's or sink's `client` settings, or what the cluster permits")
    if error.code() in _GONE:
        return DataflowError(f"{text}; was the topic deleted?")
    if error.code() == KafkaError._BAD_COMPRESSION:
        return DataflowError(
            f"{text}; it is damaged, or of zstd and takes more than `client: {{receive.message.max.bytes}}` when it is "
            "decompressed (100,000,000 where that is not set)"
        )
    if error.code() in _PASSING or error.retriable():
        return SystemUnreachable(
            f"{text}; it is waited for: see whether the broker runs, and correct `bootstrap` if not"
        )
    return DataflowError(text)


class KafkaControl:
    """One control client and what it is asked. Thread-safe. `of` opens, `release` closes."""

    _shared: dict[str, KafkaControl] = {}
    _sharing = threading.Lock()

    def __init__(self, config: KafkaConnectionConfig) -> None:
        """Raises ConfigInvalid for settings that librdkafka refuses."""
        self.bootstrap = config.bootstrap
        self._users = 0
        self._troubles = Troubles()
        self._settings = settings(config, _CONTROL)
        self._admin: AdminClient = made(AdminClient, self._settings, self._troubles)
        self._before: AdminClient | None = None
        self._mute_since_s: float | None = None

    @classmethod
    def of(cls, config: KafkaConnectionConfig) -> KafkaControl:
        """The cluster of that connection. Every call is to be followed by a `release`. Raises ConfigInvalid."""
        key = connection_key(config)
        with cls._sharing:
            cluster = cls._shared.pop(key, None)
            if cluster is None or (cluster._users == 0 and cluster._settings != settings(config, _CONTROL)):
                cluster = cls(config)
            if cluster._users == 0:
                cluster._mute_since_s = None
            cluster._users += 1
            cls._shared[key] = cluster  # behind those that were used before it
            return cluster

    def release(self) -> None:
        """One user less. Its client stays for the next one: where a client was made and ended for each look, its
        library met a segmentation fault after some thousands of them."""
        with self._sharing:
            self._users -= 1
            unused = [key for key, control in self._shared.items() if control._users == 0]
            for key in unused[:-_UNUSED_MAX]:
                del self._shared[key]

    @classmethod
    def forget(cls, bootstrap: str) -> None:
        """No cluster is there any more: what was not released is not shared with the next one of that address."""
        with cls._sharing:
            for key in [key for key, control in cls._shared.items() if control.bootstrap == bootstrap]:
                del cls._shared[key]

    def partitions(self) -> dict[str, int]:
        """How many partitions each topic has, by name. Raises SystemUnreachable, ConfigInvalid."""
        doing = "listing topics"
        try:
            metadata = self._admin.list_topics(timeout=REQUEST_TIMEOUT_S)
        except KafkaException as error:
            raise self._engine_error(error, doing) from None
        self._answered()
        return {name: len(topic.partitions) for name, topic in metadata.topics.items() if topic.error is None}

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, Answer]:
        """The id of each topic ("" from a broker that knows none)."""
        futures = self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=REQUEST_TIMEOUT_S)
        return {name: Answer(future, lambda topic: str(topic.topic_id)) for name, future in futures.items()}

    def offsets(self, asked: Mapping[Partition, OffsetSpec], isolation: str) -> Mapping[Partition, Answer]:
        """An offset of each partition: its earliest, its latest, or the first at a time (-1: none)."""
        level = IsolationLevel.READ_COMMITTED if isolation == "read_committed" else IsolationLevel.READ_UNCOMMITTED
        request = {TopicPartition(*partition): spec for partition, spec in asked.items()}
        futures = self._admin.list_offsets(request, isolation_level=level, request_timeout=REQUEST_TIMEOUT_S)
        return {(key.topic, key.partition): Answer(f, lambda found: found.offset) for key, f in futures.items()}

    def ends(
        self, partitions: Collection[Partition], isolation: str
    ) -> dict[Partition, PartitionEnds | ScribenginError]:
        """What each partition holds, or what went wrong with it. Three requests, side by side."""
        latest = self.offsets(dict.fromkeys(partitions, OffsetSpec.latest()), isolation)
        earliest = self.offsets(dict.fromkeys(partitions, OffsetSpec.earliest()), isolation)
        ids = self.topic_ids(sorted({topic for topic, _ in partitions}))
        found: dict[Partition, PartitionEnds | ScribenginError] = {}
        for partition in partitions:
            try:
                begin, end = earliest[partition].result(), latest[partition].result()
                found[partition] = PartitionEnds(begin, end, ids[partition[0]].result())
                self._mute_since_s = None
            except KafkaException as error:
                found[partition] = self._engine_error(error, f"asking for the offsets of {partition[0]}/{partition[1]}")
        if not any(isinstance(one, ScribenginError) for one in found.values()):
            self._answered()
        return found

    def offset_at(self, partition: Partition, time_ms: int, isolation: str) -> int | None:
        """The first offset with a timestamp of `time_ms` or later, if there is one. Raises as `ends` says, and
        ConfigInvalid for what is no time to Kafka."""
        if not is_time(time_ms):
            raise ConfigInvalid(f"Kafka has times from 1970 on, and {time_ms} ms is none; correct it")
        answer = self.offsets({partition: OffsetSpec.for_timestamp(time_ms)}, isolation)[partition]
        try:
            offset: int = answer.result()
        except KafkaException as error:
            raise self._engine_error(error, f"looking for a time in {partition[0]}/{partition[1]}") from None
        self._answered()
        return None if offset < 0 else offset

    def written(self, partition: Partition) -> int:
        """Where the partition ends, with what open transactions have written. Raises as `ends` says."""
        answer = self.offsets({partition: OffsetSpec.latest()}, "read_uncommitted")[partition]
        try:
            end: int = answer.result()
        except KafkaException as error:
            raise self._engine_error(error, f"looking for the end of {partition[0]}/{partition[1]}") from None
        self._answered()
        return end

    def commit_group(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Say that a group has read so far. Raises ScribenginError."""
        request = ConsumerGroupTopicPartitions(group, [TopicPartition(*p, offset) for p, offset in offsets.items()])
        (future,) = self._admin.alter_consumer_group_offsets([request], request_timeout=REQUEST_TIMEOUT_S).values()
        try:
            committed = future.result()
        except KafkaException as error:
            raise self._unmoved(group, error) from None
        failed = next((p.error for p in committed.topic_partitions if p.error is not None), None)
        if failed is not None:
            raise self._unmoved(group, KafkaException(failed))

    def _unmoved(self, group: str, error: KafkaException) -> ScribenginError:
        """Why a group shows other offsets than it was to."""
        code, said = error.args[0].code(), error.args[0].str()
        text = f"Kafka at {self.bootstrap}, committing offsets of group {group}: {said}"
        if code in _HAS_MEMBERS:
            return DataflowError(f"{text}; it has members of its own: name another `group`, or `mirror_offsets: false`")
        if code == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return ConfigInvalid(f"{text}; permit Read of it, name another `group`, or `mirror_offsets: false`")
        return self._engine_error(error, f"committing offsets of group {group}")

    def _answered(self) -> None:
        self._mute_since_s = None
        self._troubles.take_from(self._admin)  # else it would tell of long ago when something fails

    def _engine_error(self, error: KafkaException, doing: str) -> ScribenginError:
        known = engine_error(error.args[0], self.bootstrap, doing, self._troubles.take_from(self._admin))
        if isinstance(known, SystemUnreachable):
            self._replace_a_mute_client()
        return known

    def _replace_a_mute_client(self) -> None:
        now_s = SYSTEM_CLOCK.monotonic_s()
        with self._sharing:
            if self._mute_since_s is None:
                self._mute_since_s = now_s
            if now_s - self._mute_since_s < MUTE_MAX_S:
                return
            self._mute_since_s = now_s
            given_up = self._before  # by now nobody waits for an answer of that one any more
            admin = made(AdminClient, self._settings, self._troubles)
            self._before = self._admin
            self._admin = admin
        del given_up


@dataclass(frozen=True, slots=True)
class Answer:
    """One of the answers to a request: `result` waits for it, and raises KafkaException."""

    future: Future[Any]
    read: Callable[[Any], Any]

    def result(self) -> Any:
        return self.read(self.future.result())


_MAKERS: dict[str, Callable[[Any, dict[str, Any]], Any]] = {}
"""What makes the clients of a cluster that is no real one, by its `bootstrap`."""


@contextmanager
def made_by(bootstrap: str, make: Callable[[Any, dict[str, Any]], Any]) -> Iterator[None]:
    """Let `make(class, settings)` make all clients for that `bootstrap` while the block lasts, in this process alone:
    for tests and simulations."""
    _MAKERS[bootstrap] = make
    try:
        yield
    finally:
        del _MAKERS[bootstrap]
        KafkaControl.forget(bootstrap)


def made(kind: Callable[[dict[str, Any]], Any], conf: dict[str, Any], troubles: Troubles) -> Any:
    """A client of librdkafka. Raises ConfigInvalid when it refuses its settings."""
    if (make := _MAKERS.get(str(conf.get("bootstrap.servers")))) is not None:
        return make(kind, {**conf, "error_cb": troubles})
    try:
        return kind({**conf, "error_cb": troubles})
    except KafkaException as error:
        said = error.args[0].str().rstrip()
    except (AttributeError, TypeError, ValueError) as error:  # what Python's part of the client raises
        said = str(error)
    raise ConfigInvalid(f"Kafka's client refuses its settings: {said}; correct `client`")
