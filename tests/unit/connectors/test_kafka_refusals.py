"""Rights that the brokers take away in the middle of a round: what is told names the transaction and its topic, nothing
is lost, and who is given the right back goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

from scribengin.base.commit_log import Decision
from scribengin.connectors import Environment, open_sink
from scribengin.connectors.contract import Attempt, Sink
from scribengin.connectors.kafka.sink.config import KafkaSinkConfig
from scribengin.connectors.kafka.sink.transaction import KafkaTransaction
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.errors import ConfigInvalid, DecisionUnknown, ScribenginError
from scribengin.testing.memory.kafka import MemoryKafka
from scribengin_registry.contract import Registry

OF_TOPIC = KafkaError.TOPIC_AUTHORIZATION_FAILED
OF_GROUP = KafkaError.GROUP_AUTHORIZATION_FAILED
OF_TRANSACTION = KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
OF_CLUSTER = KafkaError.CLUSTER_AUTHORIZATION_FAILED


class Guarded:
    """A cluster that refuses one kind of request from some time on."""

    def __init__(self, kafka: MemoryKafka, sink: Sink) -> None:
        self.kafka = kafka
        self.sink = sink
        (self.stream,) = sink.streams(1)
        sink.create([self.stream])

    def owner(self) -> KafkaTransaction:
        made = self.sink.open_coordinator(self.stream, "task-0")
        assert isinstance(made, KafkaTransaction)
        return made

    def refuse(self, act: str, code: int) -> None:
        def lose(asked: str, _name: str) -> None:
            if asked == act:
                raise KafkaException(KafkaError(code))

        self.kafka.lose = lose

    def permit(self) -> None:
        self.kafka.lose = lambda _act, _name: None

    def round(self, owner: KafkaTransaction) -> None:
        """The first one. Its staged records are rolled back where it fails, if that may be."""
        decision = Decision(coordinator=owner.name, epoch=1, round=1)
        with closing(self.sink.open_writer(self.stream, Attempt("owner", 1, "/commit-log", owner))) as writer:
            writer.write(pa.record_batch({"payload": pa.array([b"1"], pa.binary())}))
            writer.prepare_commit()
            owner.prepare(decision)
            owner.commit()


@pytest.fixture
def guarded(memory_registry: Registry) -> Iterator[Guarded]:
    with MemoryKafka("guarded:1").serving() as kafka:
        kafka.create("out")
        value = {"kind": "kafka", "bootstrap": "guarded:1", "topic": "out"}
        config = KafkaSinkConfig.parse(value, source="a test")
        sink = open_sink("out", config, Environment(registry=memory_registry, dataflow="flow", nodes=STREAM_NODES))
        yield Guarded(kafka, sink)


def take_over(owner: KafkaTransaction) -> None:
    owner.recover()
    owner.establish(Decision(coordinator=owner.name, epoch=1, round=0))


def expect_named(error: ScribenginError, owner: KafkaTransaction) -> None:
    assert f" (transaction and group {owner.name}, topic out): " in str(error)
    assert str(error).endswith("; correct the source's or sink's `client` settings, or what the cluster permits")
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("act", "code", "raised"),
    [
        ("produce", OF_TOPIC, ConfigInvalid),
        ("send_offsets", OF_GROUP, ConfigInvalid),
        ("send_offsets", OF_TRANSACTION, ConfigInvalid),
        ("send_offsets", OF_CLUSTER, ConfigInvalid),
        ("commit", OF_TRANSACTION, DecisionUnknown),
    ],
)
def test_what_is_refused_in_a_round_is_named_and_done_again(
    guarded: Guarded, act: str, code: int, raised: type[ScribenginError]
) -> None:
    with closing(guarded.owner()) as owner:
        take_over(owner)
        guarded.refuse(act, code)
        with pytest.raises(raised) as refused:
            guarded.round(owner)
        expect_named(refused.value, owner)
    guarded.permit()
    with closing(guarded.owner()) as owner:
        found = owner.recover()
        assert found is not None
        assert found.round == 0
        guarded.round(owner)
    assert guarded.kafka.visible("out") == [b"1"]


@pytest.mark.parametrize(
    ("act", "code"),
    [
        ("init_transactions", OF_TRANSACTION),
        ("init_transactions", OF_CLUSTER),
        ("committed", OF_GROUP),
        ("commit", OF_TRANSACTION),
    ],
)
def test_what_is_refused_to_who_takes_over_is_named(guarded: Guarded, act: str, code: int) -> None:
    guarded.refuse(act, code)
    with closing(guarded.owner()) as owner:
        with pytest.raises(ConfigInvalid) as refused:
            take_over(owner)
        expect_named(refused.value, owner)


def test_a_topic_that_may_not_be_seen_may_be_there(guarded: Guarded) -> None:
    guarded.kafka.delete("out")
    with pytest.raises(ConfigInvalid, match=r"no topic out .*or permit the sink's user to see it$"):
        guarded.owner()


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_a_sink_whose_brokers_are_another_cluster_now_is_refused(memory_registry: Registry, guarantee: str) -> None:
    """What it has written, and the decisions of its rounds, are in the one that it was made for."""
    environment = Environment(registry=memory_registry, dataflow="flow", nodes=STREAM_NODES)
    here, there = MemoryKafka("here:1"), MemoryKafka("there:1")
    with here.serving(), there.serving():
        for kafka in (here, there):
            kafka.create("out")
        sinks = [
            open_sink("out", KafkaSinkConfig.parse({**value, "topic": "out"}, source="a test"), environment)
            for value in ({"kind": "kafka", "bootstrap": at, "guarantee": guarantee} for at in ("here:1", "there:1"))
        ]
        (stream,) = sinks[0].streams(1)
        sinks[0].create([stream])
        said = r"^sink 'out': the brokers at there:1 are the cluster .*, and its tasks write to .*; correct"
        if guarantee == "exactly_once":
            with pytest.raises(ConfigInvalid, match=said):
                sinks[1].open_coordinator(stream, "task-0")
        with pytest.raises(ConfigInvalid, match=said):
            sinks[1].open_writer(stream, Attempt("owner", 1, "/commit-log", None))
