"""A dataflow that is deleted and submitted again uses no name, generation or epoch once more, so nothing that is left
of the first one is taken for its own."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from scribengin.base.commit_log import CommitLog
from scribengin.dataflow.config import DataflowConfig, load_config
from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.deletion import delete_nodes
from scribengin.dataflow.registry.descriptors import PlacementHead, WorkerDescriptor
from scribengin.dataflow.registry.view import DataflowView, Versioned
from scribengin.dataflow.round.commit_logs import TaskCommitLogs
from scribengin.errors import StaleOwner
from scribengin_registry.contract import Operation, Registry

RESOURCE = "log:/logs/late"


def config(name: str = "delays") -> DataflowConfig:
    sources = {"flights": {"kind": "log", "logs": "flights/*"}}
    sinks = {"late": {"kind": "log", "log": "late"}}
    return load_config({"name": name, "sources": sources, "sinks": sinks, "sql": "SELECT payload FROM flights"})


def submitted(registry: Registry, name: str = "delays") -> DataflowView:
    view = DataflowView(registry, name)
    view.submit(config(name), [RESOURCE], now_ms=1)
    return view


def registered(view: DataflowView, name: str) -> str:
    view.register_worker(WorkerDescriptor(name=name, container=name, host="h", pid=1, executors=("e",), started_ms=1))
    return view.paths.worker(name)


def streams(view: DataflowView) -> list[str]:
    return [view.paths.source_stream("flights", "flights/0"), paths.sink_stream(RESOURCE, "0")]


def owned(view: DataflowView, owner: str, generation: int, member: str | None = None) -> TaskCommitLogs:
    ownership = TaskCommitLogs(view.registry, view.dataflow, "task-0", owner, generation, streams(view), member)
    ownership.take()
    return ownership


def head_of(view: DataflowView) -> PlacementHead:
    return view.placement_head().value


def test_names_generations_and_epochs_go_on_where_the_deleted_dataflow_ended(registry: Registry) -> None:
    view = submitted(registry)
    assert head_of(view) == PlacementHead()
    head = view.placement_head()
    used = head.value.model_copy(update={"next_worker": 4, "next_master": 3, "next_generation": 6})
    view.commit_placement(Versioned(used, head.version), [])
    for _ in range(8):
        last = owned(view, "worker-1/e", 5).epoch
    delete_nodes(view)
    again = head_of(submitted(registry))
    assert (again.next_worker, again.next_master, again.next_generation) == (4, 4, last + 1)
    assert (again.first_worker, again.first_master, again.first_generation) == (4, 3, last + 1)
    assert [again.is_foreign(name) for name in ("worker-3", "worker-4", "master-2", "master-3", "w1")] == [
        True,
        False,
        True,
        False,
        False,
    ]
    assert owned(view, "worker-4/e", again.next_generation).epoch > last


def test_another_dataflow_that_writes_the_same_sink_begins_with_names_of_its_own_and_higher_generations(
    registry: Registry,
) -> None:
    view = submitted(registry)
    head = view.placement_head()
    used = head.value.model_copy(update={"next_worker": 4, "next_generation": 6})
    view.commit_placement(Versioned(used, head.version), [])
    delete_nodes(view)
    other = head_of(submitted(registry, "other"))
    assert (other.next_worker, other.next_generation) == (1, 6)


def test_a_deletion_between_the_look_and_the_submission_counts(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = submitted(registry, "gone")
    head = gone.placement_head()
    gone.commit_placement(Versioned(head.value.model_copy(update={"next_generation": 77}), head.version), [])
    commit = type(registry).commit
    deleted: list[DataflowView] = []

    def late(one: Registry, operations: Sequence[Operation]) -> object:
        if not deleted:
            deleted.append(gone)
            delete_nodes(gone)
        return commit(one, operations)

    monkeypatch.setattr(type(registry), "commit", late)
    view = DataflowView(registry, "delays")
    view.submit(config(), [], now_ms=1)
    assert head_of(view).next_generation == 77


def test_an_orphan_of_the_deleted_dataflow_neither_takes_nor_commits_anything_of_the_new_one(
    registry: Registry,
) -> None:
    view = submitted(registry)
    orphan = owned(view, "worker-1/e", 1, registered(view, "worker-1"))
    orphan.begin({log: {"at": 0} for log in orphan.logs if "sources" in log})
    delete_nodes(view)
    view = submitted(registry)
    generation = head_of(view).next_generation
    owner = owned(view, "worker-2/e", generation, registered(view, "worker-2"))
    owner.begin({log: {"at": 0} for log in owner.logs if "sources" in log})
    moved = {path: orphan.moved(path) for path in orphan.logs}
    with pytest.raises(StaleOwner, match="worker-1 is gone"):
        orphan.commit(moved)  # the nodes have the very versions that it knows
    with pytest.raises(StaleOwner, match="worker-1 is gone"):
        orphan.take()
    owner.commit({path: owner.moved(path) for path in owner.logs})
    for path in owner.logs:
        assert CommitLog.from_bytes(registry.get(path).data, path=path).owner == "worker-2/e"


def test_an_orphan_that_is_faster_than_the_new_owner_makes_nothing(registry: Registry) -> None:
    view = submitted(registry)
    orphan = owned(view, "worker-1/e", 1, registered(view, "worker-1"))
    delete_nodes(view)
    view = submitted(registry)
    with pytest.raises(StaleOwner, match="worker-1 is gone"):
        orphan.take()
    assert [registry.find(path) for path in streams(view)] == [None, None]
