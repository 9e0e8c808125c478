"""The registry's record is one of whole transactions, in their order, whichever threads make them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin_registry.contract import Set
from tests.crash.recorded_registry import RecordedRegistry, RegistryTree

NODES = [f"/whole/{number}" for number in range(500)]


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads take turns after every few instructions."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty_threads")
def test_no_state_shows_half_a_transaction_or_one_before_the_other() -> None:
    trees: list[RegistryTree] = []
    with MemoryEnsemble().connect() as session:
        registry = RecordedRegistry(session, changed=trees.append)
        for path in NODES:
            registry.create(path, parents=True)
        before = len(trees)

        def commits(thread: int) -> None:
            for number in range(100):
                registry.commit([Set(path, b"%d-%d" % (thread, number)) for path in NODES])

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(commits, range(2)))
        assert len(trees) == before + 200
        assert all(len({tree.nodes[path] for path in NODES}) == 1 for tree in trees[before:])
        assert [registry.tree.nodes[path] for path in NODES] == [session.get(path).data for path in NODES]
