"""Kafka as a peer: one broker, its own producer and consumer perf tools, with its usual flush or one at every write."""

from __future__ import annotations

import re
from itertools import count
from pathlib import Path
from types import TracebackType

from scribengin.errors import ServerDown
from scribengin_dev.bench.clients.jobs import Job
from scribengin_dev.servers.kafka import KafkaServer

_PRODUCER = "org.apache.kafka.tools.ProducerPerformance"
_CONSUMER = "org.apache.kafka.tools.ConsumerPerformance"
_BATCH_BYTES = 128 * 1024  # by default 16 KiB, with which the tool is 4 times slower on 100 B records
_RATE = re.compile(r"records sent, ([0-9.]+) records/sec")


class KafkaPeer:
    """A broker that runs while the block is entered."""

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
        """Its Java producer (acks=1, linger.ms=0) and consumer. Raises ServerError."""
        topic = self.new_topic()
        return self.job("tail-write", topic), self.job("tail-read", topic)

    def job(self, job: str, topic: str) -> Job:
        """What a process does to a topic with its Java clients."""
        return {
            "system": "kafka",
            "job": job,
            "bootstrap": self._server.bootstrap,
            "topic": topic,
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
        words += ["--throughput", "-1", "--command-property", "acks=1", f"batch.size={_BATCH_BYTES}"]
        said = self._server.run(_PRODUCER, words)
        rates = _RATE.findall(said)
        if not rates:
            raise ServerDown(f"{_PRODUCER} gave no rate. It said:\n{said}")
        return float(rates[-1])

    def _version(self) -> str:
        return next(jar.stem.removeprefix("kafka_2.13-") for jar in self._server.jars if "kafka_2.13-" in jar.name)
