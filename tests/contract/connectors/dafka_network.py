"""A network of Dafka's roles that sources and sinks are tested on."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any

from scribengin.connectors.dafka.config import DafkaSourceConfig
from scribengin.connectors.dafka.source import DafkaSource
from scribengin.dafka import DafkaFollower, DafkaPartition, DafkaProducer, DafkaStore, DafkaTower
from scribengin.log import LogNamespace
from scribengin.testing.waiting import wait_until
from tests.integration.dafka.dafka_roles import config_of

TOPIC = "flights"


class Network:
    """A tower, stores and producers, and the sources that are open."""

    def __init__(self, tower: DafkaTower, logs: LogNamespace) -> None:
        self.tower = tower
        self.logs = logs
        self.config = config_of(tower)
        self.producers: dict[str, DafkaProducer] = {}
        self.published: dict[DafkaPartition, int] = {}
        self.sources: list[DafkaSource] = []
        self.opened = ExitStack()

    @property
    def beacon(self) -> dict[str, Any]:
        """How a source or sink finds the others: often, so that it knows soon who is there."""
        return {**self.config.beacon.model_dump(), "interval": 40}

    def store(self, prefix: str = "dafka") -> DafkaStore:
        store = DafkaStore(self.logs, self.config, prefix=prefix)
        self.opened.callback(store.close)
        return store

    def producer(self) -> str:
        """A new one's stream."""
        producer = DafkaProducer(TOPIC, self.config)
        self.opened.callback(producer.close, 60.0)
        stream = f"{TOPIC}/{producer.partition.address}"
        self.producers[stream] = producer
        return stream

    def source(self, forgets_after_s: float | None = None, **settings: Any) -> DafkaSource:
        """One that forgets producers sooner than a user may say, where a test waits for that."""
        said = {"kind": "dafka", "topic": TOPIC, "beacon": self.beacon, **settings}
        config = DafkaSourceConfig.parse(said, source="a test")
        if forgets_after_s is not None:
            config = config.model_copy(update={"forget_after_s": forgets_after_s})
        source = DafkaSource("in", config)
        self.sources.append(source)
        self.opened.callback(source.close)
        return source

    def settled(self, **settings: Any) -> DafkaSource:
        """A source that knows already of all that was published, however late it is told."""
        source = self.source(**settings)
        for partition, end in self.published.items():
            _wait_until_known(source.follower(), partition, end)
        return source

    def publish(self, stream: str, payloads: Sequence[bytes]) -> Future[range]:
        """Done when stores have them."""
        producer = self.producers[stream]
        self.published[producer.partition] = self.published.get(producer.partition, 0) + len(payloads)
        return producer.publish_many(payloads)

    def append(self, stream: str, payloads: Sequence[bytes]) -> None:
        """Stores have them when this returns, and all sources that are open know of them."""
        done = self.publish(stream, payloads).result(60)
        for source in self.sources:
            made = source._made
            if made is not None and not made._closing:
                _wait_until_known(made, self.producers[stream].partition, done.stop)


def _wait_until_known(follower: DafkaFollower, partition: DafkaPartition, end: int) -> None:
    wait_until(lambda: follower.ends().get(partition, 0) >= end, what=f"{partition} to be known up to {end}")
