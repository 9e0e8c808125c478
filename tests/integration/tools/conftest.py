"""The registry of the tests of this folder."""

from tests.servers.memory import registry_in_memory

__all__ = ["registry_in_memory"]
