"""A registry in memory, for tests that are about nothing of ZooKeeper's: a call takes microseconds instead of
milliseconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scribengin.testing.memory_registry import MemoryEnsemble, MemoryRegistry


@pytest.fixture
def memory_registry() -> Iterator[MemoryRegistry]:
    """A session of an ensemble of its own."""
    with MemoryEnsemble().connect() as session:
        yield session
