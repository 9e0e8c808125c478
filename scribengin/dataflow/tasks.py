"""Splitting: source streams and sink streams into tasks. Pure.

A task has at least one SourceStream and at least one SinkStream, several for a join or a split. Task k
takes the k-th streams of every source (round robin where a source has more) and the k-th stream of every sink. A sink
whose records are divided has more streams, which the tasks share in turn, as those of a source. The grouping may change
at any time: positions belong to (dataflow, source stream), so a stream takes its position along.

`missing_tasks` says which tasks are missing for the streams that there are. The first time all streams are grouped.
Later ones, that appear while the dataflow runs, get tasks of their own behind those there are, so that nothing that
works is touched; once there are as many tasks as the config wants, they join the task with the fewest. No stream that
is read already moves for it, so its output stays where it goes. Only another number of tasks groups all streams anew.
In that, streams that were read before keep the descriptors they have: those know more (where the stream ended when it
was found).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

from scribengin.connectors.contract import SinkStreamDescriptor, SourceStreamDescriptor
from scribengin.dataflow.registry.descriptors import TaskDescriptor

SinkStreams = Callable[[int], Mapping[str, Sequence[SinkStreamDescriptor]]]
SourceStreams = Mapping[str, Sequence[SourceStreamDescriptor]]


def task_name(number: int) -> str:
    """The name of task `number`: in order from 0, so that a count says which tasks there are."""
    return f"task-{number}"


def task_count(streams: Mapping[str, Sequence[SourceStreamDescriptor]], wanted: int | None) -> int:
    """How many tasks: as wanted, but never more than the largest source has streams, so that every task reads
    something.
    """
    largest = max((len(of_source) for of_source in streams.values()), default=0)
    return largest if wanted is None else min(wanted, largest)


def split_into_tasks(
    sources: Mapping[str, Sequence[SourceStreamDescriptor]],
    sinks: Mapping[str, Sequence[SinkStreamDescriptor]],
    count: int,
) -> list[TaskDescriptor]:
    """`count` tasks over all streams: every stream in exactly one task, one of every sink, or more, in each task.

    `sinks` holds at least `count` streams of every sink. Names are stable: `task-0` ... in order of the streams.
    """
    return [
        TaskDescriptor(
            name=task_name(k),
            sources=tuple(stream for streams in sources.values() for stream in streams[k::count]),
            sinks=tuple(stream for streams in sinks.values() for stream in streams[k::count]),
        )
        for k in range(count)
    ]


@dataclass(frozen=True, slots=True)
class Missing:
    """Tasks that are to be made, and those there are as they will be when further streams have joined them."""

    tasks: tuple[TaskDescriptor, ...] = ()
    grown: tuple[TaskDescriptor, ...] = ()


def missing_tasks(
    existing: Mapping[str, TaskDescriptor],
    streams: SourceStreams,
    wanted: int | None,
    sink_streams: SinkStreams,
    sinks: Set[str] = frozenset(),
) -> Missing:
    """The tasks to add to the `existing` ones, and what joins these: streams, and what they do not write yet of the
    `sinks` there are. `sink_streams` gives the first so many streams of every sink."""
    if not existing:
        count = task_count(streams, wanted)
        return Missing(tuple(split_into_tasks(streams, sink_streams(count), count)))
    read = {(stream.source, stream.name) for task in existing.values() for stream in task.sources}
    unread = {name: [s for s in found if (s.source, s.name) not in read] for name, found in streams.items()}
    room = None if wanted is None else max(0, wanted - len(existing))
    added = {name: found[:room] for name, found in unread.items()}
    left = {name: [] if room is None else found[room:] for name, found in unread.items()}
    whole = with_sinks(existing, sinks, sink_streams)
    grown = whole | {task.name: task for task in _grown(whole, left)}
    return Missing(
        tuple(_appended(len(existing), added, sink_streams)),
        tuple(task for name, task in grown.items() if task is not existing[name]),
    )


def with_sinks(
    existing: Mapping[str, TaskDescriptor], sinks: Set[str], sink_streams: SinkStreams
) -> dict[str, TaskDescriptor]:
    """The existing tasks, each with its stream of those of the `sinks` that it does not write yet."""
    if all(sinks <= {stream.sink for stream in task.sinks} for task in existing.values()):
        return dict(existing)
    streams = sink_streams(len(existing))
    whole = {}
    for k, (name, task) in enumerate(existing.items()):
        written = {stream.sink for stream in task.sinks}
        own = {sink: streams[sink][k :: len(existing)] for sink in streams if sink in sinks and sink not in written}
        added = tuple(stream for of_sink in own.values() for stream in of_sink)
        whole[name] = task.model_copy(update={"sinks": (*task.sinks, *added)})
    return whole


def regrouped_tasks(
    existing: Mapping[str, TaskDescriptor], streams: SourceStreams, wanted: int | None, sink_streams: SinkStreams
) -> tuple[TaskDescriptor, ...]:
    """All tasks, for streams that were grouped otherwise before."""
    known = {(s.source, s.name): s for task in existing.values() for s in task.sources}
    same = {name: [known.get((s.source, s.name), s) for s in found] for name, found in streams.items()}
    count = task_count(same, wanted)
    return tuple(split_into_tasks(same, sink_streams(count), count))


def _appended(first: int, added: SourceStreams, sink_streams: SinkStreams) -> list[TaskDescriptor]:
    count = task_count(added, None)
    if not count:
        return []
    sinks = {name: streams[first:] for name, streams in sink_streams(first + count).items()}
    tasks = split_into_tasks(added, sinks, count)
    return [task.model_copy(update={"name": task_name(first + k)}) for k, task in enumerate(tasks)]


def _grown(existing: Mapping[str, TaskDescriptor], left: SourceStreams) -> list[TaskDescriptor]:
    """Those of the existing tasks that streams join: each the one that has the fewest of its source."""
    joining: dict[str, list[SourceStreamDescriptor]] = {}
    for source, found in left.items():
        count = {name: sum(s.source == source for s in task.sources) for name, task in existing.items()}
        for stream in found:
            fewest = min(count, key=lambda name: count[name])
            count[fewest] += 1
            joining.setdefault(fewest, []).append(stream)
    return [
        task.model_copy(update={"sources": (*task.sources, *joining[name])})
        for name, task in existing.items()
        if name in joining
    ]
