"""A Kafka broker for the tests of a module, from jars."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scribengin.testing.servers.kafka import KafkaServer


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A broker that the tests of one module share; each has topics of its own."""
    with KafkaServer(tmp_path_factory.mktemp("kafka")) as server:
        yield server
