"""The typed view of a dataflow, on a real registry."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scribengin.connectors.contract import SinkStreamDescriptor, SourceStreamDescriptor
from scribengin.dataflow import paths
from scribengin.dataflow.config import DataflowConfig, load_config
from scribengin.dataflow.descriptors import (
    HistoryEvent,
    PlacementHead,
    TaskAssignment,
    TaskDescriptor,
    WorkerDescriptor,
)
from scribengin.dataflow.view import HISTORY_EVENTS_MAX, DataflowView, Versioned, dataflow_names
from scribengin.errors import ConfigInvalid, DataflowExists, DataflowNotFound, ResourceTaken
from scribengin_registry.contract import Create, Registry
from scribengin_registry.errors import VersionConflict

RESOURCE = "log:/logs/late"


def config(name: str = "delays", **changes: Any) -> DataflowConfig:
    return load_config(
        {
            "name": name,
            "sources": {"flights": {"kind": "log", "logs": "flights/*"}},
            "sinks": {"late": {"kind": "log", "log": "late"}},
            "sql": "SELECT payload FROM flights",
            **changes,
        }
    )


@pytest.fixture
def view(registry: Registry) -> DataflowView:
    """A dataflow that has been submitted."""
    view = DataflowView(registry, "delays")
    view.submit(config(), [RESOURCE], now_ms=1)
    return view


def tree(registry: Registry, path: str = "/") -> list[str]:
    below = f"{path.rstrip('/')}/"
    return [path, *(node for child in registry.children(path) for node in tree(registry, below + child))]


def test_a_submitted_dataflow_reads_back(view: DataflowView) -> None:
    assert view.config() == Versioned(config(), 0)
    assert view.status().state == "starting"
    assert dataflow_names(view.registry) == ["delays"]


def test_a_second_dataflow_of_the_same_name_is_refused(view: DataflowView) -> None:
    with pytest.raises(DataflowExists, match="'delays' exists already"):
        view.submit(config(), [], now_ms=2)


def test_a_sink_that_another_dataflow_owns_is_refused_and_nothing_is_created(view: DataflowView) -> None:
    before = tree(view.registry)
    with pytest.raises(ResourceTaken, match="dataflow 'delays' writes log:/logs/late already"):
        DataflowView(view.registry, "other").submit(config("other"), ["log:/logs/free", RESOURCE], now_ms=2)
    assert tree(view.registry) == before


def test_a_deleted_dataflow_leaves_neither_positions_nor_claims(view: DataflowView) -> None:
    view.registry.create(paths.commit_log(view.paths.source_stream("flights", "flights/0")), parents=True)
    view.registry.create(paths.commit_log(paths.sink_stream(RESOURCE, "late/0")), parents=True)
    view.delete()
    assert tree(view.registry, paths.ROOT) == [
        "/scribengin",
        "/scribengin/dataflows",
        "/scribengin/locks",
        "/scribengin/locks/sinks",
        "/scribengin/locks/sources",
    ]
    DataflowView(view.registry, "other").submit(config("other"), [RESOURCE], now_ms=2)


def test_a_deletion_that_was_cut_short_is_seen_and_can_be_brought_to_its_end(
    view: DataflowView, monkeypatch: pytest.MonkeyPatch
) -> None:
    view.registry.create(paths.commit_log(view.paths.source_stream("flights", "flights/0")), parents=True)
    deletes: list[str] = []
    delete = type(view.registry).delete

    def dying(registry: Any, path: str, *args: Any, **options: Any) -> None:
        if len(deletes) == 3:
            raise SystemExit
        deletes.append(path)
        delete(registry, path, *args, **options)

    monkeypatch.setattr(type(view.registry), "delete", dying)
    with pytest.raises(SystemExit):
        view.delete()
    monkeypatch.undo()
    assert view.status().state == "deleting"
    view.delete()
    assert dataflow_names(view.registry) == []


def test_an_edit_upon_a_refused_one_starts_from_the_config_in_force(view: DataflowView) -> None:
    version = view.registry.set(view.paths.config, b"{")
    assert view.config_to_edit() == Versioned(config(), version)
    view.set_config(config(tasks=7), version)
    view.set_status(view.status().model_copy(update={"config_error": "tasks cannot be edited"}))
    assert view.config_to_edit() == Versioned(config(), version + 1)


def test_an_unknown_dataflow_is_named_with_those_that_exist(view: DataflowView) -> None:
    with pytest.raises(DataflowNotFound, match=r"no dataflow 'delay' .*\(there are: delays\)"):
        DataflowView(view.registry, "delay").status()


def test_an_edit_of_the_config_is_a_compare_and_set(view: DataflowView) -> None:
    version = view.set_config(config(workers=3), 0)
    assert view.config() == Versioned(config(workers=3), version)
    with pytest.raises(VersionConflict):
        view.set_config(config(workers=9), 0)


@pytest.mark.parametrize("data", [b"{", b"[]", json.dumps({"name": "delays", "workers": "many"}).encode()])
def test_a_bad_edit_by_hand_is_refused_with_the_node_named(view: DataflowView, data: bytes) -> None:
    view.registry.set(view.paths.config, data)
    with pytest.raises(ConfigInvalid, match="/scribengin/dataflows/delays/config"):
        view.config()


def test_the_history_keeps_the_last_events(view: DataflowView) -> None:
    events = [HistoryEvent(at_ms=k, kind="test", message=f"event {k}") for k in range(HISTORY_EVENTS_MAX + 5)]
    view.add_history(events[:3])
    view.add_history(events[3:])
    assert list(view.history().events) == events[5:]


def test_a_task_stands_in_the_tree_that_operators_look_at(view: DataflowView) -> None:
    task = TaskDescriptor(
        name="task-0",
        sources=(SourceStreamDescriptor(source="flights", name="flights/0"),),
        sinks=(SinkStreamDescriptor(sink="late", resource=RESOURCE, name="late/0"),),
    )
    view.commit_placement(view.placement_head(), view.creation_of_tasks([task]))
    assert view.tasks() == {"task-0": task}
    assert tree(view.registry, view.paths.task_descriptor("task-0"))[-3:] == [
        "/scribengin/dataflows/delays/task-descriptors/task-0/sources",
        "/scribengin/dataflows/delays/task-descriptors/task-0/sources/flights",
        "/scribengin/dataflows/delays/task-descriptors/task-0/sources/flights/flights%2F0",
    ]


def test_a_master_that_was_replaced_can_place_nothing(view: DataflowView) -> None:
    worker = WorkerDescriptor(name="w1", container="c", host="h", pid=1, executors=("e0",), started_ms=1)
    view.register_worker(worker)
    old = view.placement_head()
    new = view.commit_placement(Versioned(PlacementHead(master="new", epoch=1), old.version), [])
    assignment = TaskAssignment(task="task-0", lease=1)
    place = Create(view.paths.assignment("w1", "e0", "task-0"), assignment.to_bytes())
    with pytest.raises(VersionConflict):
        view.commit_placement(old, [place])
    assert view.assignments("w1", "e0") == []
    view.commit_placement(new, [place])
    assert [placed.assignment for placed in view.assignments("w1", "e0")] == [assignment]


def test_many_placements_are_sent_in_chunks_that_are_each_fenced(view: DataflowView) -> None:
    worker = WorkerDescriptor(name="w1", container="c", host="h", pid=1, executors=("e0",), started_ms=1)
    view.register_worker(worker)
    places = [
        Create(view.paths.assignment("w1", "e0", f"task-{k}"), TaskAssignment(task=f"task-{k}", lease=k).to_bytes())
        for k in range(450)
    ]
    after = view.commit_placement(view.placement_head(), places)
    assert len(view.assignments("w1", "e0")) == 450
    view.commit_placement(after, view.worker_removal("w1"))
    assert view.workers() == []
