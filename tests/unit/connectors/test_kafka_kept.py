"""Consumers that a process keeps for its next range: they ask their brokers for nothing while nobody uses them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from threading import Thread
from typing import Any

import pytest

from scribengin.connectors.kafka.client.client import made_by
from scribengin.connectors.kafka.client.connection import KafkaConnectionConfig
from scribengin.connectors.kafka.source import reading
from scribengin.connectors.kafka.source.reading import KafkaSplit, Reading, close_idle
from scribengin.testing.clocks import ManualClock
from scribengin.testing.memory.kafka import MemoryKafka
from scribengin.testing.memory.kafka.consumer import MemoryConsumer

KEPT = "kept:1"


class Cluster:
    """A topic of two partitions, and all consumers that were made to read it."""

    def __init__(self) -> None:
        self.kafka = MemoryKafka(KEPT)
        self.kafka.create("t", partitions=2)
        self.consumers: list[MemoryConsumer] = []

    def client(self, kind: type, conf: dict[str, Any]) -> Any:
        self.consumers.append(made := self.kafka.client(kind, conf))
        return made

    def split(self, start: int, end: int, partition: int = 0) -> KafkaSplit:
        of = Reading(KafkaConnectionConfig(bootstrap=KEPT), "read_committed", "keep")
        return KafkaSplit(of, "t", "", partition, start, end, end - start, 1)

    def read(self, start: int, end: int, partition: int = 0) -> list[bytes]:
        split = self.split(start, end, partition)
        return [value for batch in split.read() for value in batch.column("payload").to_pylist()]

    def asking(self) -> list[tuple[str, int]]:
        """The partitions that brokers are asked for all the time."""
        return [place for consumer in self.consumers for place in consumer._assigned]


class Resting:
    """The thread that puts to rest, played by the test."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.meanwhile: list[Callable[[], object]] = []
        self.refused = False
        self._begun: list[Thread] = []

    def start(self, thread: Thread) -> Thread:
        if self.refused:
            raise RuntimeError("can't start new thread")
        self._begun.append(thread)
        return thread

    def pause(self, seconds: float) -> None:
        self.clock.advance_s(seconds * 0.6)
        if self.meanwhile:
            self.meanwhile.pop(0)()

    def run(self) -> None:
        """From its beginning to its end."""
        (thread,) = self._begun
        thread.run()
        self._begun.remove(thread)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    for partition in (0, 1):
        made.kafka.send("t", [b"%d" % n for n in range(10)], partition=partition)
    with made_by(KEPT, made.client):
        yield made
        close_idle()


@pytest.fixture
def thread(monkeypatch: pytest.MonkeyPatch) -> Resting:
    made = Resting()
    monkeypatch.setattr(reading, "SYSTEM_CLOCK", made.clock)
    monkeypatch.setattr(reading, "pause", made.pause)
    monkeypatch.setattr(reading, "started", made.start)
    return made


def test_who_is_not_used_asks_for_nothing_until_it_reads_again(cluster: Cluster, thread: Resting) -> None:
    assert cluster.read(0, 5) == [b"%d" % n for n in range(5)]
    assert cluster.asking() == [("t", 0)]  # what comes next is fetched meanwhile
    thread.run()
    assert cluster.asking() == []
    assert cluster.read(7, 10) == [b"7", b"8", b"9"]
    assert cluster.asking() == [("t", 0)]
    assert len(cluster.consumers) == 1
    thread.run()
    assert cluster.read(2, 4) == [b"2", b"3"]
    thread.run()
    assert cluster.asking() == []


def test_who_is_used_again_and_again_is_left_alone(cluster: Cluster, thread: Resting) -> None:
    cluster.read(0, 5)
    cluster.read(0, 5, partition=1)
    thread.meanwhile = [partial(cluster.read, n, n + 1) for n in range(5, 10)]
    thread.meanwhile.append(lambda: asking.append(cluster.asking()))
    asking: list[list[tuple[str, int]]] = []
    thread.run()
    assert asking == [[("t", 0)]]
    assert cluster.asking() == []


def test_a_look_at_sizes_leaves_nothing_that_asks(cluster: Cluster, thread: Resting) -> None:
    assert cluster.split(0, 10).sample(3) is not None
    assert cluster.asking() == []


def test_a_machine_without_a_thread_left_fails_no_read(cluster: Cluster, thread: Resting) -> None:
    thread.refused = True
    assert cluster.read(0, 1) == [b"0"]
    thread.refused = False
    assert cluster.read(1, 2) == [b"1"]
    thread.run()
    assert cluster.asking() == []
