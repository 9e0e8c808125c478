"""What the engine expects of Kafka at its client: of real brokers, and of the Kafka in memory."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from scribengin.testing.conformance.kafka import KAFKA_CHECKS, check_kafka
from scribengin.testing.memory.kafka import MemoryKafka
from scribengin_dev.servers.kafka import KafkaServer


@pytest.fixture(
    params=["in memory", "marks come late", "brokers fail", pytest.param("a broker", marks=pytest.mark.servers)]
)
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    """A cluster's address."""
    if request.param == "a broker":
        kafka: KafkaServer = request.getfixturevalue("kafka")
        yield kafka.bootstrap
        return
    with MemoryKafka("in-memory:1", brokers=3).serving() as memory:
        chance = random.Random(1)
        if request.param == "brokers fail":
            memory.lose = lambda _act, _name: let_another_one_fail(memory, chance)
        if request.param == "marks come late":
            memory.mark_after_s = lambda _id, _place: chance.choice((0.0, 0.1, 0.3))
        yield memory.bootstrap


def let_another_one_fail(memory: MemoryKafka, chance: random.Random) -> None:
    """At a request: who failed before is back, and one of the others fails, some of them once they have done it."""
    for broker in {1, 2, 3} - memory.brokers.running:
        memory.come_back(broker)
    memory.fail(chance.randint(1, 3), after_next=chance.random() < 0.7)


@pytest.mark.parametrize("check", KAFKA_CHECKS, ids=lambda check: check.__name__)
def test_kafka_is_as_the_engine_expects_it(check: Callable[[str], None], bootstrap: str) -> None:
    check(bootstrap)


def test_a_kafka_that_is_not_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryKafka, "committed", lambda self, group, places, *, stable: [(1, "never said")])
    with MemoryKafka("in-memory:1").serving() as memory, pytest.raises(AssertionError, match="committed nothing has"):
        check_kafka(memory.bootstrap)
