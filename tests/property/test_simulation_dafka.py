"""Our own sink of Dafka in simulated clusters: rounds wait in logs on a disk in memory whose power fails, and stores
are a table that takes a record once, under one sequence.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import pytest

from scribengin.connectors import Environment
from scribengin.connectors.contract import Sink, SinkStreamDescriptor
from scribengin.connectors.dafka.config import DafkaSinkConfig
from scribengin.connectors.dafka.sink import DafkaSink
from scribengin.connectors.log.holds import Holds
from scribengin.dafka import DafkaPartition
from scribengin.errors import DataflowError
from scribengin.log import LogNamespace
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.segments import MEMORY_STORE
from scribengin.testing.simulation import SinkSystem, simulate_sink

STOPS = ("dafka.publish:before", "dafka.publish:after")


class DafkaInMemory(SinkSystem):
    """Stores take what follows what they have, acknowledge it, and hold whoever publishes to the bytes of before."""

    def __init__(self) -> None:
        self.disk = MemoryDisk("dafka")
        self.stored: defaultdict[DafkaPartition, list[bytes]] = defaultdict(list)
        self._bound = False

    def open_sink(self, name: str, environment: Environment) -> Sink:
        if not self._bound:
            self._bound = True
            LogNamespace.bind("/logs", self.disk.name, registry=environment.registry, store=MEMORY_STORE)
        config = DafkaSinkConfig.parse({"kind": "dafka", "topic": "out"}, source="a test")
        registry, holds = environment.registry, Holds(environment.nodes)
        return DafkaSink(name, config, registry, environment.clock, holds, lambda _name, _config: _Publisher(self))

    def read(self, sink: Sink, stream: SinkStreamDescriptor) -> list[bytes]:
        assert isinstance(sink, DafkaSink)
        return list(self.stored[sink.partition(stream)])

    def lose_power(self, seed: int) -> None:
        self.disk.crash(seed)


class _Publisher:
    def __init__(self, system: DafkaInMemory) -> None:
        self._stored = system.stored

    def publish(
        self, partition: DafkaPartition, first: int, contents: Iterable[list[bytes]], *, published: int
    ) -> None:
        stored = self._stored[partition]
        if len(stored) > published:
            raise DataflowError("stores have more than was ever committed, as a stale owner knows it")
        for batch in contents:
            assert first <= len(stored), "there is no gap"
            again = stored[first : first + len(batch)]
            assert batch[: len(again)] == again, "what comes again has the bytes of before"
            stored += batch[len(again) :]
            first += len(batch)

    def close(self) -> None:
        """Nothing is held."""


@pytest.mark.long
@pytest.mark.parametrize("seeds", [range(10), pytest.param(range(10, 60), marks=pytest.mark.full)], ids=len)
def test_the_sink_of_dafka_keeps_every_promise(seeds: range) -> None:
    simulate_sink(DafkaInMemory, seeds=seeds, stops=STOPS)
