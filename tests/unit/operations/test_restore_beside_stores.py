"""`registry restore` where a store of logs has nodes in the same ZooKeeper: BookKeeper's are its data, and no copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from scribengin.operations.registry.backup import back_up, restore
from scribengin.testing.memory.registry import MemoryEnsemble
from tests.registry_copies import nodes

LEDGER = "/ledgers/00/0000/L0007"
SEGMENT = "/bk/flights/logs/x/segments/1-1"


@pytest.fixture
def ensemble() -> MemoryEnsemble:
    """With nodes of ours, bookies', and segments' on these."""
    ensemble = MemoryEnsemble()
    with ensemble.connect() as registry:
        for path in ("/ledgers/INSTANCEID", "/ledgers/LAYOUT", "/ledgers/available/bookie", "/bk/flights/.namespace"):
            registry.create(path, b"1", parents=True)
        registry.set("/bk", b"somebody's")
        registry.create("/scribengin/a", b"1", parents=True)
    return ensemble


def test_what_bookies_have_since_a_backup_is_not_taken_back(ensemble: MemoryEnsemble, tmp_path: Path) -> None:
    file = tmp_path / "registry.backup"
    with ensemble.connect() as bookies, ensemble.connect() as registry:
        back_up(registry, file)
        bookies.create("/ledgers/available/readonly", ephemeral=True)
        bookies.create(LEDGER, b"closed", parents=True)
        bookies.create(SEGMENT, b"7", parents=True)
        bookies.set("/ledgers/LAYOUT", b"2")
        wanted = nodes(registry)
        registry.set("/bk", b"later")
        registry.set("/scribengin/a", b"2")
        registry.create("/scribengin/b")
        restore(registry, file, replace=True)
        assert nodes(registry) == wanted


def test_where_they_are_lost_too_they_come_back_with_the_backup(ensemble: MemoryEnsemble, tmp_path: Path) -> None:
    file = tmp_path / "registry.backup"
    with ensemble.connect() as registry, MemoryEnsemble().connect() as anew:
        registry.create(LEDGER, b"closed", parents=True)
        registry.create(SEGMENT, b"7", parents=True)
        back_up(registry, file)
        restore(anew, file, replace=False)
        assert nodes(anew) == nodes(registry)
