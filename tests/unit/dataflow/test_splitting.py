"""Which tasks are made for the streams there are, at first and later."""

from __future__ import annotations

import pytest

from scribengin.connectors.contract import SinkStreamDescriptor, SourceStreamDescriptor
from scribengin.dataflow.registry.descriptors import TaskDescriptor
from scribengin.dataflow.tasks import ComingsAndGoings, Missing, missing_tasks, regrouped_tasks, task_name


def streams(**counts: int) -> dict[str, list[SourceStreamDescriptor]]:
    return {s: [SourceStreamDescriptor(source=s, name=str(k)) for k in range(n)] for s, n in counts.items()}


def sinks(count: int) -> dict[str, list[SinkStreamDescriptor]]:
    return {"out": [SinkStreamDescriptor(sink="out", resource="log:/logs/out", name=str(k)) for k in range(count)]}


def by_name(missing: Missing) -> dict[str, TaskDescriptor]:
    return {task.name: task for task in missing.tasks}


def reads(task: TaskDescriptor) -> list[str]:
    return [f"{stream.source}/{stream.name}" for stream in task.sources]


def test_at_first_every_stream_of_the_largest_source_gets_a_task() -> None:
    tasks = missing_tasks({}, streams(a=3, b=1), None, sinks).tasks
    assert [reads(task) for task in tasks] == [["a/0", "b/0"], ["a/1"], ["a/2"]]


def test_nothing_new_means_nothing_to_make() -> None:
    existing = by_name(missing_tasks({}, streams(a=2), None, sinks))
    assert missing_tasks(existing, streams(a=2), None, sinks) == Missing()


def test_a_new_stream_gets_a_task_of_its_own_behind_the_others() -> None:
    existing = by_name(missing_tasks({}, streams(a=2), None, sinks))
    found = streams(a=3)
    found["a"].reverse()  # it may be listed anywhere
    (task,) = missing_tasks(existing, found, None, sinks).tasks
    assert (task.name, reads(task), task.sinks[0].name) == ("task-2", ["a/2"], "2")


def test_new_streams_of_several_sources_share_tasks() -> None:
    existing = by_name(missing_tasks({}, streams(a=1, b=1), None, sinks))
    tasks = missing_tasks(existing, streams(a=3, b=2), None, sinks).tasks
    assert [(task.name, reads(task)) for task in tasks] == [("task-1", ["a/1", "b/1"]), ("task-2", ["a/2"])]


def test_with_a_fixed_number_of_tasks_new_streams_join_the_task_with_the_fewest() -> None:
    existing = by_name(missing_tasks({}, streams(a=3), 2, sinks))
    found = missing_tasks(existing, streams(a=6), 2, sinks)
    assert found.tasks == ()
    assert [(task.name, reads(task)) for task in found.grown] == [
        ("task-0", ["a/0", "a/2", "a/4"]),
        ("task-1", ["a/1", "a/3", "a/5"]),
    ]
    assert [task.sinks for task in found.grown] == [existing[task.name].sinks for task in found.grown]


def test_streams_of_several_sources_that_come_together_join_the_same_tasks() -> None:
    existing = by_name(missing_tasks({}, streams(a=2, b=2), 2, sinks))
    found = missing_tasks(existing, streams(a=4, b=4), 2, sinks)
    assert [reads(task) for task in found.grown] == [["a/0", "b/0", "a/2", "b/2"], ["a/1", "b/1", "a/3", "b/3"]]


def test_a_task_that_no_stream_joins_stays_as_it_is() -> None:
    existing = by_name(missing_tasks({}, streams(a=3), 2, sinks))
    assert [task.name for task in missing_tasks(existing, streams(a=4), 2, sinks).grown] == ["task-1"]


def test_fewer_streams_than_tasks_wanted_leave_room_for_later_ones() -> None:
    existing = by_name(missing_tasks({}, streams(a=1), 2, sinks))
    later = missing_tasks(existing, streams(a=4), 2, sinks)
    assert [reads(task) for task in later.tasks] == [["a/1"]]
    assert [reads(task) for task in later.grown] == [["a/0", "a/2", "a/3"]]


def two_sinks(count: int) -> dict[str, list[SinkStreamDescriptor]]:
    bad = [SinkStreamDescriptor(sink="bad", resource="log:/logs/bad", name=str(k)) for k in range(count)]
    return {**sinks(count), "bad": bad}


def test_a_sink_that_was_added_gets_a_stream_of_every_task_there_is() -> None:
    existing = by_name(missing_tasks({}, streams(a=3), 2, sinks))
    found = missing_tasks(existing, streams(a=4), 2, two_sinks, {"out", "bad"})
    assert [(reads(task), [(s.sink, s.name) for s in task.sinks]) for task in found.grown] == [
        (["a/0", "a/2"], [("out", "0"), ("bad", "0")]),
        (["a/1", "a/3"], [("out", "1"), ("bad", "1")]),
    ]
    assert missing_tasks(by_name(Missing(found.grown)), streams(a=4), 2, two_sinks, {"out", "bad"}) == Missing()


