"""A Kafka broker for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scribengin_dev.servers.kafka import KafkaServer
from tests.servers.provider import Provider


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, provider: Provider) -> Iterator[KafkaServer]:
    """A broker that the tests of one module share; each has topics of its own."""
    with KafkaServer(tmp_path_factory.mktemp("kafka"), image=provider.image("kafka")) as server:
        yield server
