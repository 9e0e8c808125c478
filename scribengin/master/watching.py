"""Reading a dataflow for its master: everything at once when it begins, and later what a watch told of."""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.edges import reordering
from scribengin.dataflow.registry.config_node import config_from_bytes, config_is_gone
from scribengin.dataflow.registry.descriptors import shortened
from scribengin.dataflow.registry.view import DataflowView, Placement
from scribengin.errors import ConfigInvalid
from scribengin.master.state import events as ev
from scribengin_registry.contract import Watch, WatchEvent
from scribengin_registry.errors import NodeMissing

_REFUSAL_MAX = 4_000


@dataclass(frozen=True, slots=True)
class Recheck:
    """Look again at the config, the list of workers, or one worker's session or report."""

    at: Literal["config", "workers", "session", "report"]
    worker: str = ""


class DataflowWatcher:
    """Reads one dataflow, and has `wake` called with what to look at again when it changes."""

    def __init__(self, view: DataflowView, wake: Callable[[Recheck], None]) -> None:
        self._view = view
        self._wake = wake
        self._known: set[str] = set()

    def snapshot(self, containers: Collection[str]) -> ev.DataflowSnapshot:
        """Everything, read once; watched from here on. Raises DataflowNotFound, DescriptorUnreadable.

        `containers` are the names of all that run on this machine: a worker of this machine that is not among them is
        dead, even while its session still stands.
        """
        view = self._view
        accepted = view.accepted()
        head = view.placement_head()
        self._known = set()
        workers = {}
        for name in view.workers(self._watch(Recheck("workers"))):
            found = self._worker(name)
            if found is not None:
                self._known.add(name)
                workers[name] = replace(found, alive=found.alive and (found.elsewhere or name in containers))
        placements = [placement for worker in workers.values() for placement in self._placements(worker)]
        return ev.DataflowSnapshot(
            dataflow=view.dataflow,
            config=DataflowConfig.parse(accepted.config, source=view.paths.config_in_force),
            config_version=accepted.version,
            workers_since=accepted.workers_since,
            grouped_for=view.task_set().grouped_for,
            head=head.value,
            status=view.status(),
            tasks=view.tasks(),
            workers=workers,
            placements=tuple(placements),
            containers=tuple(containers),
        )

    def events(self, look: Recheck) -> list[ev.MasterEvent]:
        """What has come up there. Raises DataflowNotFound, RegistryUnreachable, SessionLost."""
        match look.at:
            case "config":
                return [self.config()]
            case "workers":
                return self._new_workers()
            case "session":
                alive = self._view.lives(look.worker, self._watch(look))
                return [] if alive else [ev.WorkerLost(look.worker)]
            case "report":
                report = self._view.report(look.worker, self._watch(look))
                return [] if report is None else [ev.ReportRead(report)]

    def config(self) -> ev.ConfigEdited | ev.ConfigGone:
        """The `config` node as it stands now."""
        path = self._view.paths.config
        found = self._view.counted_config(self._watch(Recheck("config")))
        if found.node is None:
            return ev.ConfigGone(config_is_gone(self._view.dataflow, path, found.version))
        config, error = None, None
        try:
            config = config_from_bytes(found.node.data, path)
        except ConfigInvalid as refusal:
            error = shortened(str(refusal), _REFUSAL_MAX)  # it names everything that is wrong, and a node takes so much
        reordered = None if config is None else self._reordering(found.version, config)
        crowded = None if config is None else self._view.hand_crowding(config, found.version)
        return ev.ConfigEdited(found.version, config, error, found.node.modified_ms, found.numbers, reordered, crowded)

    def _reordering(self, version: int, config: DataflowConfig) -> str | None:
        """Why a reader might see records out of order with that many tasks. Not of an edit that a command has written:
        it has asked the same before, or was told to go ahead."""
        why = reordering(self._view, config.tasks)
        edit = None if why is None else self._view.readable_edit(version)
        return why if edit is None or edit.author is None else None

    def is_asked_for(self, *, since: int) -> bool:
        """Whether a version after that one wants the dataflow to run."""
        edit = self.config()
        if isinstance(edit, ev.ConfigGone) or edit.config is None:
            return False
        return edit.version > since and edit.config.desired_state == "running"

    def _new_workers(self) -> list[ev.MasterEvent]:
        names = self._view.workers(self._watch(Recheck("workers")))
        self._known.intersection_update(names)
        found: list[ev.MasterEvent] = []
        for name in names:
            if name not in self._known and (worker := self._worker(name)) is not None:
                self._known.add(name)
                found.append(ev.WorkerRegistered(name, worker.executors, worker.config_version))
                found += [ev.ReportRead(worker.report)] if worker.report is not None else []
                found += [] if worker.alive else [ev.WorkerLost(name)]
        return found

    def _worker(self, name: str) -> ev.WorkerSnapshot | None:
        """One worker, watched from here on; None when it was removed meanwhile."""
        try:
            descriptor = self._view.worker(name)
        except NodeMissing:
            return None
        report = self._view.report(name, self._watch(Recheck("report", name)))
        alive = self._view.lives(name, self._watch(Recheck("session", name)))
        elsewhere = descriptor.host != socket.gethostname()
        return ev.WorkerSnapshot(
            name, descriptor.executors, alive, report, elsewhere, config_version=descriptor.config_version
        )

    def _placements(self, worker: ev.WorkerSnapshot) -> Iterator[Placement]:
        """What stands below a worker. A master that died in the middle of its removal has left only a part."""
        for executor in worker.executors:
            try:
                yield from self._view.assignments(worker.name, executor)
            except NodeMissing:
                continue

    def _watch(self, look: Recheck) -> Watch:
        """Equal looks are equal watches, so that one that is set twice fires once."""
        return _Waker(self._wake, look)


@dataclass(frozen=True, slots=True)
class _Waker:
    wake: Callable[[Recheck], None]
    look: Recheck

    def __call__(self, _: WatchEvent) -> None:
        self.wake(self.look)
