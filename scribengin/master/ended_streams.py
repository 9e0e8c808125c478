"""Streams that have ended, as those of producers that have gone: which go on, which leave their tasks to others, and
which leave their nodes."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from scribengin.base.commit_log import CommitLog
from scribengin.base.diagnostics import tagged
from scribengin.base.model import Position
from scribengin.base.names import natural
from scribengin.connectors.contract import SourceStreamDescriptor
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry.descriptors import TaskDescriptor
from scribengin.dataflow.registry.gone_streams import put_together
from scribengin.dataflow.registry.view import DataflowView
from scribengin.dataflow.tasks import STAYING, ComingsAndGoings, SourceStreams, StreamKey, stream_key
from scribengin.errors import DescriptorUnreadable
from scribengin.master.state.events import Drained
from scribengin_registry.contract import Registry
from scribengin_registry.errors import RegistryError

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Grouping:
    """The tasks there are, and whether their streams are to be grouped anew."""

    tasks: Mapping[str, TaskDescriptor]
    anew: bool
    drained: Drained | None = None
    """Those whose output must have been read before they are."""
    finished: frozenset[str] = frozenset()
    """Those all of whose streams have ended."""


class EndedStreams:
    """Where streams have ended whose tasks have finished, or that have left their tasks: read once, and again when the
    source was rewound. Nobody else moves them."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._positions: dict[StreamKey, Position | None] = {}
        self._gone: dict[StreamKey, CommitLog] = {}
        """Of streams that no task reads, and that need none."""
        self._eras: dict[str, int] = {}
        """By source, what says that it was not rewound since all of that was read."""
        self._untidy: dict[str, str] = {}
        """By source, why its streams could not be put together the last time."""

    def going_on(self, resources: OpenedDataflow, now: Grouping) -> tuple[str, ...]:
        """The tasks that have finished and are to be run again."""
        endless = {name for name, source in resources.config.sources.items() if source.endless}
        if not endless:
            return ()
        finished = {task: now.tasks[task].sources for task in sorted(now.finished & now.tasks.keys(), key=natural)}
        streams = {stream_key(one): one for of_task in finished.values() for one in of_task}
        asked = {key: one for key, one in streams.items() if one.source in endless}
        view = DataflowView(self._registry, resources.config.name)
        self._forget_moved(view, endless)
        logs = self._read(resources, [key for key in asked if key not in self._positions])
        read = {key: log.position for key, log in logs.items()}
        self._positions = {key: self._positions.get(key, read.get(key)) for key in asked}
        back = {
            key
            for key, one in asked.items()
            if (at := self._positions[key]) is not None and resources.sources[one.source].goes_on(one, at)
        }
        for key in back:
            del self._positions[key]  # its task reads on: where it ends next is not where it has ended
        return tuple(task for task, of_task in finished.items() if any(stream_key(one) in back for one in of_task))

    def moves(
        self, resources: OpenedDataflow, now: Grouping, streams: SourceStreams, again: Collection[str]
    ) -> ComingsAndGoings:
        """Which of the streams that come and go are gone, and which are back. Call it after `going_on`, which has said
        which tasks are to be run `again`."""
        leaving = {name for name, source in resources.sources.items() if source.streams_leave}
        if not leaving or resources.config.state is not None:  # a query has the same sources for all its life
            return STAYING
        read = {stream_key(stream) for task in now.tasks.values() for stream in task.sources}
        unread = [stream for name in leaving for stream in streams[name] if stream_key(stream) not in read]
        homes = self._homes(resources, unread)
        gone = self._leaving(now, leaving)
        ended = sorted(now.finished & now.tasks.keys() - set(again), key=natural)
        free = tuple(task for task in ended if any(stream_key(one) in gone for one in now.tasks[task].sources))
        return ComingsAndGoings(frozenset(self._gone), homes, free, leaving, gone)

    def put_together(self, resources: OpenedDataflow, read: Collection[StreamKey]) -> None:
        """Have the streams that no task reads, once they are many, in few nodes. Those of tasks are `read`.

        Nothing depends on it, so what goes wrong is told, each time that it is something else, and tried again.
        """
        if resources.config.state is not None or resources.config.desired_state != "running":
            return  # somebody may rewind it
        for name, source in resources.sources.items():
            if source.streams_leave:
                beside = {stream for of, stream in read if of == name}
                self._tell_untidy(name, self._together(resources.config.name, name, beside))

    def _together(self, dataflow: str, source: str, beside: Collection[str]) -> str | None:
        """What went wrong, if something did. Whether a lost reply was one, the next look sees."""
        try:
            put_together(self._registry, dataflow, source, beside)
        except (RegistryError, DescriptorUnreadable) as error:
            return str(error)
        return None

    def _tell_untidy(self, source: str, error: str | None) -> None:
        before = self._untidy.pop(source, None)
        if error is not None:
            self._untidy[source] = error
            if error != before:
                _LOG.warning(
                    f"streams of source {source} that are gone keep their nodes: {error}", extra=tagged("streams_apart")
                )

    def _forget_moved(self, view: DataflowView, sources: Iterable[str]) -> None:
        """Called before anything is read: what is rewound after that is seen the next time."""
        eras = {source: view.era_of(source) for source in sources}
        for known in (self._positions, self._gone):
            for key in [key for key in known if self._eras.get(key[0]) != eras.get(key[0])]:
                del known[key]
        self._eras = eras

    def _homes(self, resources: OpenedDataflow, unread: Iterable[SourceStreamDescriptor]) -> dict[StreamKey, str]:
        """Of the streams that were read before, and that go on, who has read them last. The others are gone."""
        before, self._gone = self._gone, {}
        homes: dict[StreamKey, str] = {}
        found = {stream_key(stream): stream for stream in unread}
        logs = {**self._read(resources, [key for key in found if key not in before]), **before}
        for key, stream in found.items():
            log = logs.get(key)
            if log is None or log.position is None:
                continue  # it is new
            if resources.sources[stream.source].goes_on(stream, log.position):
                homes[key] = log.task
            else:
                self._gone[key] = log
        return homes

    def _read(self, resources: OpenedDataflow, keys: Iterable[StreamKey]) -> dict[StreamKey, CommitLog]:
        """The commit logs of those that have one."""
        streams: dict[str, list[str]] = {}
        for source, stream in keys:
            streams.setdefault(source, []).append(stream)
        view = DataflowView(self._registry, resources.config.name)
        return {
            (source, stream): log
            for source, names in streams.items()
            for stream, log in view.commit_logs_of(source, names).items()
        }

    def _leaving(self, now: Grouping, sources: Collection[str]) -> frozenset[StreamKey]:
        """The streams that are gone of tasks that have finished: their owners have said that all of them is read.

        Nobody else knows it. This process may not have heard of what an owner has still to read, or of who writes it.
        """
        ended = {stream_key(one) for task in now.finished & now.tasks.keys() for one in now.tasks[task].sources}
        return frozenset(key for key in ended if key[0] in sources and self._positions.get(key) is not None)
