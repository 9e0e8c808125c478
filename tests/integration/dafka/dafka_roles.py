"""What tests of Dafka's sockets share: a config, reading so many records, and a role on a port that another had."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import zmq

from scribengin.dafka import DafkaConfig, DafkaConsumer, DafkaRecord, DafkaTower
from scribengin.dafka.state import IntakeLimits, consumer, follower

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


@contextmanager
def next_role_listens_at(endpoint: str) -> Iterator[None]:
    """Roles that are made meanwhile get the port of one that has ended, as chance has it now and then."""
    port = int(endpoint.rpartition(":")[2])

    def bound(one: zmq.Socket[bytes], address: str) -> int:
        one.bind(f"{address}:{port}")
        return port

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(zmq.Socket, "bind_to_random_port", bound)
        yield


@pytest.fixture
def asks_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who reads fetches again four times a second: what nobody keeps is known for that after five fetches. For tests in
    which somebody says that he does not keep it."""
    for reader in (consumer, follower):
        monkeypatch.setattr(reader, "IntakeLimits", partial(IntakeLimits, retry_s=0.25))
