"""The other side of the tests on Kafka: read with kafka-python, an implementation that shares nothing with ours."""

from __future__ import annotations

from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition

from scribengin.testing.waiting import wait_until


def committed_records(bootstrap: str, topic: str, partition: int | None = None) -> list[Any]:
    """What a reader of committed records sees of a topic, or of one of its partitions, from the first to the last.

    A commit is answered before its markers are in the partitions, so that is waited for.
    """
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        unmarked = ["PrepareCommit", "PrepareAbort"]
        wait_until(lambda: not any(admin.list_transactions(state_filters=unmarked).values()), 60, "the markers")
    finally:
        admin.close()
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        fetch_max_wait_ms=20,
    )
    try:
        partitions = sorted(consumer.partitions_for_topic(topic) or ()) if partition is None else [partition]
        places = [TopicPartition(topic, one) for one in partitions]
        ends = consumer.end_offsets(places)
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        records: list[Any] = []
        while any(consumer.position(place) < ends[place] for place in places):
            for of_partition in consumer.poll(timeout_ms=1000).values():
                records += of_partition
        return records
    finally:
        consumer.close()
