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

Streams may come and go, as producers do (`ComingsAndGoings`). One that is gone leaves its task when another one joins
that, and a task that has finished is the first that a new one joins. So there are no more tasks than streams were there
at once. Where a stream was read up to stays in its commit log. One that comes back goes on there, in the task that has
read it last: what it had before is in the output of that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from scribengin.connectors.contract import SinkStreamDescriptor, SourceStreamDescriptor
from scribengin.dataflow.registry.descriptors import TaskDescriptor

SinkStreams = Callable[[int], Mapping[str, Sequence[SinkStreamDescriptor]]]
SourceStreams = Mapping[str, Sequence[SourceStreamDescriptor]]
StreamKey = tuple[str, str]
"""A source, and the name of a stream of it."""


def stream_key(stream: SourceStreamDescriptor) -> StreamKey:
    """What a stream is known by."""
    return (stream.source, stream.name)


@dataclass(frozen=True, slots=True)
class ComingsAndGoings:
    """What is known of streams that come and go. By default all stay."""

    gone: Set[StreamKey] = frozenset()
    """Those that no task reads, and that need none: they have ended where they were read up to."""
    homes: Mapping[StreamKey, str] = field(default_factory=dict)
    """Of those that are back, and that no task reads: the task that has read each last."""
    free: Sequence[str] = ()
    """The tasks that have finished, in the order in which others take them."""
    leaves: Callable[[SourceStreamDescriptor], bool] = lambda _: False
    """Whether a stream that a task reads is gone."""

    def wanted(self, streams: SourceStreams) -> dict[str, list[SourceStreamDescriptor]]:
        """The streams without those that need no task."""
        return {name: [s for s in found if stream_key(s) not in self.gone] for name, found in streams.items()}


STAYING = ComingsAndGoings()


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
    left: frozenset[StreamKey] = frozenset()
    """The streams that leave those then, for they are gone."""


def missing_tasks(
    existing: Mapping[str, TaskDescriptor],
    streams: SourceStreams,
    wanted: int | None,
    sink_streams: SinkStreams,
    sinks: Set[str] = frozenset(),
    moves: ComingsAndGoings = STAYING,
) -> Missing:
    """The tasks to add to the `existing` ones, and what joins these: streams, and what they do not write yet of the
    `sinks` there are. `sink_streams` gives the first so many streams of every sink."""
    if not existing:
        wanted_ones = moves.wanted(streams)
        there: SourceStreams = wanted_ones if any(wanted_ones.values()) else streams  # without a task it is none
        count = task_count(there, wanted)
        return Missing(tuple(split_into_tasks(there, sink_streams(count), count)))
    read = {stream_key(stream) for task in existing.values() for stream in task.sources}
    unread = {name: [s for s in found if stream_key(s) not in read] for name, found in moves.wanted(streams).items()}
    joining = _Joining(with_sinks(existing, sinks, sink_streams), moves)
    unread = joining.go_home(unread)
    unread = joining.take_free_ones(unread)
    room = None if wanted is None else max(0, wanted - len(existing))
    added = {name: found[:room] for name, found in unread.items()}
    joining.join_the_smallest({name: [] if room is None else found[room:] for name, found in unread.items()})
    return Missing(
        tuple(_appended(len(existing), added, sink_streams)),
        tuple(task for name, task in joining.tasks.items() if task is not existing[name]),
        frozenset(joining.left),
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
    existing: Mapping[str, TaskDescriptor],
    streams: SourceStreams,
    wanted: int | None,
    sink_streams: SinkStreams,
    moves: ComingsAndGoings = STAYING,
) -> tuple[TaskDescriptor, ...]:
    """All tasks, for streams that were grouped otherwise before."""
    known = {stream_key(s): s for task in existing.values() for s in task.sources}
    same = {name: [known.get(stream_key(s), s) for s in found] for name, found in moves.wanted(streams).items()}
    count = task_count(same, wanted)
    return tuple(split_into_tasks(same, sink_streams(count), count))


def _appended(first: int, added: SourceStreams, sink_streams: SinkStreams) -> list[TaskDescriptor]:
    count = task_count(added, None)
    if not count:
        return []
    sinks = {name: streams[first:] for name, streams in sink_streams(first + count).items()}
    tasks = split_into_tasks(added, sinks, count)
    return [task.model_copy(update={"name": task_name(first + k)}) for k, task in enumerate(tasks)]


class _Joining:
    """Streams that join tasks there are."""

    def __init__(self, tasks: Mapping[str, TaskDescriptor], moves: ComingsAndGoings) -> None:
        self.tasks = dict(tasks)
        self.left: set[StreamKey] = set()
        self._moves = moves
        self._joined: set[str] = set()

    def go_home(self, streams: SourceStreams) -> dict[str, list[SourceStreamDescriptor]]:
        """Those that are back join the tasks that they were in. Returns the others."""
        others: dict[str, list[SourceStreamDescriptor]] = {}
        for source, found in streams.items():
            others[source] = []
            for stream in found:
                home = self._moves.homes.get(stream_key(stream))
                if home in self.tasks:
                    self._join(home, stream)
                else:
                    others[source].append(stream)
        return others

    def take_free_ones(self, streams: SourceStreams) -> dict[str, list[SourceStreamDescriptor]]:
        """A stream of each source joins each task that has finished. Returns the others."""
        free = [task for task in self._moves.free if task not in self._joined]
        for k, task in enumerate(free):
            for found in streams.values():
                for stream in found[k : k + 1]:
                    self._join(task, stream)
        return {source: list(found[len(free) :]) for source, found in streams.items()}

    def join_the_smallest(self, streams: SourceStreams) -> None:
        """Each joins the task that has the fewest of its source which are there."""
        for source, found in streams.items():
            if not found:
                continue
            count = {name: self._there(task, source) for name, task in self.tasks.items()}
            for stream in found:
                fewest = min(count, key=lambda name: count[name])
                count[fewest] += 1
                self._join(fewest, stream)

    def _there(self, task: TaskDescriptor, source: str) -> int:
        return sum(s.source == source and not self._moves.leaves(s) for s in task.sources)

    def _join(self, name: str, stream: SourceStreamDescriptor) -> None:
        task = self.tasks[name]
        leaving = set() if name in self._joined else {stream_key(s) for s in task.sources if self._moves.leaves(s)}
        self._joined.add(name)
        self.left |= leaving
        stay = tuple(s for s in task.sources if stream_key(s) not in leaving)
        self.tasks[name] = task.model_copy(update={"sources": (*stay, stream)})
