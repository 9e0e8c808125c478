"""Which tasks are made for the streams there are, at first and later."""

from __future__ import annotations

from scribengin.connectors.contract import SinkStreamDescriptor, SourceStreamDescriptor
from scribengin.dataflow.descriptors import TaskDescriptor
from scribengin.master.splitting import Missing, missing_tasks


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


def test_with_a_fixed_number_of_tasks_new_streams_are_named_and_not_read() -> None:
    existing = by_name(missing_tasks({}, streams(a=3), 2, sinks))
    assert len(existing) == 2
    assert missing_tasks(existing, streams(a=5), 2, sinks) == Missing((), ("a/3", "a/4"))


def test_fewer_streams_than_tasks_wanted_leave_room_for_later_ones() -> None:
    existing = by_name(missing_tasks({}, streams(a=1), 2, sinks))
    later = missing_tasks(existing, streams(a=3), 2, sinks)
    assert [reads(task) for task in later.tasks] == [["a/1"]]
    assert later.ignored == ("a/2",)


def test_a_stream_that_vanished_changes_nothing() -> None:
    existing = by_name(missing_tasks({}, streams(a=3), None, sinks))
    assert missing_tasks(existing, streams(a=1), None, sinks) == Missing()
