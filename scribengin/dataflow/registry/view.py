"""The typed view of one dataflow in the registry: descriptors in, descriptors out, every path in one place.

Nothing is decided here. Masters, workers and tools read through it and write through it; what must be atomic is one
`commit`, and what only one master may do is guarded by the version of the `placement` node (`PlacementHead`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from scribengin.base.commit_log import CommitLog
from scribengin.base.model import from_node_name, node_name
from scribengin.connectors.contract import Guarantee
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.config_node import (
    ConfigNode,
    already_there,
    config_from_bytes,
    config_to_bytes,
    first_nodes,
    in_force,
    owner_of_resource,
    refuse_taken,
    refuse_too_large,
    task_nodes,
    version_base_of,
)
from scribengin.dataflow.registry.descriptors import (
    ConfigEdit,
    ConfigInForce,
    ConfigVersionBase,
    DataflowStatus,
    History,
    HistoryEvent,
    Origin,
    PlacementHead,
    TaskAssignment,
    TaskDescriptor,
    TaskSet,
    WorkerDescriptor,
    WorkerReport,
    last_events,
    shortened,
)
from scribengin.dataflow.registry.gone_streams import gone_ones, gone_streams
from scribengin.dataflow.registry.numbers import Numbers, first_numbers
from scribengin.dataflow.registry.paths import DataflowPaths
from scribengin.dataflow.tasks import WORKERS_UNASKED_MAX, crowding, task_name
from scribengin.errors import ConfigInvalid, DataflowNotFound, DescriptorUnreadable, ResourceTaken
from scribengin_registry.compare_and_set import LookAgain, compare_and_set, win_race
from scribengin_registry.contract import ANY_VERSION, Check, Create, Delete, Node, Operation, Registry, Set, Watch
from scribengin_registry.errors import NodeExists, NodeMissing, VersionConflict

HISTORY_MESSAGE_MAX = 2_000
OPERATIONS_PER_TRANSACTION_MAX = 200
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Versioned(Generic[_T]):
    """A value as it was read, with the version that a compare-and-set needs."""

    value: _T
    version: int


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one task stands: under which worker and executor, by which generation, with the version of its node."""

    worker: str
    executor: str
    assignment: TaskAssignment
    version: int


def dataflow_names(registry: Registry) -> list[str]:
    """The dataflows of this registry, sorted."""
    try:
        return sorted(from_node_name(name) for name in registry.children(paths.DATAFLOWS))
    except NodeMissing:
        return []


@dataclass(frozen=True, slots=True)
class SeenDataflow:
    """What a dataflow was when somebody looked: any start, and any submission of another one, changes one of these.
    `head` is None where its deletion has come that far."""

    status: Versioned[DataflowStatus]
    head: Versioned[PlacementHead] | None

    @property
    def deleting(self) -> bool:
        """Whether somebody has begun to delete it."""
        return self.status.value.state == "deleting"


