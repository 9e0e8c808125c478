"""The roles of Dafka in processes of their own: a store, a producer whose records it acknowledges, consumers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from scribengin.dafka import DafkaConfig, DafkaConsumer, DafkaProducer, DafkaStore
from scribengin.log import LogNamespace
from scribengin_tools.cli.dafka.speed import published, read_on
from scribengin_tools.logs.pacing import receive, send_paced

Values = Mapping[str, Any]
_READ_RECORDS = 65_536
_POLL_S = 0.5


def _store(job: Values) -> dict[str, float]:
    """Keep all topics, for as long as the process lives."""
    with LogNamespace.open(job["namespace"]) as logs, DafkaStore(logs, _config(job)):
        print("ready", flush=True)
        threading.Event().wait()
    return {}


def _publish(job: Values) -> dict[str, float]:
    """From the first record that is published to the last that the store has acknowledged: records a second."""
    with DafkaProducer(job["topic"], _config(job)) as producer:
        producer.publish(b"").result()  # the store has found it
        return {"records_per_s": published(producer, job["records"], job["record_bytes"]).records_s}


def _read(job: Values) -> dict[str, float]:
    """From the first records to the last: records a second. Nobody but the store has them."""
    with DafkaConsumer([job["topic"]], _config(job)) as consumer:
        return {"records_per_s": read_on(consumer, job["records"], job["record_bytes"]).records_s}


def _tail_write(job: Values) -> dict[str, float]:
    with DafkaProducer(job["topic"], _config(job)) as producer:
        send_paced(producer.publish, job["records"], job["per_s"], job["record_bytes"])
    return {}


def _tail_read(job: Values) -> dict[str, float]:
    with DafkaConsumer([job["topic"]], _config(job)) as consumer:

        def poll() -> Iterable[bytes]:
            return [record.content for record in consumer.read(_READ_RECORDS, _POLL_S)]

        print("ready", flush=True)
        return receive(poll, job["records"])


def _config(job: Values) -> DafkaConfig:
    """Of the job's role. It exchanges batches unless the job says that it does not."""
    said = {**job["network"], "batches": job.get("batches", True), "consumer": {"offset_reset": "earliest"}}
    return DafkaConfig.parse(said, source="the benchmark")


JOBS: Mapping[str, Callable[[Values], dict[str, float]]] = {
    "store": _store,
    "publish": _publish,
    "read": _read,
    "tail-write": _tail_write,
    "tail-read": _tail_read,
}
