"""Splitting: source streams and sink streams into tasks. Pure.

The seed: a task has at least one SourceStream and at least one SinkStream, several for a join or a split. Task k
takes the k-th streams of every source (round robin where a source has more) and the k-th stream of every sink. The
grouping may change at any time: positions belong to (dataflow, source stream), so a stream takes its position along.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scribengin.connectors.contract import SinkStreamDescriptor, SourceStreamDescriptor
from scribengin.dataflow.registry.descriptors import TaskDescriptor


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
    """`count` tasks over all streams: every source stream in exactly one task, one stream of every sink in each task.

    `sinks` holds at least `count` streams of every sink. Names are stable: `task-0` ... in order of the streams.
    """
    return [
        TaskDescriptor(
            name=task_name(k),
            sources=tuple(stream for streams in sources.values() for stream in streams[k::count]),
            sinks=tuple(streams[k] for streams in sinks.values()),
        )
        for k in range(count)
    ]
