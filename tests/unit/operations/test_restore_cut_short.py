"""`registry restore` that ends in the middle: what it leaves is not taken for whole, and nobody comes meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from scribengin.errors import ConfigInvalid
from scribengin.operations.registry.backup import back_up, restore
from scribengin.testing.memory.registry import MemoryEnsemble, MemoryRegistry
from scribengin_registry.client import REQUEST_BYTES_MAX
from scribengin_registry.contract import Create, Operation
from scribengin_registry.errors import RestoreUnfinished
from scribengin_registry.opening import RESTORING, refuse_half_restored


@pytest.fixture
def registry(memory_registry: MemoryRegistry) -> MemoryRegistry:
    return memory_registry


@pytest.fixture
def file(registry: MemoryRegistry, tmp_path: Path) -> Path:
    """A backup of three nodes, the last of which takes a request of its own."""
    for name, data in (("a", b"1"), ("b", b"2"), ("c", bytes(REQUEST_BYTES_MAX))):
        registry.create(f"/{name}", data)
    back_up(registry, tmp_path / "registry.backup")
    return tmp_path / "registry.backup"


def before_creating(monkeypatch: pytest.MonkeyPatch, path: str, happens: Callable[[], object]) -> None:
    """Call it once `path` is about to be created."""
    commit, create = MemoryRegistry.commit, MemoryRegistry.create

    def committed(self: MemoryRegistry, operations: Sequence[Operation]) -> list[int]:
        if any(isinstance(one, Create) and one.path == path for one in operations):
            happens()
        return commit(self, operations)

    def created(self: MemoryRegistry, at: str, *args: object, **options: object) -> str:
        if at == path:
            happens()
        return create(self, at, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(MemoryRegistry, "commit", committed)
    monkeypatch.setattr(MemoryRegistry, "create", created)


@pytest.mark.parametrize("path", ["/a", "/c"])
def test_what_is_half_restored_is_refused_by_all_until_a_restore_has_ended(
    registry: MemoryRegistry, file: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    def ends() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        before_creating(patched, path, ends)
        with pytest.raises(KeyboardInterrupt):
            restore(registry, file, replace=True)
    with pytest.raises(RestoreUnfinished, match="registry restore FILE --replace"):
        refuse_half_restored(registry)
    with pytest.raises(RestoreUnfinished):
        back_up(registry, file.with_name("half.backup"))
    assert not file.with_name("half.backup").exists()


def test_a_session_that_expires_in_the_middle_restores_nothing_more_and_the_next_restore_does_it(
    ensemble: MemoryEnsemble, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ensemble.connect() as cut, monkeypatch.context() as patched:
        cut.set("/a", b"later")
        before_creating(patched, "/a", lambda: ensemble.expire(cut))
        with pytest.raises(RestoreUnfinished, match="--replace"):
            restore(cut, file, replace=True)
    with ensemble.connect() as registry:
        assert registry.children("/") == ["a", "b", "c", "restoring"]
        assert registry.get("/a").data == b"later"
        with pytest.raises(RestoreUnfinished):
            refuse_half_restored(registry)
        restore(registry, file, replace=True)
        refuse_half_restored(registry)
        assert registry.children("/") == ["a", "b", "c"]
        assert registry.get("/a").data == b"1"


def test_of_two_restores_at_once_the_second_changes_nothing(
    ensemble: MemoryEnsemble, registry: MemoryRegistry, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = []

    def another() -> None:
        with ensemble.connect() as second, pytest.raises(ConfigInvalid) as error:
            restore(second, file, replace=True)
        refused.append(str(error.value))

    with monkeypatch.context() as patched:
        before_creating(patched, "/a", another)
        restore(registry, file, replace=True)
    assert len(refused) == 1
    assert "belongs to a process that is connected" in refused[0]
    assert registry.children("/") == ["a", "b", "c"]


def test_a_restore_that_is_refused_leaves_the_registry_as_it_was(
    ensemble: MemoryEnsemble, registry: MemoryRegistry, file: Path
) -> None:
    with pytest.raises(ConfigInvalid, match="--replace"):
        restore(registry, file, replace=False)
    with ensemble.connect() as other:
        other.create("/held", ephemeral=True)
        with pytest.raises(ConfigInvalid, match="/held belongs to a process"):
            restore(registry, file, replace=True)
    assert registry.find(RESTORING) is None
    refuse_half_restored(registry)


def test_bookkeepers_nodes_that_were_half_restored_are_restored_by_the_next(
    ensemble: MemoryEnsemble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "registry.backup"
    with ensemble.connect() as lost:
        for name in ("INSTANCEID", "LAYOUT", "ledger"):
            lost.create(f"/ledgers/{name}", bytes(REQUEST_BYTES_MAX // 2), parents=True)
        back_up(lost, file)

    def ends() -> None:
        raise KeyboardInterrupt

    servers = MemoryEnsemble()
    with servers.connect() as cut, monkeypatch.context() as patched:
        before_creating(patched, "/ledgers/ledger", ends)
        with pytest.raises(KeyboardInterrupt):
            restore(cut, file, replace=False)
    with servers.connect() as anew:
        assert anew.children("/ledgers") == ["INSTANCEID", "LAYOUT"]
        restore(anew, file, replace=True)
        assert anew.children("/ledgers") == ["INSTANCEID", "LAYOUT", "ledger"]
