"""The typed view of one dataflow in the registry: descriptors in, descriptors out, every path in one place.

Nothing is decided here. Masters, workers and tools read through it and write through it; what must be atomic is one
`commit`, and what only one master may do is guarded by the version of the `workers` node (`PlacementHead`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from scribengin.dataflow import paths
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.descriptors import (
    ConfigInForce,
    DataflowStatus,
    History,
    HistoryEvent,
    PlacementHead,
    TaskAssignment,
    TaskDescriptor,
    TaskSet,
    WorkerDescriptor,
    WorkerReport,
    shortened,
)
from scribengin.dataflow.paths import DataflowPaths
from scribengin.errors import ConfigInvalid, DataflowExists, DataflowNotFound, ResourceTaken
from scribengin.model import Descriptor, from_node_name, node_name
from scribengin_registry.contract import Create, Delete, Node, Operation, Registry, Set, Watch
from scribengin_registry.errors import NodeExists, NodeMissing, VersionConflict

HISTORY_EVENTS_MAX = 200
HISTORY_MESSAGE_MAX = 2_000
OPERATIONS_PER_TRANSACTION_MAX = 200
_D = TypeVar("_D", bound=Descriptor)


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Versioned(Generic[_T]):
    """A value as it was read, with the version that a compare-and-set needs."""

    value: _T
    version: int


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one task stands: under which worker and executor, by which lease, with the version of its node."""

    worker: str
    executor: str
    assignment: TaskAssignment
    version: int


def dataflow_names(registry: Registry) -> list[str]:
    """The dataflows of this registry, sorted."""
    try:
        return sorted(from_node_name(name) for name in registry.children(f"{paths.ROOT}/dataflows"))
    except NodeMissing:
        return []


