"""What a client says by the way explains what fails next, and nothing that fails long after it was answered again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from scribengin.connectors.kafka.client.client import KafkaControl, made_by
from scribengin.connectors.kafka.client.connection import KafkaConnectionConfig
from scribengin.connectors.kafka.sink.config import KafkaSinkConfig
from scribengin.connectors.kafka.sink.topic import Topic
from scribengin.connectors.kafka.sink.transaction import KafkaTransaction, TransactionDescriptor
from scribengin.connectors.kafka.source import reading
from scribengin.connectors.kafka.source.reading import KafkaSplit, PartitionConsumer, Reading
from scribengin.errors import ConfigInvalid, SystemUnreachable
from scribengin.testing.clocks import ManualClock
from scribengin.testing.memory.kafka import MemoryKafka

WHERE = "troubles:1"
LATE = KafkaException(KafkaError(KafkaError._TIMED_OUT))
DENIED = KafkaError(KafkaError._AUTHENTICATION, "no such user")


class Client:
    """Each kind of client, which answers or does not, and tells its troubles when it is polled."""

    def __init__(self, clock: ManualClock) -> None:
        self.answers = True
        self.untold: list[KafkaError] = []
        self.told: Callable[[KafkaError], None] = lambda _error: None
        self.messages: list[Message] = []
        self._clock = clock

    def made(self, _kind: type, conf: dict[str, Any]) -> Client:
        self.told = conf["error_cb"]
        return self

    def poll(self, timeout_s: float) -> Message | None:
        while self.untold:
            self.told(self.untold.pop(0))
        if self.messages:
            return self.messages.pop(0)
        self._clock.advance_s(timeout_s)
        return None

    def _expect(self) -> None:
        if not self.answers:
            raise LATE

    def list_topics(self, **_limits: object) -> Any:
        self._expect()
        return SimpleNamespace(topics={}, cluster_id="c", brokers={})

    def list_offsets(self, asked: dict[TopicPartition, object], **_limits: object) -> dict[TopicPartition, Future[Any]]:
        return {place: self._future(SimpleNamespace(offset=5)) for place in asked}

    def describe_topics(self, _topics: object, **_limits: object) -> dict[str, Future[Any]]:
        return {"t": self._future(SimpleNamespace(topic_id="id"))}

    def _future(self, answer: object) -> Future[Any]:
        future: Future[Any] = Future()
        if self.answers:
            future.set_result(answer)
        else:
            future.set_exception(LATE)
        return future

    def assign(self, _places: Sequence[TopicPartition]) -> None:
        """It has one partition."""

    def consume(self, _count: int, _timeout_s: float) -> list[Message]:
        return []


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    clock = ManualClock()
    monkeypatch.setattr(reading, "SYSTEM_CLOCK", clock)
    made = Client(clock)
    with made_by(WHERE, made.made):
        yield made


def expect_believed_while_it_is_news(client: Client, ask: Callable[[], object]) -> None:
    """Trouble and then no answer: that is why. Trouble, an answer, and later none: brokers are away."""
    ask()
    client.untold, client.answers = [DENIED], False
    with pytest.raises(ConfigInvalid, match="no such user"):
        ask()
    client.untold, client.answers = [DENIED], True
    ask()
    client.answers = False
    with pytest.raises(SystemUnreachable):
        ask()


def test_a_cluster_that_has_answered_since_is_away_and_refuses_nothing(client: Client) -> None:
    control = KafkaControl.of(KafkaConnectionConfig(bootstrap=WHERE))
    expect_believed_while_it_is_news(client, control.partitions)
    client.answers = True

    def ends() -> None:
        found = control.ends([("t", 0)], "read_committed")["t", 0]
        if isinstance(found, Exception):
            raise found

    expect_believed_while_it_is_news(client, ends)
    client.answers = True
    expect_believed_while_it_is_news(client, lambda: control.written(("t", 0)))
    client.answers = True
    expect_believed_while_it_is_news(client, lambda: control.offset_at(("t", 0), 1, "read_committed"))
    control.release()


def test_brokers_that_have_told_a_sink_of_its_topic_since_are_away(client: Client) -> None:
    expect_believed_while_it_is_news(client, Topic(KafkaConnectionConfig(bootstrap=WHERE), "t").cluster_id)


def test_brokers_that_have_sent_records_since_are_away(client: Client) -> None:
    of = Reading(KafkaConnectionConfig(bootstrap=WHERE), "read_committed", "keep")
    splits = [KafkaSplit(of, "t", "", 0, n, n + 1, 1, 1) for n in range(10)]

    def read() -> None:
        split = splits.pop(0)
        client.messages = [Message(topic="t", partition=0, offset=split.start, value=b"1")] if client.answers else []
        consumer.seek(split)
        list(consumer.read(split.end))

    consumer = PartitionConsumer(splits[0])
    expect_believed_while_it_is_news(client, read)


def test_brokers_that_have_answered_a_transaction_since_are_away() -> None:
    kafka = MemoryKafka(WHERE)
    config = KafkaSinkConfig(kind="kafka", bootstrap=WHERE, topic="t")
    names = TransactionDescriptor(transactional_id="x", group="x")
    with kafka.serving():
        made = KafkaTransaction(config, names, dataflow="f", task="k", bytes_max=1000, clock=ManualClock())
        with closing(made) as transaction:
            made._troubles(DENIED)
            transaction.recover()
            kafka.lose = lambda _act, _name: "request"
            with pytest.raises(SystemUnreachable):
                transaction.recover()
            made._troubles(DENIED)
            with pytest.raises(ConfigInvalid, match="no such user"):
                transaction.recover()
