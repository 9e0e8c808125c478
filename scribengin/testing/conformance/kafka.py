"""What the engine expects of Kafka, at the seam where it meets it: the client.

`check_kafka` holds whatever `client.made` makes clients of against that: real brokers, and `MemoryKafka`. Topics are
made as they are needed, and stay.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.threads import pause
from scribengin.connectors.kafka.client.client import KafkaControl, Troubles, made
from scribengin.connectors.kafka.client.connection import KafkaConnectionConfig, settings
from scribengin.connectors.kafka.client.failures import failure
from scribengin.connectors.kafka.sink.config import TopicConfig
from scribengin.connectors.kafka.sink.topic import Topic
from scribengin.errors import DecisionUnknown, RecordTooLarge, ScribenginError
from scribengin.testing.conformance.expecting import expect, expect_equal, promised

_LIMIT_S = 60.0
_PATIENCE_S = 180.0
_PAUSE_S = 0.05
_POLL_S = 0.2


class KafkaClients:
    """Clients of one cluster, as the engine makes them, and one topic."""

    def __init__(self, bootstrap: str, *, partitions: int = 1) -> None:
        """Makes the topic. Raises as `Topic.create`."""
        self.config = KafkaConnectionConfig(bootstrap=bootstrap)
        self.topic = f"kafka-{uuid.uuid4().hex[:12]}"
        self.group = f"group-{self.topic}"
        Topic(self.config, self.topic).create(TopicConfig(partitions=partitions))

    def producer(self, timeout_s: float = 60.0, *, initialised: bool = True) -> Any:
        """A producer of the topic's transactional id, which has fenced those before it."""
        mine = {"transactional_id": self.topic, "transaction_timeout_ms": int(timeout_s * 1000), "linger_ms": 0}
        producer = made(Producer, settings(self.config, "checking", **mine), Troubles())
        if initialised:
            producer.init_transactions(_LIMIT_S)
        return producer

    def consumer(self, isolation: str = "read_committed") -> Any:
        """A consumer that is assigned nothing, of the group."""
        mine = {"group_id": self.group, "isolation_level": isolation, "enable_auto_commit": False}
        more = {"enable_partition_eof": True, "auto_offset_reset": "error", "fetch_wait_max_ms": 10}
        return made(Consumer, settings(self.config, "checking", **mine, **more), Troubles())

    def stage(self, producer: Any, *values: bytes, partition: int = 0) -> None:
        """Open a transaction, and write to it."""
        producer.begin_transaction()
        for value in values:
            producer.produce(self.topic, value, None, partition)
        expect_equal(producer.flush(_LIMIT_S), 0, "what flush() leaves")

    def move(self, producer: Any, offset: int, text: str) -> None:
        """Let the open transaction move the group's offset of partition 0."""
        with closing(self.consumer()) as member:
            place = [TopicPartition(self.topic, 0, offset, text)]
            producer.send_offsets_to_transaction(place, member.consumer_group_metadata(), _LIMIT_S)

    def moved(self) -> tuple[int, str]:
        """What the group has committed of partition 0."""
        with closing(self.consumer()) as member:
            (found,) = member.committed([TopicPartition(self.topic, 0)], _LIMIT_S)
            return found.offset, (found.metadata or "").rstrip("\0")

    def ends(self) -> tuple[int, int, int]:
        """Of partition 0: where it begins, and where it ends for readers of committed records and for all."""
        control = KafkaControl.of(self.config)
        try:
            found = control.ends([(self.topic, 0)], "read_committed")[self.topic, 0]
            if isinstance(found, ScribenginError):
                raise found
            return found.begin, found.end, control.written((self.topic, 0))
        finally:
            control.release()

    def seen(self, partition: int = 0, isolation: str = "read_committed") -> list[tuple[int, bytes | None]]:
        """Offsets and values that a reader gets before it is told that this is the end."""
        found: list[tuple[int, bytes | None]] = []
        with closing(self.consumer(isolation)) as consumer:
            consumer.assign([TopicPartition(self.topic, partition, OFFSET_BEGINNING)])
            for message in _messages(consumer):
                if message.error() is None:
                    found.append((message.offset(), message.value()))
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    break
                else:
                    raise KafkaException(message.error())
        return found

    def expect_seen(self, wanted: Sequence[bytes], what: str, partition: int = 0) -> None:
        """Wait until readers of committed records see just that: a mark may come late."""
        _await(lambda: [value for _offset, value in self.seen(partition)], list(wanted), f"what is seen {what}")

    def raised_by(self, act: Callable[[], object]) -> type[ScribenginError] | None:
        """The engine's own error for what is raised."""
        try:
            act()
        except KafkaException as error:
            return type(failure(error, self.config.bootstrap, "checking", Troubles()))
        return None