class DataflowView:
    """One dataflow's nodes."""

    def __init__(self, registry: Registry, dataflow: str) -> None:
        self.registry = registry
        self.dataflow = dataflow
        self.paths = DataflowPaths(dataflow)

    # -- the dataflow itself

    def submit(self, config: DataflowConfig, resources: Iterable[str], now_ms: int) -> None:
        """Create the dataflow and claim its sinks, all or nothing. Raises DataflowExists, ResourceTaken."""
        for path in (f"{paths.ROOT}/dataflows", f"{paths.ROOT}/locks/sinks", f"{paths.ROOT}/locks/sources"):
            self._ensure(path)
        status = DataflowStatus(dataflow=self.dataflow, state="starting", config_version=0, submitted_ms=now_ms)
        nodes: list[Operation] = [
            Create(self.paths.root),
            Create(self.paths.config, config_to_bytes(config)),
            Create(self.paths.status, status.to_bytes()),
            Create(self.paths.history, History().to_bytes()),
            Create(self.paths.master, _in_force(config, 0).to_bytes()),
            Create(self.paths.task_descriptors, TaskSet().to_bytes()),
            Create(self.paths.workers, PlacementHead().to_bytes()),
        ]
        claims = [self._claim(resource) for resource in resources]
        try:
            self.registry.commit(nodes + [claim for claim in claims if claim is not None])
        except NodeExists as error:
            if error.path == self.paths.root:
                raise already_there(self.dataflow) from None
            raise ResourceTaken(f"another dataflow has just claimed {error.path}: submit again to see which") from None

    def _claim(self, resource: str) -> Operation | None:
        path = paths.sink_resource(resource)
        node = self.registry.find(path)
        if node is None:
            return Create(path, json.dumps({"dataflow": self.dataflow, "resource": resource}).encode())
        refuse_taken(resource, owner_of_resource(node), self.dataflow)
        return Set(path, json.dumps({"dataflow": self.dataflow, "resource": resource}).encode(), node.version)

    def delete(self) -> None:
        """Forget the dataflow: its nodes, its positions, its claims. What its sinks hold stays.

        It can be cut short anywhere and be called again: until the last step, which is one transaction, the status says
        `deleting`, and nobody may start a dataflow whose positions are half gone.
        """
        self.set_status(self.status().model_copy(update={"state": "deleting"}))
        prefix = f"{paths.ROOT}/locks/sources"
        for child in self._children(prefix):
            if from_node_name(child).split(".", 1)[0] == self.dataflow:
                self.registry.delete(f"{prefix}/{child}", recursive=True)
        prefix = f"{paths.ROOT}/locks/sinks"
        for child in self._children(prefix):
            node = self.registry.find(f"{prefix}/{child}")
            if node is not None and owner_of_resource(node) == self.dataflow:
                self.registry.delete(f"{prefix}/{child}", recursive=True)
        for path in (self.paths.workers, self.paths.task_descriptors, self.paths.master):
            if self.registry.find(path) is not None:
                self.registry.delete(path, recursive=True)
        self.registry.commit([Delete(path) for path in self._subtree(self.paths.root)])

    def config(self, watch: Watch | None = None) -> Versioned[DataflowConfig]:
        """The config as it stands now, with its version. Raises DataflowNotFound, ConfigInvalid (a bad edit)."""
        node = self._node(self.paths.config, watch)
        return Versioned(config_from_bytes(node.data, self.paths.config), node.version)

    def set_config(self, config: DataflowConfig, version: int) -> int:
        """Replace the config if nobody else did since `version` was read. Raises VersionConflict."""
        return self.registry.set(self.paths.config, config_to_bytes(config), version)

    def config_in_force(self) -> Versioned[DataflowConfig]:
        """The last config that a master accepted, with the version of the `config` node that it was.

        What workers go by: whatever is edited, they start. Raises DataflowNotFound.
        """
        node = self._node(self.paths.master)
        found = ConfigInForce.from_bytes(node.data, path=self.paths.master)
        return Versioned(DataflowConfig.parse(found.config, source=self.paths.master), found.version)

    def config_to_edit(self) -> Versioned[DataflowConfig]:
        """What a further edit starts from: the config as it stands, or the one in force if that was refused."""
        node = self._node(self.paths.config)
        if self.status().config_error is None:
            try:
                return Versioned(config_from_bytes(node.data, self.paths.config), node.version)
            except ConfigInvalid:
                pass  # no master has looked at it yet, and it would be refused
        return Versioned(self.config_in_force().value, node.version)

    def acceptance(self, config: DataflowConfig, version: int) -> Operation:
        """The change that puts `version` of the config in force, for `commit_placement`."""
        return Set(self.paths.master, _in_force(config, version).to_bytes())

    def status(self, watch: Watch | None = None) -> DataflowStatus:
        """What the master last said. Raises DataflowNotFound."""
        return DataflowStatus.from_bytes(self._node(self.paths.status, watch).data, path=self.paths.status)

    def set_status(self, status: DataflowStatus) -> None:
        """For the master, and for whoever ends a dataflow that has none."""
        self.registry.set(self.paths.status, status.to_bytes())

    def history(self) -> History:
        """The last events, oldest first. Raises DataflowNotFound."""
        return History.from_bytes(self._node(self.paths.history).data, path=self.paths.history)

    def add_history(self, events: Sequence[HistoryEvent]) -> None:
        """Append events, dropping the oldest beyond HISTORY_EVENTS_MAX, and what is too long of a message."""
        events = [e.model_copy(update={"message": shortened(e.message, HISTORY_MESSAGE_MAX)}) for e in events]
        while True:
            node = self._node(self.paths.history)
            known = History.from_bytes(node.data, path=self.paths.history).events
            kept = History(events=(*known, *events)[-HISTORY_EVENTS_MAX:])
            try:
                self.registry.set(self.paths.history, kept.to_bytes(), node.version)
            except VersionConflict:
                continue
            return

    # -- tasks

    def tasks(self) -> dict[str, TaskDescriptor]:
        """The task descriptors by name, in order. Raises DataflowNotFound."""
        names = [_task_name(k) for k in range(self._task_count())]
        return {name: self.task(name) for name in names}

    def creation_of_tasks(self, tasks: Sequence[TaskDescriptor]) -> list[Operation]:
        """The creation of tasks that follow those there are, for `commit_placement`.

        In several chunks it is no longer all or nothing: tasks count once the last operation was applied, and what a
        master left that died before is deleted by the first ones.
        """
        count = self._task_count()
        known = {_task_name(k) for k in range(count)}
        left = [from_node_name(child) for child in self._children(self.paths.task_descriptors)]
        operations: list[Operation] = [
            Delete(path)
            for name in left
            if name not in known
            for path in self._subtree(self.paths.task_descriptor(name))
        ]
        for task in tasks:
            operations += self.task_operations(task)
        return [*operations, Set(self.paths.task_descriptors, TaskSet(count=count + len(tasks)).to_bytes())]

    def _task_count(self) -> int:
        path = self.paths.task_descriptors
        return TaskSet.from_bytes(self._node(path).data, path=path).count

    def task(self, name: str) -> TaskDescriptor:
        """One task descriptor. Raises NodeMissing."""
        path = self.paths.task_descriptor(name)
        return TaskDescriptor.from_bytes(self.registry.get(path).data, path=path)

    def task_operations(self, task: TaskDescriptor) -> list[Operation]:
        """The creation of one task: its node, and below it the tree of its streams that operators look at."""
        root = self.paths.task_descriptor(task.name)
        operations: list[Operation] = [
            Create(root, task.to_bytes()),
            Create(f"{root}/sources"),
            Create(f"{root}/sinks"),
        ]
        for kind, streams in (
            ("sources", [(s.source, s) for s in task.sources]),
            ("sinks", [(s.sink, s) for s in task.sinks]),
        ):
            for name in dict.fromkeys(name for name, _ in streams):
                operations.append(Create(f"{root}/{kind}/{name}"))
            operations += [Create(f"{root}/{kind}/{name}/{node_name(s.name)}", s.to_bytes()) for name, s in streams]
        return operations

    # -- workers and where tasks are placed

    def placement_head(self) -> Versioned[PlacementHead]:
        """The `workers` node. Raises DataflowNotFound."""
        node = self._node(self.paths.workers)
        return Versioned(PlacementHead.from_bytes(node.data, path=self.paths.workers), node.version)

    def workers(self, watch: Watch | None = None) -> list[str]:
        """The names of the workers that have registered and were not removed, dead or alive."""
        return [from_node_name(child) for child in self.registry.children(self.paths.workers, watch)]

    def worker(self, name: str) -> WorkerDescriptor:
        """One worker's descriptor. Raises NodeMissing."""
        path = self.paths.worker(name)
        return WorkerDescriptor.from_bytes(self.registry.get(path).data, path=path)

    def register_worker(self, worker: WorkerDescriptor) -> None:
        """For the worker itself: its node, its executors and its lease, at once. Raises NodeExists, NodeMissing."""
        root = self.paths.worker(worker.name)
        self.registry.commit(
            [
                Create(root, worker.to_bytes()),
                Create(self.paths.report(worker.name), WorkerReport(worker=worker.name, written_ms=0).to_bytes()),
                *(Create(self.paths.executor(worker.name, executor)) for executor in worker.executors),
                Create(self.paths.lease(worker.name), ephemeral=True),
            ]
        )

    def lease(self, worker: str, watch: Watch | None = None) -> bool:
        """Whether the worker's session lives."""
        return self.registry.find(self.paths.lease(worker), watch) is not None

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

        Raises VersionConflict (of the `workers` node: this master was replaced), NodeMissing, NodeExists.
        """
        version = head.version
        for start in range(0, max(len(operations), 1), OPERATIONS_PER_TRANSACTION_MAX):
            chunk = operations[start : start + OPERATIONS_PER_TRANSACTION_MAX]
            versions = self.registry.commit([Set(self.paths.workers, head.value.to_bytes(), version), *chunk])
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
        try:
            return self.registry.children(path)
        except NodeMissing:
            return []

    def _ensure(self, path: str) -> None:
        if self.registry.find(path) is None:
            try:
                self.registry.create(path, parents=True)
            except NodeExists:
                return


def _task_name(number: int) -> str:
    return f"task-{number}"  # as scribengin.dataflow.tasks names them, in order, so that a count says which there are


def _in_force(config: DataflowConfig, version: int) -> ConfigInForce:
    return ConfigInForce(version=version, config=config.model_dump(mode="json", exclude_none=True))


def config_to_bytes(config: DataflowConfig) -> bytes:
    """The content of a `config` node: indented JSON with every default written out, because people edit it."""
    return json.dumps(config.model_dump(mode="json", exclude_none=True), indent=1, ensure_ascii=False).encode()


def config_from_bytes(data: bytes, path: str) -> DataflowConfig:
    """Read a `config` node. Raises ConfigInvalid, naming the node."""
    try:
        value = json.loads(data)
    except ValueError as error:
        raise ConfigInvalid(f"{path} is not JSON: {error}") from None
    return DataflowConfig.parse(value, source=path)


def owner_of_resource(node: Node) -> str:
    """The dataflow that a sink resource's node names, or an empty string."""
    try:
        return str(json.loads(node.data)["dataflow"])
    except (ValueError, KeyError, TypeError):
        return ""


def already_there(dataflow: str) -> DataflowExists:
    """The error of a name that is in use."""
    return DataflowExists(
        f"dataflow '{dataflow}' exists already: see `scribengin status {dataflow}`, or give this one another name"
    )


def refuse_taken(resource: str, owner: str, dataflow: str) -> None:
    """Raise ResourceTaken if `resource` belongs to a dataflow other than `dataflow`."""
    if owner not in ("", dataflow):
        raise ResourceTaken(
            f"dataflow '{owner}' writes {resource} already, and a sink has one dataflow: write somewhere else, "
            f"or stop and delete '{owner}' first"
        )
