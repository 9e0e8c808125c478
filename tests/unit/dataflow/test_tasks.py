"""Splitting streams into tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scribengin.connectors.contract import SinkStreamDescriptor, SourceStreamDescriptor
from scribengin.dataflow.tasks import split_into_tasks, task_count


def sources(**counts: int) -> dict[str, list[SourceStreamDescriptor]]:
    return {
        name: [SourceStreamDescriptor(source=name, name=f"{name}-{k}") for k in range(n)] for name, n in counts.items()
    }


def sinks(count: int) -> dict[str, list[SinkStreamDescriptor]]:
    return {"out": [SinkStreamDescriptor(sink="out", resource="log:/logs/out", name=str(k)) for k in range(count)]}


def test_by_default_there_is_one_task_a_stream_of_the_largest_source() -> None:
    assert task_count(sources(a=4, b=2), None) == 4


def test_there_are_never_more_tasks_than_the_largest_source_has_streams() -> None:
    assert task_count(sources(a=4, b=2), 9) == 4


def test_a_task_takes_the_streams_of_every_source_and_one_stream_of_every_sink() -> None:
    first, second = split_into_tasks(sources(a=4, b=2), sinks(2), 2)
    assert [s.name for s in first.sources] == ["a-0", "a-2", "b-0"]
    assert [s.name for s in second.sources] == ["a-1", "a-3", "b-1"]
    assert [s.name for s in second.sinks] == ["1"]


def test_the_one_task_of_a_divided_sink_takes_all_its_streams() -> None:
    [task] = split_into_tasks(sources(a=2), sinks(8), 1)
    assert [s.name for s in task.sinks] == [str(k) for k in range(8)]


def test_several_tasks_share_the_streams_of_a_divided_sink_as_those_of_a_source() -> None:
    tasks = split_into_tasks(sources(a=4), sinks(8), 2)
    assert [[s.name for s in task.sources] for task in tasks] == [["a-0", "a-2"], ["a-1", "a-3"]]
    assert [[s.name for s in task.sinks] for task in tasks] == [["0", "2", "4", "6"], ["1", "3", "5", "7"]]


@given(st.integers(1, 40), st.integers(0, 40), st.integers(1, 40))
def test_every_source_stream_is_in_exactly_one_task(a: int, b: int, wanted: int) -> None:
    streams = sources(a=a, b=b)
    count = task_count(streams, wanted)
    tasks = split_into_tasks(streams, sinks(count), count)
    placed = [stream for task in tasks for stream in task.sources]
    assert sorted(s.name for s in placed) == sorted(s.name for of_source in streams.values() for s in of_source)
    assert all(task.sources and task.sinks for task in tasks)