class DataflowView:
    """One dataflow's nodes."""

    def __init__(self, registry: Registry, dataflow: str) -> None:
        self.registry = registry
        self.dataflow = dataflow
        self.paths = DataflowPaths(dataflow)

    # -- the dataflow itself

    def submit(
        self,
        config: DataflowConfig,
        resources: Collection[str],
        now_ms: int,
        guarantees: Mapping[str, Guarantee] | None = None,
        author: str | None = None,
    ) -> None:
        """Create the dataflow and claim its sinks, all or nothing. Raises DataflowExists, ResourceTaken, ConfigInvalid
        (it is too large)."""
        refuse_too_large(config)
        win_race(partial(self._submit, config, resources, now_ms, guarantees or {}, author), races=())

    def _submit(
        self,
        config: DataflowConfig,
        resources: Collection[str],
        now_ms: int,
        guarantees: Mapping[str, Guarantee],
        author: str | None,
    ) -> None:
        for path in (paths.DATAFLOWS, paths.SINKS, paths.SOURCES):
            self._ensure(path)
        claims = [claim for resource in resources if (claim := self._claim(resource)) is not None]
        numbers, version = first_numbers(self.registry, self.dataflow)
        head = PlacementHead.beginning(numbers.worker, numbers.master, numbers.generation)
        nodes = first_nodes(self.paths, config, now_ms, guarantees, author, head)
        try:
            self.registry.commit([*nodes, *claims, Check(paths.NUMBERS, version)])
        except VersionConflict as error:
            if error.path == paths.NUMBERS:  # another dataflow has just been deleted
                raise LookAgain from None
            raise
        except NodeExists as error:
            if error.path == self.paths.root:
                raise already_there(self.dataflow) from None
            raise ResourceTaken(f"another dataflow has just claimed {error.path}: submit again to see which") from None

    def claim(self, resources: Iterable[str]) -> None:
        """Have these sinks belong to the dataflow, which is there already. Raises ResourceTaken."""
        for resource in resources:
            operation = self._claim(resource)
            try:
                self.registry.commit([] if operation is None else [operation])
            except (NodeExists, VersionConflict):
                raise ResourceTaken(f"another dataflow has just claimed {resource}: look again which") from None

    def _claim(self, resource: str) -> Operation | None:
        path = paths.sink_resource(resource)
        node = self.registry.find(path)
        if node is None:
            return Create(path, json.dumps({"dataflow": self.dataflow, "resource": resource}).encode())
        refuse_taken(resource, owner_of_resource(node), self.dataflow)
        return Set(path, json.dumps({"dataflow": self.dataflow, "resource": resource}).encode(), node.version)

    def seen(self) -> SeenDataflow:
        """What it is just now, for who is to change it only if nothing comes in between. Raises DataflowNotFound."""
        head = None
        with suppress(DataflowNotFound):  # its deletion has come that far, or there is none
            head = self.placement_head()
        return SeenDataflow(self.status_found(), head)  # after that: a start is seen in one of them

    def commit_log_of(self, source: str, stream: str) -> CommitLog | None:
        """That of a source's stream, also if it has no node any more. None: nobody has read it. Raises
        DescriptorUnreadable."""
        path = paths.commit_log(self.paths.source_stream(source, stream))
        node = self.registry.find(path)
        if node is None:
            return gone_ones(self.registry, self.dataflow, source, [stream]).get(stream)
        return CommitLog.from_bytes(node.data, path=path)

    def commit_logs_of(self, source: str, streams: Collection[str]) -> dict[str, CommitLog]:
        """The same of many: of those that have been read."""
        there = set(self._children(paths.source_streams(self.dataflow, source)))
        logs: dict[str, CommitLog] = {}
        for stream in streams:
            path = paths.commit_log(self.paths.source_stream(source, stream))
            if node_name(stream) in there and (node := self.registry.find(path)) is not None:
                logs[stream] = CommitLog.from_bytes(node.data, path=path)
        missing = [stream for stream in streams if stream not in logs]  # what goes meanwhile is in a page by then
        return {**logs, **(gone_ones(self.registry, self.dataflow, source, missing) if missing else {})}

    def streams_read(self, source: str) -> list[str]:
        """The names of the streams of a source that have been read, whether tasks have them still or not."""
        there = [from_node_name(child) for child in self._children(paths.source_streams(self.dataflow, source))]
        gone = self._gone(source)  # after that: what has gone meanwhile is there
        return list(dict.fromkeys([*there, *gone]))

    def era_of(self, source: str) -> int:
        """What changes with every rewind of that source, and whenever nodes of its streams are deleted; nothing else
        changes it (gone_streams.py). It is 0 again once the dataflow was deleted, or a backup restored."""
        node = self.registry.find(paths.source_streams(self.dataflow, source))
        return ANY_VERSION if node is None else node.version

    def next_era(self, source: str, era: int = ANY_VERSION) -> Operation:
        """Of a transaction that rewinds a source: it begins another era, if it is that one still, and writes nothing.
        Whoever remembers where its streams stood sees by it that they may stand elsewhere."""
        return Set(paths.source_streams(self.dataflow, source), b"", era)

    def numbers_reached(self) -> Numbers:
        """Up to where names, generations and epochs were used."""
        node = self.registry.find(self.paths.placement)
        head = PlacementHead() if node is None else PlacementHead.from_bytes(node.data, path=self.paths.placement)
        epochs = [0]
        streams = (f"{node}/{child}" for node in (*self.sources(), *self.claims()) for child in self._children(node))
        for path in streams:
            log = self.registry.find(paths.commit_log(path))
            with suppress(DescriptorUnreadable):
                epochs += [] if log is None else [CommitLog.from_bytes(log.data, path=path).epoch]
        for child in self._children(self.paths.all_gone_streams):  # after that: what has gone meanwhile is there
            with suppress(DescriptorUnreadable):
                epochs += [log.epoch for log in self._gone(from_node_name(child)).values()]
        return Numbers(
            worker=head.next_worker, master=head.next_master, generation=max(head.next_generation, max(epochs) + 1)
        )

    def _gone(self, source: str) -> dict[str, CommitLog]:
        return gone_streams(self.registry, self.dataflow, source)

    def sources(self) -> Iterator[str]:
        """The nodes of its sources."""
        for child in self._children(paths.SOURCES):
            if paths.reader_of_source(child) == self.dataflow:
                yield f"{paths.SOURCES}/{child}"

    def claims(self) -> Iterator[str]:
        """The nodes of its sinks."""
        for child in self._children(paths.SINKS):
            node = self.registry.find(f"{paths.SINKS}/{child}")
            if node is not None and owner_of_resource(node) == self.dataflow:
                yield f"{paths.SINKS}/{child}"

    def config(self, watch: Watch | None = None) -> Versioned[DataflowConfig]:
        """The config as it stands now, with the version of its node. Raises DataflowNotFound, ConfigInvalid (a bad
        edit)."""
        node = self._node(self.paths.config, watch)
        return Versioned(config_from_bytes(node.data, self.paths.config), node.version)

    def set_config(self, config: DataflowConfig, version: int) -> int:
        """Replace the config if nobody else did since `version` was read. Raises VersionConflict."""
        return self.registry.set(self.paths.config, config_to_bytes(config), version)

    def config_in_force(self, watch: Watch | None = None) -> Versioned[DataflowConfig]:
        """The last config that a master accepted, with the version of the `config` node that it was.

        What workers go by: whatever is edited, they start. Raises DataflowNotFound.
        """
        found = self.accepted(watch)
        return Versioned(DataflowConfig.parse(found.config, source=self.paths.config_in_force), found.version)

    def accepted(self, watch: Watch | None = None) -> ConfigInForce:
        """The same as it stands there. Raises DataflowNotFound."""
        path = self.paths.config_in_force
        return ConfigInForce.from_bytes(self._node(path, watch).data, path=path)

    def config_to_edit(self) -> Versioned[DataflowConfig]:
        """What a further edit starts from: the config as it stands, or the one in force if that was refused.

        Whether it was, the history of edits tells, which a master writes with its verdict. Its status comes later, and
        may be of an earlier edit.
        """
        found = self.counted_config()
        if found.node is not None and not self._was_refused(found.version):
            try:
                return Versioned(config_from_bytes(found.node.data, self.paths.config), found.version)
            except ConfigInvalid:
                pass  # no master has looked at it yet, and it would be refused
        in_force = DataflowConfig.parse(found.accepted.config, source=self.paths.config_in_force)
        return Versioned(in_force, found.version)

    def counted_config(self, watch: Watch | None = None) -> ConfigNode:
        """The `config` node as it stands, or that it is gone, and which version that is. Raises DataflowNotFound."""
        node = self.registry.find(self.paths.config, watch)
        in_force = self._node(self.paths.config_in_force)
        accepted = ConfigInForce.from_bytes(in_force.data, path=self.paths.config_in_force)
        return ConfigNode(node, version_base_of(node, in_force, accepted), accepted)

    def hand_crowding(self, config: DataflowConfig, version: int) -> str | None:
        """Why `config`, which stands in the node at that version, has more workers than there is work for on one
        machine. Not of an edit that a command has written: it has asked the same before, or was told to go ahead."""
        if config.workers <= WORKERS_UNASKED_MAX:
            return None
        why = crowding(self.config_in_force().value, config, self.status().tasks_total)
        edit = None if why is None else self.readable_edit(version)
        return why if edit is None or edit.author is None else None

    def masters(self) -> int:
        """How many masters stand for the election just now. Raises DataflowNotFound."""
        return self._node(self.paths.master).children_count

    def edit(self, version: int) -> ConfigEdit | None:
        """What the history of edits keeps of a version, if it does. Raises DescriptorUnreadable."""
        path = self.paths.edit(version)
        node = self.registry.find(path)
        return None if node is None else ConfigEdit.from_bytes(node.data, path=path)

    def readable_edit(self, version: int) -> ConfigEdit | None:
        """The same, for who goes on without one that somebody has damaged."""
        try:
            return self.edit(version)
        except DescriptorUnreadable:
            return None

    def _was_refused(self, version: int) -> bool:
        edit = self.readable_edit(version)
        return edit is not None and edit.outcome == "refused"

    def origin(self) -> Origin | None:
        """Where the package was shipped from; None: nobody knows, or there is none."""
        node = self.registry.find(self.paths.origin)
        return None if node is None else Origin.from_bytes(node.data, path=self.paths.origin)

    def set_origin(self, origin: Origin) -> None:
        """The package is another one now."""
        self._ensure(self.paths.origin)
        self.registry.set(self.paths.origin, origin.to_bytes())

    def acceptance(
        self, config: DataflowConfig, version: int, workers_since: int = 0, numbers: ConfigVersionBase | None = None
    ) -> Operation:
        """The change that puts `version` of the config in force, for `commit_placement`."""
        return Set(self.paths.config_in_force, in_force(config, version, workers_since, numbers).to_bytes())

    def status(self, watch: Watch | None = None) -> DataflowStatus:
        """What the master last said. Raises DataflowNotFound."""
        return DataflowStatus.from_bytes(self._node(self.paths.status, watch).data, path=self.paths.status)

    def status_found(self) -> Versioned[DataflowStatus]:
        """The same, with the version of its node."""
        node = self._node(self.paths.status)
        return Versioned(DataflowStatus.from_bytes(node.data, path=self.paths.status), node.version)

    def set_status(self, status: DataflowStatus) -> None:
        """Whatever stands there. Whoever does not know that nobody deletes the dataflow just now changes it instead."""
        self.registry.set(self.paths.status, status.to_bytes())

    def change_status(self, change: Callable[[DataflowStatus], DataflowStatus | None]) -> bool:
        """Replace the status by what `change` makes of it, which is asked anew while others change it; None: it stays.
        Returns whether it was replaced. Raises DataflowNotFound, and what `change` raises."""

        def attempt() -> bool:
            found = self.status_found()
            changed = change(found.value)
            if changed is not None:
                self.registry.set(self.paths.status, changed.to_bytes(), found.version)
            return changed is not None

        return win_race(attempt, races=(VersionConflict, NodeMissing))

    def history(self) -> History:
        """The last events, oldest first. Raises DataflowNotFound."""
        return History.from_bytes(self._node(self.paths.history).data, path=self.paths.history)

    def add_history(self, events: Sequence[HistoryEvent]) -> None:
        """Append events, dropping the oldest that it has no room for, and what is too long of a message. A history that
        cannot be read begins anew: nobody shall end for it."""
        events = [e.model_copy(update={"message": shortened(e.message, HISTORY_MESSAGE_MAX)}) for e in events]
        path = self.paths.history

        def change(data: bytes) -> bytes:
            try:
                known = History.from_bytes(data, path=path).events
            except DescriptorUnreadable as error:
                why = shortened(str(error), HISTORY_MESSAGE_MAX)
                known = tuple(HistoryEvent(at_ms=e.at_ms, kind="history_lost", message=why) for e in events[:1])
            return History(events=last_events((*known, *events))).to_bytes()

        compare_and_set(lambda: self._node(path), self.registry, path, change)

    # -- tasks

    def tasks(self) -> dict[str, TaskDescriptor]:
        """The task descriptors by name, in order: of one set, also while a master replaces it. Raises DataflowNotFound,
        NodeMissing where a descriptor of the set is not there."""
        while True:
            node = self._node(self.paths.task_descriptors)
            count = TaskSet.from_bytes(node.data, path=self.paths.task_descriptors).count
            try:
                return {name: self.task(name) for name in map(task_name, range(count))}
            except NodeMissing:
                if self._node(self.paths.task_descriptors).version == node.version:
                    raise

    def creation_of_tasks(self, tasks: Sequence[TaskDescriptor], grouped_for: int | None = None) -> list[Operation]:
        """The creation of tasks that follow those there are, for `commit_placement`.

        In several chunks it is no longer all or nothing: tasks count once the last operation was applied, and what a
        master left that died before is deleted by the first ones.
        """
        count = self.task_set().count
        left = self._deletion_of_tasks(beside={task_name(k) for k in range(count)})
        created = [operation for task in tasks for operation in self.task_operations(task)]
        made = TaskSet(count=count + len(tasks), grouped_for=grouped_for)
        return [*left, *created, Set(self.paths.task_descriptors, made.to_bytes())]

    def replacement_of_tasks(
        self, removed: Iterable[str], tasks: Sequence[TaskDescriptor], count: int, grouped_for: int | None
    ) -> list[Operation]:
        """The tasks `removed` go, `tasks` come, and then there are `count`: for `commit_placement`.

        Until the last operation was applied there are none, so a master that finds it half done makes all tasks anew.
        """
        kept = {task_name(k) for k in range(count)} - set(removed) - {task.name for task in tasks}
        created = [operation for task in tasks for operation in self.task_operations(task)]
        return [
            Set(self.paths.task_descriptors, TaskSet().to_bytes()),
            *self._deletion_of_tasks(beside=kept),
            *created,
            Set(self.paths.task_descriptors, TaskSet(count=count, grouped_for=grouped_for).to_bytes()),
        ]

    def growth_of_task(self, task: TaskDescriptor) -> list[Operation]:
        """A task that is there gets what it has not yet, and what has left it goes, for `commit_placement`.

        In several chunks it counts once its own node is set. What a master left that died before stays, until the task
        grows again.
        """
        path = self.paths.task_descriptor(task.name)
        there = self._subtree(path)
        whole = [one for one in self.task_operations(task) if isinstance(one, Create)]
        made = [one for one in whole if one.path not in there]
        left = [Delete(node) for node in there if all(node != one.path for one in whole)]
        return [*made, Set(path, task.to_bytes()), *left]

    def _deletion_of_tasks(self, beside: Collection[str]) -> list[Operation]:
        there = [from_node_name(child) for child in self._children(self.paths.task_descriptors)]
        gone = [self.paths.task_descriptor(name) for name in there if name not in beside]
        return [Delete(path) for root in gone for path in self._subtree(root)]

    def task_set(self) -> TaskSet:
        """How many tasks there are. Raises DataflowNotFound."""
        path = self.paths.task_descriptors
        return TaskSet.from_bytes(self._node(path).data, path=path)

    def task(self, name: str) -> TaskDescriptor:
        """One task descriptor. Raises NodeMissing."""
        path = self.paths.task_descriptor(name)
        return TaskDescriptor.from_bytes(self.registry.get(path).data, path=path)

    def task_operations(self, task: TaskDescriptor) -> list[Operation]:
        """The creation of one task: its node, and below it the tree of its streams that operators look at."""
        return task_nodes(self.paths.task_descriptor(task.name), task)

    # -- workers and where tasks are placed

    def placement_head(self) -> Versioned[PlacementHead]:
        """The `placement` node. Raises DataflowNotFound."""
        node = self._node(self.paths.placement)
        return Versioned(PlacementHead.from_bytes(node.data, path=self.paths.placement), node.version)

    def workers(self, watch: Watch | None = None) -> list[str]:
        """The names of the workers that have registered and were not removed, dead or alive."""
        return [from_node_name(child) for child in self.registry.children(self.paths.workers, watch)]

    def has_workers(self) -> bool:
        """Whether any has registered and was not removed. None has where the deletion has come that far."""
        return bool(self._children(self.paths.workers))

    def worker(self, name: str) -> WorkerDescriptor:
        """One worker's descriptor. Raises NodeMissing."""
        path = self.paths.worker(name)
        return WorkerDescriptor.from_bytes(self.registry.get(path).data, path=path)

    def register_worker(self, worker: WorkerDescriptor) -> None:
        """For the worker itself: its node, its executors and its session's, at once. Raises NodeExists, NodeMissing."""
        root = self.paths.worker(worker.name)
        self.registry.commit(
            [
                Create(root, worker.to_bytes()),
                Create(self.paths.report(worker.name), WorkerReport(worker=worker.name, written_ms=0).to_bytes()),
                *(Create(self.paths.executor(worker.name, executor)) for executor in worker.executors),
                Create(self.paths.session(worker.name), ephemeral=True),
            ]
        )

    def lives(self, worker: str, watch: Watch | None = None) -> bool:
        """Whether the worker's session does."""
        return self.registry.find(self.paths.session(worker), watch) is not None

    def report(self, worker: str, watch: Watch | None = None) -> WorkerReport | None:
        """The worker's last report, or None if the worker is gone."""
        path = self.paths.report(worker)
        node = self.registry.find(path, watch)
        return None if node is None else WorkerReport.from_bytes(node.data, path=path)

    def set_report(self, report: WorkerReport) -> None:
        """For the worker itself. Raises NodeMissing when the master has removed it."""
        self.registry.set(self.paths.report(report.worker), report.to_bytes())

    def assignments(self, worker: str, executor: str, watch: Watch | None = None) -> list[Placement]:
        """What one executor shall run. The watch fires when an assignment comes or goes, not when one changes."""
        found = []
        for child in self.registry.children(self.paths.executor(worker, executor), watch):
            path = f"{self.paths.executor(worker, executor)}/{child}"
            node = self.registry.find(path, watch)
            if node is not None:
                assignment = TaskAssignment.from_bytes(node.data, path=path)
                found.append(Placement(worker, executor, assignment, node.version))
        return found

    def commit_placement(
        self, head: Versioned[PlacementHead], operations: Sequence[Operation]
    ) -> Versioned[PlacementHead]:
        """Apply a master's changes and its new head, in chunks that each check that it still is the master.

        Raises VersionConflict (of the `placement` node: this master was replaced), NodeMissing, NodeExists.
        """
        version = head.version
        for start in range(0, max(len(operations), 1), OPERATIONS_PER_TRANSACTION_MAX):
            chunk = operations[start : start + OPERATIONS_PER_TRANSACTION_MAX]
            versions = self.registry.commit([Set(self.paths.placement, head.value.to_bytes(), version), *chunk])
            version = versions[0]
        return Versioned(head.value, version)

    def worker_removal(self, worker: str) -> list[Operation]:
        """The deletion of a worker's whole subtree, assignments included, as operations for `commit_placement`."""
        return [Delete(path) for path in self._subtree(self.paths.worker(worker))]

    # -- reading

    def _subtree(self, path: str) -> list[str]:
        below = [node for child in self._children(path) for node in self._subtree(f"{path}/{child}")]
        return [*below, path]

    def _node(self, path: str, watch: Watch | None = None) -> Node:
        try:
            return self.registry.get(path, watch)
        except NodeMissing:
            known = ", ".join(dataflow_names(self.registry)) or "none"
            raise DataflowNotFound(
                f"there is no dataflow '{self.dataflow}' in the registry {self.registry.hosts} (there are: {known})"
            ) from None

    def _children(self, path: str) -> list[str]:
        with suppress(NodeMissing):
            return self.registry.children(path)
        return []

    def _ensure(self, path: str) -> None:
        if self.registry.find(path) is None:
            with suppress(NodeExists):
                self.registry.create(path, parents=True)


def new_master_name(view: DataflowView) -> str:
    """A name that no master of the dataflow ever had. Raises DataflowNotFound."""

    def attempt() -> str:
        head = view.placement_head()
        taken = head.value.model_copy(update={"next_master": head.value.next_master + 1})
        view.registry.set(view.paths.placement, taken.to_bytes(), head.version)
        return f"master-{head.value.next_master}"

    return win_race(attempt, races=(VersionConflict,))
