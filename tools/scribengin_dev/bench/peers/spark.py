"""Spark Structured Streaming as a peer of our dataflows: from topic to topic of one broker, on as many cores."""

from __future__ import annotations

from pathlib import Path

from scribengin_dev.bench.clients.jobs import Job, run_job
from scribengin_dev.bench.peers.kafka import KafkaPeer
from scribengin_dev.servers.jars.artifacts import jars_of

LOCK = "spark-kafka"


class SparkKafkaPeer:
    """Measured once: the same figure stands beside every dataflow of one run."""

    def __init__(self, kafka: KafkaPeer, folder: Path) -> None:
        """`folder` is its own, and there is none yet. Raises as `jars_of`."""
        self._kafka = kafka
        self._folder = folder
        self._jars = jars_of(LOCK)
        self._rate: float | None = None

    @property
    def title(self) -> str:
        """What it is, and what it guarantees."""
        return self.title_of("trigger availableNow")

    def title_of(self, how: str) -> str:
        """The same of a query that is run so."""
        connector = next(jar.stem.rpartition("-")[2] for jar in self._jars if "spark-sql-kafka" in jar.name)
        return (
            f"Spark Structured Streaming, Kafka connector {connector}, {how}, from a topic to a topic: "
            f"at least once, with {self._kafka.title}"
        )

    def rate(self, record_bytes: int, records: int, *, warm_up: int, runs: int, cores: int, memory_mb: int) -> float:
        """Records per second of its micro-batches, without its start. Raises ServerError."""
        if self._rate is None:
            topics = [(self._filled(record_bytes, count, cores), count) for count in (warm_up, *[records] * runs)]
            self._folder.mkdir()
            job = {**self.job("kafka-sql-kafka", cores, memory_mb), "topics": topics}
            self._rate = run_job({**job, "sink": self._kafka.new_topic(partitions=cores)})["records_per_s"]
        return self._rate

    def latency_jobs(self, *, cores: int, memory_mb: int) -> tuple[Job, Job, Job]:
        """(stream, writer, reader): a query that is ready once it waits for records, and the ends of its topics; the
        caller adds how many records, of what size, how often. Raises ServerError."""
        writer, _ = self._kafka.tail_jobs()
        _, reader = self._kafka.tail_jobs()
        self._folder.mkdir(exist_ok=True)
        stream = self.job("kafka-stream", cores, memory_mb)
        return {**stream, "topic": writer["topic"], "sink": reader["topic"]}, writer, {**reader, "at_end": True}

    def job(self, name: str, cores: int, memory_mb: int) -> Job:
        """What a client of Spark that reads and writes the broker's topics is told in any case."""
        return {
            "system": "spark",
            "job": name,
            "bootstrap": self._kafka.bootstrap,
            "jars": [str(jar) for jar in self._jars],
            "folder": str(self._folder),
            "cores": cores,
            "memory_mb": memory_mb,
        }

    def _filled(self, record_bytes: int, records: int, partitions: int) -> str:
        topic = self._kafka.new_topic(partitions=partitions)
        self._kafka.produce(topic, record_bytes, records)
        return topic
