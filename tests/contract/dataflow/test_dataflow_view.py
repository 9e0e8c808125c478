"""The typed view of a dataflow, on a real registry."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from scribengin.connectors.contract import SinkStreamDescriptor, SourceStreamDescriptor
from scribengin.dataflow.config import DataflowConfig, load_config
from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.deletion import delete_nodes
from scribengin.dataflow.registry.descriptors import (
    HISTORY_EVENTS_MAX,
    HistoryEvent,
    PlacementHead,
    TaskAssignment,
    TaskDescriptor,
    WorkerDescriptor,
)
from scribengin.dataflow.registry.view import DataflowView, Versioned, dataflow_names
from scribengin.errors import ConfigInvalid, DataflowExists, DataflowNotFound, ResourceTaken
from scribengin_registry.contract import Create, Delete, Operation, Registry
from scribengin_registry.errors import NodeMissing, VersionConflict

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
    delete_nodes(view)
    assert tree(view.registry, paths.ROOT) == [
        "/scribengin",
        "/scribengin/dataflows",
        "/scribengin/locks",
        "/scribengin/locks/sinks",
        "/scribengin/locks/sources",
        "/scribengin/numbers",
        "/scribengin/numbers/delays",
    ]
    DataflowView(view.registry, "other").submit(config("other"), [RESOURCE], now_ms=2)


def test_a_deletion_that_was_cut_short_is_seen_and_can_be_brought_to_its_end(
    view: DataflowView, monkeypatch: pytest.MonkeyPatch
) -> None:
    view.registry.create(paths.commit_log(view.paths.source_stream("flights", "flights/0")), parents=True)
    steps: list[Sequence[Operation]] = []
    commit = type(view.registry).commit

    def dying(registry: Registry, operations: Sequence[Operation]) -> object:
        if len(steps) == 3:
            raise SystemExit
        steps.append(operations)
        return commit(registry, operations)

    monkeypatch.setattr(type(view.registry), "commit", dying)
    with pytest.raises(SystemExit):
        delete_nodes(view)
    monkeypatch.undo()
    assert view.status().state == "deleting"
    delete_nodes(view)
    assert dataflow_names(view.registry) == []


def test_masters_that_come_and_go_meanwhile_do_not_keep_a_dataflow_from_being_deleted(
    view: DataflowView, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = type(view.registry).commit
    standing = [f"{view.paths.history}/comes", f"{view.paths.status}/stays"]

    def crowded(registry: Registry, operations: Sequence[Operation]) -> object:
        if standing and Delete(view.paths.root) in operations:
            registry.create(standing.pop())
        return commit(registry, operations)

    monkeypatch.setattr(type(view.registry), "commit", crowded)
    delete_nodes(view)
    assert (standing, dataflow_names(view.registry)) == ([], [])


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


@pytest.mark.parametrize("data", [b"{", b"", b"\xff\xfe", b'{"format": 99, "events": []}'])
def test_a_history_that_somebody_has_damaged_begins_anew_and_says_so(view: DataflowView, data: bytes) -> None:
    """Each event of a master goes there: it would end at each, and the next one, too."""
    view.registry.set(view.paths.history, data)
    happened = HistoryEvent(at_ms=7, kind="test", message="happened")
    view.add_history([happened])
    lost, *after = view.history().events
    assert (lost.at_ms, lost.kind, after) == (7, "history_lost", [happened])
    assert "/scribengin/dataflows/delays/history does not hold a History" in lost.message


@pytest.mark.parametrize("letter", ["飛", "\n", "\x1b", "x"])
def test_a_history_of_long_messages_keeps_as_many_as_a_node_takes(view: DataflowView, letter: str) -> None:
    events = [HistoryEvent(at_ms=k, kind="test", message=letter * 5000) for k in range(2 * HISTORY_EVENTS_MAX)]
    view.add_history(events[:-1])
    view.add_history(events[-1:])
    kept = [event.at_ms for event in view.history().events]
    assert kept == list(range(2 * HISTORY_EVENTS_MAX))[-len(kept) :]
    assert len(kept) > 40


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
    assignment = TaskAssignment(task="task-0", generation=1)
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
        Create(
            view.paths.assignment("w1", "e0", f"task-{k}"), TaskAssignment(task=f"task-{k}", generation=k).to_bytes()
        )
        for k in range(450)
    ]
    after = view.commit_placement(view.placement_head(), places)
    assert len(view.assignments("w1", "e0")) == 450
    view.commit_placement(after, view.worker_removal("w1"))
    assert view.workers() == []


def grouped(number: int, *streams: str) -> TaskDescriptor:
    sources = tuple(SourceStreamDescriptor(source="flights", name=name) for name in streams)
    sink = SinkStreamDescriptor(sink="late", resource=RESOURCE, name=str(number))
    return TaskDescriptor(name=f"task-{number}", sources=sources, sinks=(sink,))


def test_regrouped_tasks_are_all_there_or_none_are_at_every_step(view: DataflowView) -> None:
    before = [grouped(0, "a", "d"), grouped(1, "b"), grouped(2, "c")]
    view.commit_placement(view.placement_head(), view.creation_of_tasks(before, 3))
    assert view.task_set().grouped_for == 3
    changed = [grouped(0, "a", "c", "d")]
    operations = view.replacement_of_tasks(("task-0", "task-2"), changed, 2, 2)
    for step, operation in enumerate(operations, 1):
        view.commit_placement(view.placement_head(), [operation])
        last = step == len(operations)
        assert list(view.tasks().values()) == ([*changed, before[1]] if last else [])
    assert view.task_set().grouped_for == 2
    assert sorted(view.registry.children(view.paths.task_descriptors)) == ["task-0", "task-1"]


def test_a_task_that_grows_is_as_it_was_until_it_is_what_it_will_be(view: DataflowView) -> None:
    view.commit_placement(view.placement_head(), view.creation_of_tasks([grouped(0, "a"), grouped(1, "b")], 2))
    grown = grouped(0, "a", "c", "d")
    half = view.growth_of_task(grown)[:1]
    view.commit_placement(view.placement_head(), half)  # and that master died
    assert view.tasks()["task-0"] == grouped(0, "a")
    for operation in view.growth_of_task(grown):
        assert view.tasks()["task-0"] == grouped(0, "a")
        view.commit_placement(view.placement_head(), [operation])
    assert list(view.tasks().values()) == [grown, grouped(1, "b")]
    path = f"{view.paths.task_descriptor('task-0')}/sources/flights"
    assert view.registry.children(path) == ["a", "c", "d"]


def test_a_task_that_another_stream_takes_is_one_or_the_other_at_every_step(view: DataflowView) -> None:
    before, after = grouped(0, "a", "b"), grouped(0, "c")
    view.commit_placement(view.placement_head(), view.creation_of_tasks([before], 1))
    path = f"{view.paths.task_descriptor('task-0')}/sources/flights"
    operations = view.growth_of_task(after)
    for operation in operations:
        view.commit_placement(view.placement_head(), [operation])
        assert view.tasks()["task-0"] == (before if operation is operations[0] else after)
    assert view.registry.children(path) == ["c"]
    view.commit_placement(view.placement_head(), view.growth_of_task(before)[:-1])  # and that master died
    assert (view.tasks()["task-0"], sorted(view.registry.children(path))) == (before, ["a", "b", "c"])
    view.commit_placement(view.placement_head(), view.growth_of_task(grouped(0, "b", "d")))
    assert sorted(view.registry.children(path)) == ["b", "d"]


def test_a_master_that_finds_no_tasks_makes_them_over_what_was_left(view: DataflowView) -> None:
    view.commit_placement(view.placement_head(), view.creation_of_tasks([grouped(0, "a"), grouped(1, "b")]))
    *half, _ = view.replacement_of_tasks(("task-0", "task-1"), [grouped(0, "a", "b")], 1, 1)
    view.commit_placement(view.placement_head(), half)
    view.commit_placement(view.placement_head(), view.creation_of_tasks([grouped(0, "a", "b")], 1))
    assert list(view.tasks()) == ["task-0"]


def test_tasks_that_are_replaced_while_they_are_read_are_read_again(
    view: DataflowView, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = view.placement_head()
    head = view.commit_placement(head, view.creation_of_tasks([grouped(0, "a"), grouped(1, "b")]))
    replaced = [view.replacement_of_tasks(("task-0", "task-1"), [grouped(0, "a", "b")], 1, 1)]
    read = DataflowView.task

    def read_late(self: DataflowView, name: str) -> TaskDescriptor:
        if name == "task-1" and replaced:
            view.commit_placement(head, replaced.pop())
        return read(self, name)

    monkeypatch.setattr(DataflowView, "task", read_late)
    assert view.tasks() == {"task-0": grouped(0, "a", "b")}


def test_a_task_that_is_missing_from_its_set_is_an_error(view: DataflowView) -> None:
    view.commit_placement(view.placement_head(), view.creation_of_tasks([grouped(0, "a")]))
    view.registry.delete(view.paths.task_descriptor("task-0"), recursive=True)
    with pytest.raises(NodeMissing, match="task-0"):
        view.tasks()
