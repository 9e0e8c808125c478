"""A Kafka broker, or a cluster of three, for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scribengin_dev.servers.kafka import KafkaServer
from scribengin_dev.servers.kafka_cluster import KafkaBrokers
from tests.servers.provider import Provider


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, provider: Provider) -> Iterator[KafkaServer]:
    """A broker that the tests of one module share; each has topics of its own."""
    with KafkaServer(tmp_path_factory.mktemp("kafka"), image=provider.image("kafka")) as server:
        yield server


@pytest.fixture(scope="module")
def kafka_brokers(tmp_path_factory: pytest.TempPathFactory, provider: Provider) -> Iterator[KafkaBrokers]:
    """A cluster of three brokers, which tests may kill."""
    with KafkaBrokers(tmp_path_factory.mktemp("kafka-brokers"), image=provider.image("kafka")) as brokers:
        yield brokers
