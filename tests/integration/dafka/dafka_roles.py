"""What tests of Dafka's sockets share: a config, and reading so many records."""

from __future__ import annotations

from typing import Any

from scribengin.dafka import DafkaConfig, DafkaConsumer, DafkaRecord, DafkaTower

LISTENING = DafkaConfig.model_validate(
    {"tower": {"sub_address": "tcp://127.0.0.1:*", "pub_address": "tcp://127.0.0.1:*"}}
)
"""Of a tower on ports of its own."""


def config_of(tower: DafkaTower, **sections: dict[str, Any]) -> DafkaConfig:
    """Of roles that find each other through that tower, quickly."""
    addresses = {"sub_address": tower.sub_address, "pub_address": tower.pub_address}
    return DafkaConfig.model_validate(
        {
            "beacon": {**addresses, "interval": 100, "timeout": 2000},
            "producer": {"head_interval": 100, **sections.get("producer", {})},
            "consumer": {"offset_reset": "earliest", **sections.get("consumer", {})},
        }
    )


def read(consumer: DafkaConsumer, count: int) -> list[DafkaRecord]:
    """So many records, as soon as they are there."""
    records: list[DafkaRecord] = []
    while len(records) < count:
        more = consumer.read(count - len(records), timeout_s=60.0)
        assert more, f"{len(records)} of {count}"
        records += more
    return records
