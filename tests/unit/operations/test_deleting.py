"""Deleting a dataflow, and what others do to it meanwhile: whatever comes in between, nothing half deleted runs, and
nothing is deleted that nobody meant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from scribengin.dataflow.config import load_config
from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.descriptors import DataflowState
from scribengin.dataflow.registry.view import DataflowView, dataflow_names, new_master_name
from scribengin.errors import DataflowBusy
from scribengin.log import LogNamespace
from scribengin.operations import lifecycle
from scribengin.operations.delete import delete_dataflow
from scribengin.operations.lifecycle import kill_dataflow, start_again
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryEnsemble, MemoryRegistry
from scribengin.testing.memory.segments import MEMORY_STORE
from scribengin_registry.contract import Delete, Operation

RESOURCE = "log:/logs/late"
CONFIG = load_config(
    {
        "name": "delays",
        "sources": {"flights": {"kind": "log", "logs": "flights/*"}},
        "sinks": {"late": {"kind": "log", "log": "late"}},
        "sql": "SELECT payload FROM flights",
    }
)


@pytest.fixture
def ensemble(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> MemoryEnsemble:
    monkeypatch.setenv("SCRIBENGIN_HOME", str(tmp_path))
    return MemoryEnsemble()


@pytest.fixture
def registry(ensemble: MemoryEnsemble) -> Iterator[MemoryRegistry]:
    disk = MemoryDisk("deleting")
    with ensemble.connect() as session:
        LogNamespace.bind("/logs", disk.name, registry=session, store=MEMORY_STORE)
        yield session


def put(registry: MemoryRegistry, state: DataflowState = "stopped", now_ms: int = 1) -> DataflowView:
    view = DataflowView(registry, "delays")
    view.submit(CONFIG, [RESOURCE], now_ms)
    view.set_status(view.status().model_copy(update={"state": state}))
    return view


def cut_at(view: DataflowView, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its deletion dies just before that node would go."""

    def doomed(gone: list[str]) -> None:
        if path in gone:
            raise SystemExit

    delete, commit = MemoryRegistry.delete, MemoryRegistry.commit

    def deleting(session: MemoryRegistry, gone: str, *args: Any, **options: Any) -> None:
        doomed([gone])
        delete(session, gone, *args, **options)

    def committing(session: MemoryRegistry, operations: Sequence[Operation]) -> list[int]:
        doomed([one.path for one in operations if isinstance(one, Delete)])
        return commit(session, operations)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryRegistry, "delete", deleting)
        patch.setattr(MemoryRegistry, "commit", committing)
        with pytest.raises(SystemExit):
            view.delete()


def cut_short(view: DataflowView, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its deletion dies when positions are gone, and its own nodes are not."""
    cut_at(view, view.paths.root, monkeypatch)


NODES = paths.DataflowPaths("delays")
POSITION = paths.commit_log(NODES.source_stream("flights", "flights/0"))


@pytest.mark.parametrize("at", [POSITION, paths.sink_resource(RESOURCE), NODES.placement, NODES.workers, NODES.root])
def test_what_is_half_deleted_stays_so_when_it_is_killed(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, at: str
) -> None:
    view = put(registry)
    registry.create(POSITION, b"{}", parents=True)
    cut_at(view, at, monkeypatch)
    killed = kill_dataflow(registry, "delays", tmp_path)
    assert "`scribengin delete delays` ends it" in killed.line
    assert view.status().state == "deleting"
    with pytest.raises(DataflowBusy, match="`scribengin delete delays` ends it"):
        start_again(view, tmp_path)
    delete_dataflow(view, force=False)
    assert dataflow_names(registry) == []


@pytest.mark.parametrize("ends", [False, True])
def test_what_is_deleted_while_it_is_being_killed_is_not_killed_then(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ends: bool
) -> None:
    view = put(registry, "running")

    def meanwhile(*_args: object) -> list[object]:
        if ends:
            view.delete()
        else:
            cut_short(view, monkeypatch)
        return []

    monkeypatch.setattr(lifecycle, "kill_containers", meanwhile)
    kill_dataflow(registry, "delays", tmp_path)
    assert [DataflowView(registry, name).status().state for name in dataflow_names(registry)] == ["deleting"][ends:]


def test_what_was_submitted_again_while_it_was_being_killed_is_not_said_to_be_killed(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    view = put(registry, "running")

    def meanwhile(*_args: object) -> list[object]:
        view.delete()
        put(registry, "running", now_ms=2)
        return []

    monkeypatch.setattr(lifecycle, "kill_containers", meanwhile)
    kill_dataflow(registry, "delays", tmp_path)
    assert (view.status().state, view.history().events) == ("running", ())


def test_what_a_master_says_while_a_dataflow_is_being_killed_is_not_the_last_word(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    view = put(registry, "running")

    def meanwhile(*_args: object) -> list[object]:
        view.set_status(view.status().model_copy(update={"state": "stopping", "error": "all at once"}))
        return []

    monkeypatch.setattr(lifecycle, "kill_containers", meanwhile)
    kill_dataflow(registry, "delays", tmp_path)
    assert (view.status().state, view.status().error) == ("killed", "all at once")
    assert [event.kind for event in view.history().events] == ["killed"]


def test_a_start_that_the_deletion_overtakes_does_not_take_its_mark_away(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    view = put(registry)

    def overtaken(there: DataflowView) -> str:
        name = new_master_name(there)
        cut_short(view, monkeypatch)
        return name

    monkeypatch.setattr("scribengin.operations.submit.submit.new_master_name", overtaken)
    with pytest.raises(DataflowBusy, match="`scribengin delete delays` ends it"):
        start_again(DataflowView(registry, "delays"), tmp_path)
    assert view.status().state == "deleting"
