"""Fixtures for all folders of tests. Each server has its module in `tests/servers`."""

from tests.servers.zookeeper import registry, registry_hosts, zookeeper

__all__ = ["registry", "registry_hosts", "zookeeper"]
