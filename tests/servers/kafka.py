"""A Kafka broker for all tests of a process, and one, or a cluster of three, for those of a module that harm it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scribengin_dev.servers.kafka import KafkaServer
from scribengin_dev.servers.kafka_cluster import KafkaBrokers
from tests.servers.provider import Provider


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory, provider: Provider) -> Iterator[KafkaServer]:
    """A broker that all tests of this process share, each with topics of its own: leave it running."""
    settings = {"log.retention.ms": -1}  # records of tests bear any time, and a run is long
    with KafkaServer(tmp_path_factory.mktemp("kafka"), settings=settings, image=provider.image("kafka")) as server:
        yield server


@pytest.fixture(scope="module")
def own_kafka(tmp_path_factory: pytest.TempPathFactory, provider: Provider) -> Iterator[KafkaServer]:
    """A broker of one module, which may stop it or set it up otherwise."""
    with KafkaServer(tmp_path_factory.mktemp("kafka"), image=provider.image("kafka")) as server:
        yield server


@pytest.fixture(scope="module")
def kafka_brokers(tmp_path_factory: pytest.TempPathFactory, provider: Provider) -> Iterator[KafkaBrokers]:
    """A cluster of three brokers, which tests may kill."""
    with KafkaBrokers(tmp_path_factory.mktemp("kafka-brokers"), image=provider.image("kafka")) as brokers:
        yield brokers
