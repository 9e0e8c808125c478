"""A Kafka broker for all tests of a run, and one, or a cluster of three, for those of a module that harm it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scribengin_dev.servers.kafka import KafkaServer
from scribengin_dev.servers.kafka_cluster import KafkaBrokers
from tests.servers.provider import Provider

KAFKA = pytest.StashKey[KafkaServer]()
"""Where the run has its broker, once it was started: it is stopped behind the last file that needs it (order.py)."""


@pytest.fixture(scope="session")
def kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, provider: Provider
) -> Iterator[KafkaServer]:
    """A broker that all tests of the run share, each with topics of its own: leave it running."""
    settings = {"log.retention.ms": -1}  # records of tests bear any time, and a run is long
    with KafkaServer(tmp_path_factory.mktemp("kafka"), settings=settings, image=provider.image("kafka")) as server:
        request.config.stash[KAFKA] = server
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
