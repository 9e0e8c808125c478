"""Splitting: source streams and sink streams into tasks. Pure.

A task has at least one SourceStream and at least one SinkStream, several for a join or a split. Task k
takes the k-th streams of every source (round robin where a source has more) and the k-th stream of every sink. A sink
whose records are divided has more streams, which the tasks share in turn, as those of a source. The grouping may change
at any time: positions belong to (dataflow, source stream), so a stream takes its position along.

`missing_tasks` says which tasks are missing for the streams that there are. The first time all streams are grouped.
Later ones, that appear while the dataflow runs, get tasks of their own behind those there are, and no task that works
is touched; once there are as many tasks as the config wants, they join the task with the fewest, which drains for it.
No stream that is read already moves for it, so its output stays where it goes. Only another number of tasks groups all
streams anew. In that, streams that were read before keep the descriptors they have: those know more (where the stream
ended when it was found).

Streams may come and go, as producers do (`ComingsAndGoings`). One that is gone leaves its task once that has finished
and another one joins it, and such a task is the first that a new one joins. So there are about as many tasks as streams
were there at once. Where a stream was read up to stays in its commit log. One that comes back goes on there, in the
task that has read it last, even if that works: what it had before is in the output of that. Only where many come back
at once, as after a rewind, those beyond `HOME_STREAMS_MAX` are read by others: a round commits all streams of its task
in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from scribengin.base.text.counting import many
from scribengin.connectors.contract import SinkStreamDescriptor, SourceStreamDescriptor
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry.descriptors import TaskDescriptor

SinkStreams = Callable[[int], Mapping[str, Sequence[SinkStreamDescriptor]]]
SourceStreams = Mapping[str, Sequence[SourceStreamDescriptor]]
_Streams = dict[str, list[SourceStreamDescriptor]]
StreamKey = tuple[str, str]
"""A source, and the name of a stream of it."""
HOME_STREAMS_MAX = 100
"""A task that has so many streams is given none that comes back, as long as there is another place for it. A round's
transaction has the commit logs of all of them. With about 780 producers of Dafka it is too large for the registry."""
WORKERS_UNASKED_MAX = 16
"""On one machine so many workers are taken, whatever there is for them to do."""


def idle_workers(config: DataflowConfig, tasks: int, *, submitted: bool = True) -> str | None:
    """Why so many workers on one machine must be a slip, for `tasks` tasks: a digit too many would take its memory, and
    with that all else that runs there. Each task may have a worker of its own, and one in reserve. As long as there is
    none, what the config says counts. A cluster has a queue instead. None: they are not too many."""
    tasks = tasks or config.tasks or 0
    limit = max(2 * tasks, WORKERS_UNASKED_MAX)
    if config.launcher != "local" or config.workers <= limit:
        return None
    say = f"say {limit} at most, or" if submitted else f"submit it with {limit} at most, and then"
    return (
        f"workers: {config.workers:,} on one machine, and '{config.name}' has {many(tasks, 'task')}: who has none does "
        f"nothing, and takes memory; {say} `scribengin config set {config.name} workers={config.workers} --force`"
    )


def crowding(before: DataflowConfig, config: DataflowConfig, tasks_total: int) -> str | None:
    """Why an edit that makes the workers more has too many for one machine, where the dataflow has so many tasks."""
    if config.workers <= before.workers:
        return None
    asked = config.tasks if config.tasks != before.tasks else None
    return idle_workers(config, tasks_total if asked is None else asked)


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
    takers: Set[str] = frozenset()
    """The sources whose streams take those."""
    leaving: Set[StreamKey] = frozenset()
    """The streams that are gone, and that a task has which has finished."""

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
    unread, crowded = joining.go_home(unread)
    unread = joining.take_free_ones(unread)
    room = None if wanted is None else max(0, wanted - len(existing))
    added = {name: found[:room] for name, found in unread.items()}
    crowded = joining.join_the_smallest(crowded, HOME_STREAMS_MAX)
    count = task_count(added, None)
    more = _tasks_of_many(crowded, None if room is None else room - count)
    joining.join_the_smallest({name: [] if room is None else found[room:] for name, found in unread.items()})
    if not more:
        joining.join_the_smallest(crowded)
    appended = _appended(len(existing), added, count, sink_streams)
    return Missing(
        (*appended, *_appended(len(existing) + count, crowded, more, sink_streams)),
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


def _tasks_of_many(crowded: SourceStreams, room: int | None) -> int:
    """How many tasks it takes for streams that need not be alone: no more than there is room for."""
    wanted = -(-sum(map(len, crowded.values())) // HOME_STREAMS_MAX)
    return task_count(crowded, wanted if room is None else min(wanted, room))


def _appended(first: int, added: SourceStreams, count: int, sink_streams: SinkStreams) -> list[TaskDescriptor]:
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

    def go_home(self, streams: SourceStreams) -> tuple[_Streams, _Streams]:
        """Those that are back join the tasks that they were in. Returns the new ones, and those whose task is full."""
        new: _Streams = {source: [] for source in streams}
        crowded: _Streams = {source: [] for source in streams}
        for source, found in streams.items():
            for stream in found:
                home = self._moves.homes.get(stream_key(stream))
                if home not in self.tasks:
                    new[source].append(stream)
                elif len(self._staying(home)) >= HOME_STREAMS_MAX:
                    crowded[source].append(stream)
                else:
                    self._join(home, stream)
        return new, crowded

    def take_free_ones(self, streams: SourceStreams) -> _Streams:
        """A stream of each source that is among the `takers` joins each task that has finished. Returns the others."""
        free = [task for task in self._moves.free if task not in self._joined]
        others: _Streams = {}
        for source, found in streams.items():
            taken = len(free) if source in self._moves.takers else 0
            for task, stream in zip(free, found[:taken], strict=False):
                self._join(task, stream)
            others[source] = list(found[taken:])
        return others

    def join_the_smallest(self, streams: SourceStreams, most: int | None = None) -> _Streams:
        """Each joins the task that has the fewest of its source which are there, unless that has the `most` streams
        already. Returns the others."""
        others: _Streams = {source: [] for source in streams}
        for source, found in streams.items():
            if not found:
                continue
            staying = {name: self._staying(name) for name in self.tasks}
            count = {name: sum(s.source == source for s in of_task) for name, of_task in staying.items()}
            whole = {name: len(of_task) for name, of_task in staying.items()}
            for stream in found:
                open_ones = [name for name in count if most is None or whole[name] < most]
                if not open_ones:
                    others[source].append(stream)
                    continue
                fewest = min(open_ones, key=lambda name: count[name])
                count[fewest] += 1
                whole[fewest] += 1
                self._join(fewest, stream)
        return others

    def _staying(self, name: str) -> Sequence[SourceStreamDescriptor]:
        """A task's streams, without those that leave as soon as another one joins it."""
        sources = self.tasks[name].sources
        return sources if name in self._joined else [s for s in sources if stream_key(s) not in self._moves.leaving]

    def _join(self, name: str, stream: SourceStreamDescriptor) -> None:
        task = self.tasks[name]
        leaving = set() if name in self._joined else self._moves.leaving & set(map(stream_key, task.sources))
        self._joined.add(name)
        self.left |= leaving
        stay = tuple(s for s in task.sources if stream_key(s) not in leaving)
        self.tasks[name] = task.model_copy(update={"sources": (*stay, stream)})
