"""Mistakes of protocol about streams that come and go, put in one at a time: what simulations find in which they do.

As `simulation_mistakes`, which has those of rounds, masters and workers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scribengin.dataflow.registry import gone_streams, paths
from scribengin.dataflow.registry.descriptors import TaskDescriptor
from scribengin.dataflow.registry.view import DataflowView
from scribengin.dataflow.round.commit_logs import TaskCommitLogs
from scribengin.dataflow.tasks import ComingsAndGoings, stream_key
from scribengin.master.ended_streams import EndedStreams
from scribengin.operations.rewind import Rewind
from scribengin.testing.simulation.streams.connectors import MemorySource
from scribengin_registry.contract import Delete, Operation
from tests.property.simulation_mistakes import Mistake


def forget_where_who_is_gone_was_read_up_to(patch: pytest.MonkeyPatch) -> None:
    """With a stream that leaves its task its commit log goes, too."""

    def growth(view: DataflowView, task: TaskDescriptor) -> list[Operation]:
        stay = set(map(stream_key, task.sources))
        left = [one for one in view.task(task.name).sources if stream_key(one) not in stay]
        logs = [paths.commit_log(view.paths.source_stream(one.source, one.name)) for one in left]
        return [*real(view, task), *(Delete(path) for path in logs if view.registry.find(path) is not None)]

    real = DataflowView.growth_of_task
    patch.setattr(DataflowView, "growth_of_task", growth)


def who_is_gone_stays_so(patch: pytest.MonkeyPatch) -> None:
    """A stream that has left its task is never read again."""

    def moves(self: EndedStreams, *said: Any) -> ComingsAndGoings:
        found = real(self, *said)
        return replace(found, gone=found.gone | found.homes.keys(), homes={})

    real = EndedStreams.moves
    patch.setattr(EndedStreams, "moves", moves)


def who_is_gone_is_known_for_ever(patch: pytest.MonkeyPatch) -> None:
    """Where a stream stood that has ended is remembered, whoever rewinds it."""
    patch.setattr(EndedStreams, "_forget_moved", lambda _self, _view, _sources: None)


def rewind_those_that_are_there(patch: pytest.MonkeyPatch) -> None:
    """A rewind leaves the streams where they are that have left their tasks."""

    def streams(self: Rewind, resources: Any) -> Any:
        read = {stream_key(stream) for task in self._view.tasks().values() for stream in task.sources}
        return ((task, stream) for task, stream in real(self, resources) if stream_key(stream) in read)

    real = Rewind._streams
    patch.setattr(Rewind, "_streams", streams)


def who_has_more_to_be_read_is_gone(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks whether all of a stream was read whose writer has gone."""
    patch.setattr(MemorySource, "goes_on", lambda self, stream, _position: not self._streams[stream.name].sealed)


def who_has_gone_is_said_nowhere(patch: pytest.MonkeyPatch) -> None:
    """The nodes of streams that are gone go, and no page says where they were read up to."""
    patch.setattr(gone_streams, "_written", lambda *_: [])


def who_is_back_begins_anew(patch: pytest.MonkeyPatch) -> None:
    """An owner takes a stream that has no nodes for one that nobody has read."""
    patch.setattr(TaskCommitLogs, "_gone", lambda _self, _streams: {})


def who_has_no_nodes_is_unknown(patch: pytest.MonkeyPatch) -> None:
    """A master takes a stream that has no nodes for a new one: another task may read it than before."""
    patch.setattr("scribengin.dataflow.registry.view.gone_ones", lambda *_: {})


def put_together_what_was_read_since(patch: pytest.MonkeyPatch) -> None:
    """What is deleted is not compared with what was looked at, and what a page says of it is older."""

    def found(registry: Any, nodes: Any, source: str, streams: Any) -> Any:
        logs, deletions = real(registry, nodes, source, streams)
        return logs, [Delete(one.path) for one in deletions]

    real = gone_streams._found
    patch.setattr(gone_streams, "_found", found)


def rewind_from_the_beginning(patch: pytest.MonkeyPatch) -> None:
    """A rewind takes streams that have no nodes for new ones."""
    patch.setattr("scribengin.operations.rewind.gone_streams", lambda *_: {})


PASSING_MISTAKES: dict[Mistake, int] = {
    forget_where_who_is_gone_was_read_up_to: 5,
    who_is_gone_stays_so: 17,
    who_is_gone_is_known_for_ever: 221,
    rewind_those_that_are_there: 10,
    who_has_more_to_be_read_is_gone: 4,
    who_has_gone_is_said_nowhere: 0,
    who_is_back_begins_anew: 1,
    who_has_no_nodes_is_unknown: 5,
    put_together_what_was_read_since: 334,
    rewind_from_the_beginning: 0,
}
"""Each with the seed that caught it last."""
