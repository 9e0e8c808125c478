"""What many tests of logs begin with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scribengin.log import LogNamespace
from scribengin.testing.log_samples import bound_namespace
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryRegistry
from scribengin.testing.memory.segments import MEMORY_STORE


@pytest.fixture
def logs(memory_registry: MemoryRegistry) -> Iterator[LogNamespace]:
    """A namespace in memory that holds one log, `log`."""
    disk = MemoryDisk("logs")
    with bound_namespace(memory_registry, disk.name, "log", store=MEMORY_STORE) as bound:
        yield bound