def check_kafka(bootstrap: str) -> None:
    """Raise AssertionError, with a sentence that says what is not as the engine expects it of Kafka."""
    for check in KAFKA_CHECKS:
        with promised(check):
            check(bootstrap)


def what_is_committed_is_seen_and_what_is_aborted_is_not(bootstrap: str) -> None:
    """In all partitions; and each mark takes an offset, over which readers go."""
    clients = KafkaClients(bootstrap, partitions=2)
    producer = clients.producer()
    clients.stage(producer, b"1", b"2")
    producer.produce(clients.topic, b"other", None, 1)
    producer.commit_transaction(_LIMIT_S)
    clients.stage(producer, b"aborted")
    producer.abort_transaction(_LIMIT_S)
    clients.stage(producer, b"3")
    producer.commit_transaction(_LIMIT_S)
    clients.expect_seen([b"1", b"2", b"3"], "after a commit, an abort and a commit")
    clients.expect_seen([b"other"], "in the other partition", 1)
    expect_equal(clients.seen(), [(0, b"1"), (1, b"2"), (5, b"3")], "records and their offsets, with marks between")
    expect_equal(clients.ends(), (0, 7, 7), "where the partition begins and ends")
    every = [value for _offset, value in clients.seen(isolation="read_uncommitted")]
    expect_equal(every, [b"1", b"2", b"aborted", b"3"], "what is seen by readers of everything")


def an_open_transaction_holds_readers_of_committed_records_back(bootstrap: str) -> None:
    """Also from what others have written behind it."""
    clients = KafkaClients(bootstrap)
    producer = clients.producer()
    clients.stage(producer, b"1")
    expect_equal(clients.ends(), (0, 0, 1), "where a partition ends while its first record is not committed")
    expect_equal(clients.seen(), [], "what is seen of an open transaction")
    producer.commit_transaction(_LIMIT_S)
    clients.expect_seen([b"1"], "once it is committed")


def offsets_move_with_the_transaction_or_not_at_all(bootstrap: str) -> None:
    """With the text beside them, which is where the engine's decisions stand."""
    clients = KafkaClients(bootstrap)
    producer = clients.producer()
    expect(clients.moved()[0] < 0, "a group that committed nothing has no offset")
    for number, commits in ((7, True), (8, False)):
        clients.stage(producer, b"%d" % number)
        clients.move(producer, number, f"round {number}")
        (producer.commit_transaction if commits else producer.abort_transaction)(_LIMIT_S)
        expect_equal(clients.moved(), (7, "round 7"), "a group's offset and its text")


def a_newer_producer_fences_the_older_one_and_aborts_what_it_left(bootstrap: str) -> None:
    """Whatever the older one does next, it is told, and nothing of it is seen."""
    clients = KafkaClients(bootstrap)
    older = clients.producer()
    clients.stage(older, b"left")
    clients.move(older, 1, "left")
    newer = clients.producer()
    expect(clients.moved()[0] < 0, "an offset of a transaction that was left is not moved once another was fenced")
    told = clients.raised_by(lambda: older.commit_transaction(_LIMIT_S))
    expect_equal(told, DecisionUnknown, "how the engine takes it that a fenced producer commits")
    told = clients.raised_by(older.begin_transaction)
    expect_equal(told, DecisionUnknown, "how the engine takes it that a fenced producer goes on")
    clients.stage(newer, b"new")
    newer.commit_transaction(_LIMIT_S)
    clients.expect_seen([b"new"], "after an older producer was fenced")


def a_fenced_producer_that_begins_anew_is_told_when_it_flushes(bootstrap: str) -> None:
    """`begin_transaction` asks nobody, and `produce` waits for nobody."""
    clients = KafkaClients(bootstrap)
    older = clients.producer()
    clients.producer()
    older.begin_transaction()
    older.produce(clients.topic, b"late", None, 0)
    told = clients.raised_by(lambda: older.flush(_LIMIT_S))
    expect_equal(told, DecisionUnknown, "how the engine takes it that a fenced producer flushes")
    expect_equal(clients.ends(), (0, 0, 0), "where the partition ends")


def what_was_decided_stands_when_its_producer_is_fenced(bootstrap: str) -> None:
    """Though its marks may be on their way: `init_transactions` waits for them."""
    clients = KafkaClients(bootstrap)
    older = clients.producer()
    clients.stage(older, b"decided")
    clients.move(older, 1, "decided")
    older.commit_transaction(_LIMIT_S)
    clients.producer()
    expect_equal(clients.moved(), (1, "decided"), "the group's offset after a commit and another producer")
    expect_equal(clients.seen(), [(0, b"decided")], "what is seen after a commit and another producer")


