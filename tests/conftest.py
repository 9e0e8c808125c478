"""Fixtures for all folders of tests. Each server has its module in `tests/servers`."""

from tests.servers.bookkeeper import bookkeeper
from tests.servers.kafka import kafka
from tests.servers.zookeeper import registry, registry_hosts, zookeeper

__all__ = ["bookkeeper", "kafka", "registry", "registry_hosts", "zookeeper"]
