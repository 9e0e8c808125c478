"""Kafka as a peer: one broker, with its usual flush or one at every write, or three that hold everything three times;
its own producer and consumer perf tools."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from types import TracebackType

from scribengin.errors import ServerDown
from scribengin_dev.bench.clients.jobs import Job
from scribengin_dev.servers.kafka import KafkaServer
from scribengin_dev.servers.kafka_cluster import COUNT, KafkaBrokers

_PRODUCER = "org.apache.kafka.tools.ProducerPerformance"
_CONSUMER = "org.apache.kafka.tools.ConsumerPerformance"
_BATCH_BYTES = 128 * 1024  # by default 16 KiB, with which the tool is 4 times slower on 100 B records
_HEAP_MB = 1024  # of each of several brokers
_AS_THEY_COME: Mapping[str, object] = {
    "replica.lag.time.max.ms": 30_000,
    "replica.fetch.wait.max.ms": 500,
    "broker.session.timeout.ms": 9_000,
    "broker.heartbeat.interval.ms": 2_000,
}
"""What tests of brokers that are killed have shorter."""
_RATE = re.compile(r"records sent, ([0-9.]+) records/sec")


class KafkaPeer:
    """A broker that runs while the block is entered."""

    _acks = "1"

    def __init__(self, folder: Path, *, flush_each: bool) -> None:
        settings = {"log.flush.interval.messages": 1} if flush_each else {}
        self._server = KafkaServer(folder, settings=settings)
        self._flush_each = flush_each
        self._topics = count()

    @property
    def title(self) -> str:
        """What it is, and what it guarantees."""
        how = (
            "with an fsync of every message set before its ack (log.flush.interval.messages=1)"
            if self._flush_each
            else "with its default flush: no fsync before the ack, what was acknowledged is lost with the power"
        )
        return f"Kafka {self._version()}, one broker, one copy, {how}"

    def append_rate(self, record_bytes: int, records: int) -> float:
        """By its producer perf tool; the topic is deleted afterwards. Raises ServerError."""
        topic = self.new_topic()
        rate = self.produce(topic, record_bytes, records)
        self._server.delete_topic(topic)
        return rate

    def fill(self, record_bytes: int, records: int) -> str:
        """A new topic with that many records; its name. Raises ServerError."""
        topic = self.new_topic()
        self.produce(topic, record_bytes, records)
        return topic

    def read_rate(self, log: str, records: int) -> float:
        """By its consumer perf tool, without the time that it takes to join its group. Raises ServerError."""
        words = ["--topic", log, "--num-records", str(records), "--timeout", "60000"]
        heading, values = self._server.run(_CONSUMER, words).strip().splitlines()[:2]
        return float(values.split(", ")[heading.split(", ").index("fetch.nMsg.sec")])

    def tail_jobs(self) -> tuple[Job, Job]:
        """Its Java producer (linger.ms=0) and consumer. Raises ServerError."""
        topic = self.new_topic()
        return self.job("tail-write", topic), self.job("tail-read", topic)

    def job(self, job: str, topic: str) -> Job:
        """What a process does to a topic with its Java clients."""
        return {
            "system": "kafka",
            "job": job,
            "bootstrap": self._server.bootstrap,
            "topic": topic,
            "acks": self._acks,
            "jars": [str(jar) for jar in self._server.jars],
            "log4j": str(self._server.folder / "log4j2-warn.properties"),
        }

    def __enter__(self) -> KafkaPeer:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.stop()

    @property
    def bootstrap(self) -> str:
        """`host:port`, as clients want it."""
        return self._server.bootstrap

    def new_topic(self, *, partitions: int = 1) -> str:
        """Create a topic; its name. Raises ServerError."""
        topic = f"bench-{next(self._topics)}"
        self._server.create_topic(topic, partitions=partitions)
        return topic

    def produce(self, topic: str, record_bytes: int, records: int) -> float:
        """Append records with its producer perf tool; records per second. Raises ServerError."""
        words = ["--topic", topic, "--num-records", str(records), "--record-size", str(record_bytes)]
        words += ["--throughput", "-1", "--command-property", f"acks={self._acks}", f"batch.size={_BATCH_BYTES}"]
        said = self._server.run(_PRODUCER, words)
        rates = _RATE.findall(said)
        if not rates:
            raise ServerDown(f"{_PRODUCER} gave no rate. It said:\n{said}")
        return float(rates[-1])

    def _version(self) -> str:
        return next(jar.stem.removeprefix("kafka_2.13-") for jar in self._server.jars if "kafka_2.13-" in jar.name)


class KafkaBrokersPeer(KafkaPeer):
    """Three brokers that run while the block is entered, and acknowledge what all of them have."""

    _acks = "all"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, flush_each=False)
        self._brokers = KafkaBrokers(folder, settings=_AS_THEY_COME, heap_mb=_HEAP_MB)

    @property
    def title(self) -> str:
        return f"Kafka {self._version()}, {COUNT} brokers, a copy on each, acks=all, with its default flush: no fsync"

    def __enter__(self) -> KafkaBrokersPeer:
        self._brokers.start()
        self._server = self._brokers.broker(1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._brokers.stop()
