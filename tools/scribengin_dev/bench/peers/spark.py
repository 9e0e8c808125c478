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
        connector = next(jar.stem.rpartition("-")[2] for jar in self._jars if "spark-sql-kafka" in jar.name)
        return (
            f"Spark Structured Streaming, Kafka connector {connector}, trigger availableNow, from a topic to a topic: "
            f"at least once, with {self._kafka.title}"
        )

    def rate(self, record_bytes: int, records: int, *, warm_up: int, runs: int, cores: int, memory_mb: int) -> float:
        """Records per second of its micro-batches, without its start. Raises ServerError."""
        if self._rate is None:
            topics = [(self._filled(record_bytes, count, cores), count) for count in (warm_up, *[records] * runs)]
            self._folder.mkdir()
            job: Job = {
                "system": "spark",
                "job": "kafka-sql-kafka",
                "bootstrap": self._kafka.bootstrap,
                "topics": topics,
                "sink": self._kafka.new_topic(partitions=cores),
                "jars": [str(jar) for jar in self._jars],
                "folder": str(self._folder),
                "cores": cores,
                "memory_mb": memory_mb,
            }
            self._rate = run_job(job)["records_per_s"]
        return self._rate

    def _filled(self, record_bytes: int, records: int, partitions: int) -> str:
        topic = self._kafka.new_topic(partitions=partitions)
        self._kafka.produce(topic, record_bytes, records)
        return topic
