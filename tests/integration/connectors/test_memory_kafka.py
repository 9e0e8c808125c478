"""The Kafka in memory against a real broker: the same random history on both, and the same answers, errors, records."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from scribengin.connectors.kafka.client.client import Troubles
from scribengin.connectors.kafka.client.failures import failure
from scribengin.testing.conformance.kafka import KafkaClients
from scribengin.testing.memory.kafka import MemoryKafka
from scribengin.testing.memory.registry import Loss
from scribengin.testing.waiting import wait_until
from scribengin_dev.servers.kafka import KafkaServer

STEPS = 40
_LIMIT_S = 60.0


class Side:
    """A cluster, its topic, and producers of one transactional id that follow each other."""

    def __init__(self, bootstrap: str) -> None:
        self.clients = KafkaClients(bootstrap, partitions=2)
        self.producers: list[Any] = [self.clients.producer()]
        self._open: set[int] = set()

    def act(self, chance: random.Random, step: int) -> object:
        """The next step of a history, and what came of it."""
        number = chance.choice((len(self.producers) - 1,) * 5 + tuple(range(len(self.producers))))
        producer, partition = self.producers[number], chance.randrange(2)
        acts: list[Callable[[], object]] = [
            *[lambda: self._stage(number, producer, partition, b"%d" % step)] * 4,
            lambda: self.clients.move(producer, step, f"step {step}") if number in self._open else None,
            *[lambda: self._end(number, producer.commit_transaction)] * 3,
            lambda: self._end(number, producer.abort_transaction),
            self._follow,
        ]
        try:
            return chance.choice(acts)()
        except KafkaException as error:
            self._open.discard(number)
            return type(failure(error, self.clients.config.bootstrap, "a step", Troubles())).__name__

    def seen(self) -> object:
        """What readers see, and what the group has committed, once all that is decided has its marks."""
        moved = self.clients.moved() if not self._open else None
        return self.clients.seen(0), self.clients.seen(1), self.clients.ends(), moved

    def _stage(self, number: int, producer: Any, partition: int, value: bytes) -> None:
        if number in self._open:
            producer.produce(self.clients.topic, value, None, partition)
            assert producer.flush(_LIMIT_S) == 0
        else:
            self._open.add(number)
            self.clients.stage(producer, value, partition=partition)

    def _end(self, number: int, end: Callable[[float], object]) -> None:
        if number in self._open:
            end(_LIMIT_S)
            self._open.discard(number)

    def _follow(self) -> None:
        self.producers.append(self.clients.producer())
        self._open.clear()


@pytest.mark.parametrize("seed", [0, *[pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 30)]])
def test_the_same_history_has_the_same_answers_and_is_seen_alike(kafka: KafkaServer, seed: int) -> None:
    with MemoryKafka("in-memory:4").serving() as cluster:
        real, memory = Side(kafka.bootstrap), Side(cluster.bootstrap)
        chances = random.Random(seed), random.Random(seed)
        for step in range(STEPS):
            answers = real.act(chances[0], step), memory.act(chances[1], step)
            assert answers[0] == answers[1], f"step {step}"
            if step % 5 == 0 or step == STEPS - 1:
                expected = memory.seen()
                wait_until(lambda: real.seen() == expected, 120, f"{expected} after step {step}")  # noqa: B023


def test_late_marks_hold_readers_and_the_next_producer_back_and_no_decision_changes() -> None:
    with MemoryKafka("in-memory:4").serving() as cluster:
        cluster.mark_after_s = lambda _id, place: 3600.0 if place.startswith("group/") else 0.0
        side = KafkaClients(cluster.bootstrap)
        producer = side.producer()
        side.stage(producer, b"1")
        side.move(producer, 1, "decided")
        producer.commit_transaction(_LIMIT_S)
        assert side.seen() == [(0, b"1")]
        cluster.patience_s = 0.1
        for act in (side.producer, side.moved):
            with pytest.raises(KafkaException, match="_TIMED_OUT"):
                act()
        cluster.write_marks()
        side.producer()
        assert side.moved() == (1, "decided")


@pytest.mark.parametrize("loss", ["request", "reply"])
def test_a_commit_whose_answer_is_lost_is_unknown_and_the_next_producer_finds_out(loss: Any) -> None:
    with MemoryKafka("in-memory:4").serving() as cluster:
        side = KafkaClients(cluster.bootstrap)
        producer = side.producer()
        side.stage(producer, b"1")
        side.move(producer, 1, "decided")
        cluster.lose = lambda act, _name: loss if act == "commit" else None
        with pytest.raises(KafkaException, match="_TIMED_OUT"):
            producer.commit_transaction(_LIMIT_S)
        side.producer()
        assert (side.moved()[0] == 1, side.seen()) == ((True, [(0, b"1")]) if loss == "reply" else (False, []))


def test_a_record_whose_answer_is_lost_is_sent_again_and_there_once() -> None:
    with MemoryKafka("in-memory:4").serving() as cluster:
        side = KafkaClients(cluster.bootstrap)
        producer = side.producer()
        producer.begin_transaction()
        losses: list[Loss | None] = ["reply", "request"]
        cluster.lose = lambda _act, _name: losses.pop() if losses else None
        for value in (b"1", b"2"):
            producer.produce(side.topic, value, None, 0)
        producer.commit_transaction(_LIMIT_S)
        assert [value for _offset, value in side.seen()] == [b"1", b"2"]


@pytest.mark.parametrize("loss", ["request", "reply"])
@pytest.mark.parametrize("lost", ["produce", "send_offsets"])
def test_a_transaction_is_aborted_whose_first_answer_was_lost_and_the_next_one_commits(loss: Any, lost: str) -> None:
    with MemoryKafka("in-memory:4").serving() as cluster:
        side = KafkaClients(cluster.bootstrap)
        producer = side.producer()
        side.stage(producer, b"1")
        producer.commit_transaction(_LIMIT_S)
        producer.begin_transaction()
        cluster.lose = lambda act, _name: loss if act == lost else None
        if lost == "produce":
            producer.produce(side.topic, b"aborted", None, 0)
        else:
            with pytest.raises(KafkaException, match="_TIMED_OUT"):
                side.move(producer, 1, "aborted")
        cluster.lose = lambda _act, _name: None
        producer.abort_transaction(_LIMIT_S)
        side.stage(producer, b"2")
        producer.commit_transaction(_LIMIT_S)
        assert [value for _offset, value in side.seen()] == [b"1", b"2"]


def test_a_cluster_that_is_away_answers_nobody_until_it_is_back() -> None:
    with MemoryKafka("in-memory:4", patience_s=0.1).serving() as cluster:
        side = KafkaClients(cluster.bootstrap)
        producer = side.producer()
        producer.begin_transaction()
        cluster.away = True
        producer.produce(side.topic, b"1", None, 0)
        assert producer.flush(_LIMIT_S) == 1
        with pytest.raises(KafkaException, match="_TIMED_OUT"):
            producer.commit_transaction(_LIMIT_S)
        cluster.away = False
        producer.commit_transaction(_LIMIT_S)
        assert side.seen() == [(0, b"1")]


def test_a_record_may_wait_in_its_client_until_that_is_flushed() -> None:
    with MemoryKafka("in-memory:4").serving() as cluster:
        cluster.create("out")
        cluster.holds = lambda _topic: True
        producer = cluster.client(Producer, {})
        producer.produce("out", b"1", None, 0)
        assert (cluster.end("out"), len(producer)) == (0, 1)
        producer.flush()
        assert (cluster.visible("out"), len(producer)) == ([b"1"], 0)
