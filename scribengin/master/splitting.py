"""Which tasks are missing for the streams that there are. Pure.

The first time all streams are grouped. Later ones, that appear while the dataflow runs, get tasks of their own behind
those there are, so that nothing that works is touched; with a fixed number of tasks they must wait for a full
regrouping. In that, streams that were read before keep the descriptors they have: those know more (where the stream
ended when it was found).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from scribengin.connectors.contract import SinkStreamDescriptor, SourceStreamDescriptor
from scribengin.dataflow.descriptors import TaskDescriptor
from scribengin.dataflow.tasks import split_into_tasks, task_count, task_name

SinkStreams = Callable[[int], Mapping[str, Sequence[SinkStreamDescriptor]]]
SourceStreams = Mapping[str, Sequence[SourceStreamDescriptor]]


@dataclass(frozen=True, slots=True)
class Missing:
    """Tasks that are to be made, and streams that no task will read (`source/stream`)."""

    tasks: tuple[TaskDescriptor, ...] = ()
    ignored: tuple[str, ...] = ()


def missing_tasks(
    existing: Mapping[str, TaskDescriptor], streams: SourceStreams, wanted: int | None, sink_streams: SinkStreams
) -> Missing:
    """The tasks to add to the `existing` ones; `sink_streams` gives the first so many streams of every sink."""
    if not existing:
        count = task_count(streams, wanted)
        return Missing(tuple(split_into_tasks(streams, sink_streams(count), count)))
    read = {(stream.source, stream.name) for task in existing.values() for stream in task.sources}
    unread = {name: [s for s in found if (s.source, s.name) not in read] for name, found in streams.items()}
    room = None if wanted is None else max(0, wanted - len(existing))
    ignored = () if room is None else tuple(f"{s.source}/{s.name}" for found in unread.values() for s in found[room:])
    added = {name: found[:room] for name, found in unread.items()}
    return Missing(tuple(_appended(len(existing), added, sink_streams)), ignored)


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
