"""The other side of the tests on Kafka: read with kafka-python, an implementation that shares nothing with ours."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.errors import RetriableError

from scribengin.testing.waiting import wait_until

# A machine that stands still makes a client late that has a usual limit of 30 s.
PATIENT = {"bootstrap_timeout_ms": 180_000, "request_timeout_ms": 120_000}
PATIENT_PRODUCER = {**PATIENT, "acks": "all", "linger_ms": 0, "max_block_ms": 180_000, "delivery_timeout_ms": 240_000}
_UNMARKED = ["PrepareCommit", "PrepareAbort"]
_MARKERS_TIMEOUT_S = 180.0


def await_markers(admin: KafkaAdminClient) -> None:
    """Wait until no transaction is between its decision and its end: a commit or an abort is answered before its
    markers are in the partitions, and in those of the groups' offsets."""

    def are_there() -> bool:
        try:
            return not any(admin.list_transactions(state_filters=_UNMARKED).values())
        except RetriableError:  # a broker that has just come back is still loading its transactions
            return False

    wait_until(are_there, _MARKERS_TIMEOUT_S, "the markers")


def committed_records(bootstrap: str, topic: str, partition: int | None = None) -> list[Any]:
    """What `visible_records` returns once everything that was decided is visible."""
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap, **PATIENT)) as admin:
        await_markers(admin)
    return visible_records(bootstrap, topic, partition)


def visible_records(bootstrap: str, topic: str, partition: int | None = None) -> list[Any]:
    """What a reader of committed records sees now of a topic, or of one of its partitions, from the first to the last:
    nothing of a topic that is not there yet."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        fetch_max_wait_ms=20,
        **PATIENT,
    )
    with closing(consumer):
        partitions = sorted(consumer.partitions_for_topic(topic) or ()) if partition is None else [partition]
        places = [TopicPartition(topic, one) for one in partitions]
        if not places:
            return []
        ends = consumer.end_offsets(places)  # of what is committed: an open transaction and all behind it are not read
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        records: list[Any] = []
        while any(consumer.position(place) < ends[place] for place in places):
            for of_partition in consumer.poll(timeout_ms=1000).values():
                records += of_partition
        return records