def test_what_has_joined_is_not_missing_any_more() -> None:
    existing = by_name(missing_tasks({}, streams(a=3), 2, sinks))
    grown = missing_tasks(existing, streams(a=5), 2, sinks).grown
    assert missing_tasks({**existing, **{task.name: task for task in grown}}, streams(a=5), 2, sinks) == Missing()


def test_a_stream_that_vanished_changes_nothing() -> None:
    existing = by_name(missing_tasks({}, streams(a=3), None, sinks))
    assert missing_tasks(existing, streams(a=1), None, sinks) == Missing()


def gone(*names: str) -> frozenset[tuple[str, str]]:
    return frozenset(("a", name) for name in names)


def test_a_stream_that_comes_takes_a_task_that_has_finished_and_whoever_is_gone_leaves_it() -> None:
    existing = by_name(missing_tasks({}, streams(a=3), None, sinks))
    moves = ComingsAndGoings(free=("task-1",), takers={"a"}, leaving=gone("1"))
    found = missing_tasks(existing, streams(a=5), None, sinks, moves=moves)
    assert [(task.name, reads(task)) for task in found.grown] == [("task-1", ["a/3"])]
    assert found.grown[0].sinks == existing["task-1"].sinks
    assert [(task.name, reads(task)) for task in found.tasks] == [("task-3", ["a/4"])]
    assert found.left == gone("1")


def test_whoever_is_gone_needs_no_task_and_who_is_back_joins_the_one_that_has_read_it() -> None:
    existing = by_name(missing_tasks({}, streams(a=3), None, sinks))
    moves = ComingsAndGoings(gone=gone("3", "4"), homes={("a", "5"): "task-2", ("a", "6"): "task-9"}, free=("task-2",))
    found = missing_tasks(existing, streams(a=7), None, sinks, moves=moves)
    assert [(task.name, reads(task)) for task in found.grown] == [("task-2", ["a/2", "a/5"])]
    assert [reads(task) for task in found.tasks] == [["a/6"]]  # nobody has a task of that name any more


def test_with_a_fixed_number_of_tasks_those_that_are_gone_count_nothing_and_leave_when_another_joins() -> None:
    existing = by_name(missing_tasks({}, streams(a=5), 2, sinks))
    moves = ComingsAndGoings(leaving=gone("0", "4"))
    found = missing_tasks(existing, streams(a=7), 2, sinks, moves=moves)
    assert [(task.name, reads(task)) for task in found.grown] == [("task-0", ["a/2", "a/5", "a/6"])]
    assert found.left == gone("0", "4")


def test_whoever_is_gone_is_in_no_task_when_all_are_grouped_anew() -> None:
    existing = by_name(missing_tasks({}, streams(a=2), None, sinks))
    moves = ComingsAndGoings(gone=gone("2", "3"))
    assert [reads(task) for task in regrouped_tasks(existing, streams(a=5), 1, sinks, moves)] == [["a/0", "a/1", "a/4"]]
    # A master that died in the middle of that has left no task at all.
    assert [reads(task) for task in missing_tasks({}, streams(a=5), 1, sinks, moves=moves).tasks] == [
        ["a/0", "a/1", "a/4"]
    ]
    all_gone = ComingsAndGoings(gone=gone("0", "1"))
    assert [reads(task) for task in missing_tasks({}, streams(a=2), 1, sinks, moves=all_gone).tasks] == [["a/0", "a/1"]]


def test_only_a_stream_of_a_source_whose_streams_come_and_go_takes_a_task_that_has_finished() -> None:
    existing = by_name(missing_tasks({}, streams(a=1, b=1), None, sinks))
    moves = ComingsAndGoings(free=("task-0",), takers={"b"}, leaving=frozenset({("b", "0")}))
    found = missing_tasks(existing, streams(a=2, b=2), None, sinks, moves=moves)
    assert [reads(task) for task in found.grown] == [["a/0", "b/1"]]
    assert [reads(task) for task in found.tasks] == [["a/1"]]


@pytest.mark.parametrize("wanted", [None, 1, 2, 9])
def test_a_task_is_given_so_many_streams_that_come_back_and_others_share_the_rest(wanted: int | None) -> None:
    existing = by_name(missing_tasks({}, streams(a=2), min(wanted or 2, 2), sinks))
    back = {("a", str(k)): "task-0" for k in range(2, 802)}
    found = missing_tasks(existing, streams(a=802), wanted, sinks, moves=ComingsAndGoings(homes=back))
    tasks = {**existing, **{task.name: task for task in (*found.grown, *found.tasks)}}
    assert sorted(s.name for task in tasks.values() for s in task.sources) == sorted(map(str, range(802)))
    assert [task.name for task in tasks.values()] == [task_name(k) for k in range(len(tasks))]
    each = [len(task.sources) for task in tasks.values()]
    assert each == {1: [802], 2: [401, 401]}.get(wanted or 0, [100, 100, *[86] * 7])
