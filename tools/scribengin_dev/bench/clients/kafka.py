"""Kafka's Java producer and consumer at the two ends of a tail, and many consumers at once; how fast one of each moves
many records, its tools tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from scribengin.base.jvm import java, java_bytes
from scribengin_dev.bench.clients.jvm import start_peer
from scribengin_dev.bench.clients.together import rate_of_all
from scribengin_tools.logs.pacing import receive, send_paced

_CLIENTS = "org.apache.kafka.clients"
_SERIALIZATION = "org.apache.kafka.common.serialization"
_POLL_MS = 500

Values = Mapping[str, Any]


def _tail_write(job: Values) -> dict[str, float]:
    settings = {
        "acks": job["acks"],
        "linger.ms": "0",
        "key.serializer": f"{_SERIALIZATION}.ByteArraySerializer",
        "value.serializer": f"{_SERIALIZATION}.ByteArraySerializer",
    }
    start_peer(job["jars"], job["log4j"])
    properties = _properties(job, settings)
    producer = java(f"{_CLIENTS}.producer.KafkaProducer")(properties)
    record = java(f"{_CLIENTS}.producer.ProducerRecord")
    producer.partitionsFor(job["topic"])  # so that the first record does not wait for the topic's leader
    send_paced(
        lambda data: producer.send(record(job["topic"], java_bytes(data))),
        job["records"],
        job["per_s"],
        job["record_bytes"],
        lambda future: future.get(),
        windowed=job.get("windowed", False),
    )
    producer.close()
    return {}


def _tail_read(job: Values) -> dict[str, float]:
    start_peer(job["jars"], job["log4j"])
    consumer = _consumer(job)
    wait = java("java.time.Duration").ofMillis(_POLL_MS)
    consumer.poll(wait)
    for partition in consumer.assignment():
        consumer.position(partition)  # it seeks when it is asked where it is

    def poll() -> Iterable[bytes]:
        return [bytes(record.value()) for record in consumer.poll(wait)]

    print("ready", flush=True)
    result = receive(poll, job["records"], windowed=job.get("windowed", False))
    consumer.close()
    return result


def _fan_out(job: Values) -> dict[str, float]:
    """So many consumers of a topic at once, a thread each: records per second of all together."""
    start_peer(job["jars"], job["log4j"])
    consumers = [_consumer(job) for _ in range(job["readers"])]

    def read(consumer: Any) -> int:
        wait = java("java.time.Duration").ofMillis(_POLL_MS)
        found = 0
        while found < job["records"]:
            found += int(consumer.poll(wait).count())
        return found

    found = {"records_per_s": rate_of_all([partial(read, consumer) for consumer in consumers])}
    for consumer in consumers:
        consumer.close()
    return found


JOBS: Mapping[str, Callable[[Values], dict[str, float]]] = {
    "tail-write": _tail_write,
    "tail-read": _tail_read,
    "fan-out": _fan_out,
}


def _consumer(job: Values) -> Any:
    """A consumer of the topic's only partition, in no group, at its first record or, if that is said, its end."""
    settings = {
        "auto.offset.reset": "earliest",
        "enable.auto.commit": "false",
        "key.deserializer": f"{_SERIALIZATION}.ByteArrayDeserializer",
        "value.deserializer": f"{_SERIALIZATION}.ByteArrayDeserializer",
    }
    properties = _properties(job, settings)
    consumer = java(f"{_CLIENTS}.consumer.KafkaConsumer")(properties)
    partitions = java("java.util.List").of(java("org.apache.kafka.common.TopicPartition")(job["topic"], 0))
    consumer.assign(partitions)
    if job.get("at_end"):
        consumer.seekToEnd(partitions)
    else:
        consumer.seekToBeginning(partitions)
    return consumer


def _properties(job: Values, settings: Mapping[str, str]) -> Any:
    """A client's settings."""
    properties = java("java.util.Properties")()
    properties.put("bootstrap.servers", job["bootstrap"])
    for key, value in settings.items():
        properties.put(key, value)
    return properties
