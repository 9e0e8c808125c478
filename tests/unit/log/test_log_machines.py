"""A namespace in a directory belongs to a machine: others do not open it, unless they share the directory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scribengin.base.process.machine import MACHINE_VARIABLE, MachineIdentity, this_machine
from scribengin.errors import ConfigInvalid, StoreElsewhere, StoreNotMounted
from scribengin.log import LogNamespace, NamespaceDescriptor
from scribengin.log.store.mark import MARK
from scribengin.testing.log_samples import payloads_read
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin.testing.memory.segments import MEMORY_STORE
from scribengin_registry.contract import Registry


@pytest.fixture
def registry() -> Registry:
    return MemoryEnsemble().connect()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory; this machine is called alpha."""
    monkeypatch.setenv(MACHINE_VARIABLE, "alpha")
    return tmp_path / "store"


def bound(registry: Registry) -> NamespaceDescriptor:
    """What the node says."""
    return NamespaceDescriptor.from_bytes(registry.get("/logs").data, path="/logs")


def test_the_binding_says_which_machine_has_the_directory(registry: Registry, store: Path) -> None:
    descriptor = LogNamespace.bind("/logs", store, registry=registry)
    assert descriptor == bound(registry)
    assert (descriptor.machine, descriptor.shared) == (MachineIdentity(id="alpha", name="alpha"), False)
    assert LogNamespace.bind("/logs", store, registry=registry) == descriptor


def test_another_machine_is_refused_in_one_line_with_the_ways_out(
    registry: Registry, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    LogNamespace.bind("/logs", store, registry=registry)
    monkeypatch.setenv(MACHINE_VARIABLE, "beta")
    for call in (
        lambda: LogNamespace.open("/logs", registry=registry),
        lambda: LogNamespace.bind("/logs", store, registry=registry),
    ):
        with pytest.raises(StoreElsewhere) as refused:
            call()
        said = str(refused.value)
        assert "\n" not in said
        assert all(word in said for word in ("alpha", "beta", str(store), "scribengin proxy", "hdfs://", "bk://"))
        assert refused.value.exit_code == 2


def test_a_shared_directory_is_opened_elsewhere_if_its_mark_proves_that_it_is_the_same(
    registry: Registry, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    LogNamespace.bind("/logs", store, registry=registry, shared=True)
    with LogNamespace.open("/logs", registry=registry) as namespace:
        namespace.create("a")
        with namespace.open_writer("a") as writer:
            writer.write(b"kept").result()
    monkeypatch.setenv(MACHINE_VARIABLE, "beta")
    with LogNamespace.open("/logs", registry=registry) as namespace:
        assert payloads_read(namespace, "a") == [b"kept"]
    assert LogNamespace.bind("/logs", store, registry=registry).shared
    (store / MARK).write_text("0" * 32)  # what the other machine has there is another directory
    with pytest.raises(StoreNotMounted, match="should hold"):
        LogNamespace.open("/logs", registry=registry)


def test_a_directory_becomes_shared_only_where_its_mark_stands(
    registry: Registry, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    LogNamespace.bind("/logs", store, registry=registry)
    monkeypatch.setenv(MACHINE_VARIABLE, "beta")
    store.rename(store.with_name("on-alpha"))
    with pytest.raises(StoreNotMounted):
        LogNamespace.bind("/logs", store, registry=registry, shared=True)
    assert not bound(registry).shared
    store.with_name("on-alpha").rename(store)
    LogNamespace.bind("/logs", store, registry=registry, shared=True)
    LogNamespace.open("/logs", registry=registry).close()
    assert bound(registry).machine == MachineIdentity(id="alpha", name="alpha")


def test_a_directory_that_was_moved_belongs_to_its_new_machine(
    registry: Registry, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    LogNamespace.bind("/logs", store, registry=registry, shared=True)
    monkeypatch.setenv(MACHINE_VARIABLE, "beta")
    LogNamespace.bind("/logs", store, registry=registry, moved=True)
    LogNamespace.open("/logs", registry=registry).close()
    monkeypatch.setenv(MACHINE_VARIABLE, "alpha")
    with pytest.raises(StoreElsewhere, match="machine beta"):
        LogNamespace.open("/logs", registry=registry)


def test_a_binding_of_before_says_no_machine_until_it_is_bound_again(registry: Registry, store: Path) -> None:
    LogNamespace.bind("/logs", store, registry=registry)
    registry.set("/logs", bound(registry).model_copy(update={"machine": None}).to_bytes())
    LogNamespace.open("/logs", registry=registry).close()
    LogNamespace.bind("/logs", store, registry=registry)
    assert bound(registry).machine == this_machine()


def test_only_directories_are_shared(registry: Registry) -> None:
    disk = MemoryDisk("a disk for machines")
    for shared in (True, False):
        with pytest.raises(ConfigInvalid, match="only directories are shared or moved"):
            LogNamespace.bind(
                "/logs", disk.name, registry=registry, store=MEMORY_STORE, shared=shared, moved=not shared
            )
    assert LogNamespace.bind("/logs", disk.name, registry=registry, store=MEMORY_STORE).machine is None


@pytest.mark.parametrize("place", ["", "s3://bucket/logs", "bogus://x/y"])
def test_what_is_no_directory_is_not_made_one_below_the_working_directory(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigInvalid, match=r"name a directory|its name is empty"):
        LogNamespace.bind("/logs", place, registry=registry)
    assert list(tmp_path.iterdir()) == []


def test_a_machine_is_the_same_for_all_its_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MACHINE_VARIABLE, raising=False)
    program = "from scribengin.base.process.machine import this_machine; print(this_machine().model_dump_json())"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert MachineIdentity.model_validate_json(said) == this_machine()