def a_transaction_that_is_open_for_too_long_is_aborted(bootstrap: str) -> None:
    """By the brokers, in their own time; its producer is told when it goes on."""
    clients = KafkaClients(bootstrap)
    producer = clients.producer(timeout_s=1.0)
    clients.stage(producer, b"late")
    _await(lambda: clients.ends()[1], 2, "where the partition ends for readers of committed records")
    expect_equal(clients.seen(), [], "what is seen of a transaction that took too long")
    told = clients.raised_by(lambda: producer.commit_transaction(_LIMIT_S))
    expect_equal(told, DecisionUnknown, "how the engine takes it that it commits now")


def a_transaction_that_wrote_nothing_ends_at_once(bootstrap: str) -> None:
    """And what was not begun cannot be written to."""
    clients = KafkaClients(bootstrap)
    producer = clients.producer()
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        end(_LIMIT_S)
    expect(
        clients.raised_by(lambda: producer.produce(clients.topic, b"1", None, 0)) is not None, "produce() needs begin"
    )
    expect_equal(clients.ends(), (0, 0, 0), "where the partition ends")


def a_record_that_is_too_large_is_said_to_be_and_its_transaction_can_be_aborted(bootstrap: str) -> None:
    """The next one commits."""
    clients = KafkaClients(bootstrap)
    producer = clients.producer()
    producer.begin_transaction()

    def write() -> None:
        producer.produce(clients.topic, b"x" * 2_000_000, None, 0)
        producer.flush(_LIMIT_S)
        producer.commit_transaction(_LIMIT_S)

    expect_equal(clients.raised_by(write), RecordTooLarge, "how the engine takes it")
    producer.abort_transaction(_LIMIT_S)
    clients.stage(producer, b"small")
    producer.commit_transaction(_LIMIT_S)
    clients.expect_seen([b"small"], "after a record that was too large")


def a_reader_is_told_of_ends_and_of_places_that_are_none(bootstrap: str) -> None:
    """An end again whenever it has read more; a place that is not there as an error, and nothing else."""
    clients = KafkaClients(bootstrap)
    producer = clients.producer()
    with closing(clients.consumer()) as consumer:
        consumer.assign([TopicPartition(clients.topic, 0, 0)])
        told = _messages(consumer)
        expect_equal(next(told).error().code(), KafkaError._PARTITION_EOF, "what a reader of nothing is told")
        clients.stage(producer, b"1")
        producer.commit_transaction(_LIMIT_S)
        message = next(each for each in told if each.error() is None)
        expect_equal((message.offset(), message.value()), (0, b"1"), "what it gets next")
        last = next(told)
        expect_equal((last.error().code(), last.offset()), (KafkaError._PARTITION_EOF, 2), "what it is told then")
    with closing(clients.consumer()) as consumer:
        consumer.assign([TopicPartition(clients.topic, 0, 100)])
        told = _messages(consumer)
        expect_equal(next(told).error().code(), KafkaError._AUTO_OFFSET_RESET, "what a reader behind the end is told")


KAFKA_CHECKS: tuple[Callable[[str], None], ...] = (
    what_is_committed_is_seen_and_what_is_aborted_is_not,
    an_open_transaction_holds_readers_of_committed_records_back,
    offsets_move_with_the_transaction_or_not_at_all,
    a_newer_producer_fences_the_older_one_and_aborts_what_it_left,
    a_fenced_producer_that_begins_anew_is_told_when_it_flushes,
    what_was_decided_stands_when_its_producer_is_fenced,
    a_transaction_that_is_open_for_too_long_is_aborted,
    a_transaction_that_wrote_nothing_ends_at_once,
    a_record_that_is_too_large_is_said_to_be_and_its_transaction_can_be_aborted,
    a_reader_is_told_of_ends_and_of_places_that_are_none,
)
"""What `check_kafka` checks, each with a topic of its own."""


def _messages(consumer: Any) -> Any:
    """What comes, waited for."""
    deadline_s = SYSTEM_CLOCK.monotonic_s() + _PATIENCE_S
    while True:
        message = consumer.poll(_POLL_S)
        if message is not None:
            yield message
        expect(SYSTEM_CLOCK.monotonic_s() < deadline_s, "a reader gets a message or is told of the end")


def _await(look: Callable[[], object], wanted: object, what: str) -> None:
    deadline_s = SYSTEM_CLOCK.monotonic_s() + _PATIENCE_S
    while (found := look()) != wanted and SYSTEM_CLOCK.monotonic_s() < deadline_s:
        pause(_PAUSE_S)
    expect_equal(found, wanted, what)
