"""What a master does beside its decisions, each on a thread of its own: it may take long, and nobody waits for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from scribengin.base.diagnostics import tagged
from scribengin.base.threads import background
from scribengin.dataflow.followers import Followers
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry.descriptors import TaskDescriptor
from scribengin.dataflow.registry.view import DataflowView
from scribengin.dataflow.round.owner import coordinated_stream
from scribengin.dataflow.tasks import Missing, missing_tasks, regrouped_tasks, stream_key, with_sinks
from scribengin.errors import DataflowError, ScribenginError
from scribengin.master.ended_streams import EndedStreams, Grouping
from scribengin.master.state.events import Drained, JobDone, JobKind, MasterEvent, OutputRead, TasksFound
from scribengin_registry.contract import Registry
from scribengin_registry.errors import RegistryError

_LOG = logging.getLogger(__name__)

STREAMS_PERIOD_S = 3.0
MAINTENANCE_PERIOD_S = 2.0
_STOP_TIMEOUT_S = 5.0

Tell = Callable[[MasterEvent], None]
Work = Callable[[OpenedDataflow, JobKind], str | None]
"""Returns what is wrong that opening everything anew would not mend."""


class Job:
    """Works on the dataflow's sources and sinks every so often, until it is stopped. Tells when its trouble changes."""

    def __init__(
        self, kind: JobKind, period_s: float, open_resources: Callable[[], OpenedDataflow], work: Work, tell: Tell
    ) -> None:
        self._asked: tuple[JobKind, int] = (kind, 0)
        """As what it works, and how often that was said."""
        self._period_s = period_s
        self._open_resources = open_resources
        self._work = work
        self._tell = tell
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._trouble: str | None = None
        self._outdated = False
        self._resources: OpenedDataflow | None = None
        self._thread = background(kind, self._run)

    def start(self) -> None:
        """Begin, at once."""
        self._thread.start()

    def hurry(self) -> None:
        """Do it now, with everything opened anew: the config has changed."""
        self._outdated = True
        self._woken.set()

    def wake(self) -> None:
        """Do it now."""
        self._woken.set()

    def become(self, kind: JobKind) -> None:
        """Do it now, and as `kind` from now on. Of the last maintenance every attempt is told that has begun since."""
        self._asked = (kind, self._asked[1] + 1)
        self._woken.set()

    def stop(self) -> None:
        """End after what is being done now. A job that hangs is left behind."""
        self._stopping.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_TIMEOUT_S)

    def _run(self) -> None:
        while not self._stopping.is_set():
            asked = self._asked
            kind = asked[0]
            error = self._attempt(kind)
            if kind == "last maintenance" and asked != self._asked:
                kind = "maintenance"  # more may have come since it began: it was not the last one
            if kind == "last maintenance" or error != self._trouble:
                self._tell(JobDone(kind, error))
            self._trouble = error
            self._woken.wait(self._period_s)
            self._woken.clear()
        self._close()

    def _attempt(self, kind: JobKind) -> str | None:
        """What went wrong, if something did; after an error everything is opened anew the next time."""
        try:
            if self._outdated:
                self._outdated = False
                self._close()
            if self._resources is None:
                self._resources = self._open_resources()
            return self._work(self._resources, kind)
        except Exception as error:  # noqa: BLE001  the thread's outermost loop: the dataflow's status tells of it
            self._close()
            if isinstance(error, ScribenginError):
                return str(error)
            _LOG.warning(f"{kind}: {error!r}", exc_info=error, extra=tagged("job_failed"))
            return repr(error)

    def _close(self) -> None:
        resources, self._resources = self._resources, None
        if resources is not None:
            resources.close()


def find_streams(registry: Registry, grouping: Callable[[], Grouping], tell: Tell) -> Work:
    """List the sources' streams, and tell of the tasks that are missing for them, or which ones they join.

    Before, their sink streams are made, and the sources hold back what is to be read: a worker comes only later, and
    what somebody else has just written may be purged by then.
    """

    following: tuple[Drained, Followers] | None = None
    ended = EndedStreams(registry)

    def follow(resources: OpenedDataflow, drained: Drained) -> None:
        nonlocal following
        if following is None or following[0] is not drained:
            following = drained, Followers(registry, resources.config, drained.tasks)
        tell(OutputRead(drained, tuple(map(str, following[1].unread()))))

    def claim_added(resources: OpenedDataflow, tasks: Mapping[str, TaskDescriptor]) -> None:
        """A sink that an edit has added belongs to this dataflow, before a task writes there."""
        for task in list(tasks.values())[:1]:  # they are all alike, or will be
            written = {stream.sink for stream in task.sinks}
            added = {name: sink for name, sink in resources.sinks.items() if name not in written}
            if added:
                whole = with_sinks(tasks, resources.sinks.keys(), resources.sink_streams)[task.name]
                coordinated_stream(resources.sinks, whole.sinks)
                DataflowView(registry, resources.config.name).claim([sink.resource for sink in added.values()])

    def work(resources: OpenedDataflow, _: JobKind) -> None:
        now = grouping()
        if now.drained is not None:
            follow(resources, now.drained)
            return
        wanted, streams = resources.config.tasks, resources.source_streams()
        again = ended.going_on(resources, now)
        moves = ended.moves(resources, now, streams, again)
        if now.anew:
            again = ()
            missing = Missing(regrouped_tasks(now.tasks, streams, wanted, resources.sink_streams, moves))
        else:
            missing = missing_tasks(now.tasks, streams, wanted, resources.sink_streams, resources.sinks.keys(), moves)
        found = (*missing.tasks, *missing.grown)
        claim_added(resources, now.tasks)
        if found:
            for name, source in resources.sources.items():
                source.retention_hold([stream for task in found for stream in task.sources if stream.source == name])
            for name, sink in resources.sinks.items():
                sink.create([stream for task in found for stream in task.sinks if stream.sink == name])
        if found or again:
            promised = resources.guarantees()
            tell(TasksFound(now.tasks, missing.tasks, wanted, missing.grown, now.anew, promised, again, missing.left))
        of_tasks = (*now.tasks.values(), *found)
        ended.put_together(resources, {stream_key(stream) for task in of_tasks for stream in task.sources})

    return work


def maintain_sinks(registry: Registry) -> Work:
    """Have every sink put its house in order."""

    def work(resources: OpenedDataflow, kind: JobKind) -> str | None:
        """What is wrong with one sink keeps no other one from its turn."""
        said: list[str] = []
        away: ScribenginError | None = None
        for sink in resources.sinks.values():
            try:
                sink.maintain(registry, idle=kind == "last maintenance")
            except RegistryError:
                raise
            except DataflowError as error:  # it stays open: it alone knows for how long its files have waited
                said.append(str(error))
            except ScribenginError as error:
                away = away or error
        if away is not None:
            raise away
        return "; ".join(said) or None

    return work
