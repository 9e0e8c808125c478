"""What a master's decisions are as operations of one transaction."""

from __future__ import annotations

from collections.abc import Iterable

from scribengin.dataflow.descriptors import TaskAssignment
from scribengin.dataflow.view import DataflowView
from scribengin.master import events as ev
from scribengin.master.placement import Slot
from scribengin_registry.contract import Create, Delete, Operation, Set


def operations_for(view: DataflowView, instructions: Iterable[ev.RegistryInstruction]) -> list[Operation]:
    """The operations, in order. Reads what stands below workers that are to be removed.

    A task that moves off a worker is deleted there by its own operation, and not once more by the worker's removal.
    """
    operations: list[Operation] = []
    deleted: set[str] = set()
    for instruction in instructions:
        for operation in _operations(view, instruction):
            if isinstance(operation, Delete):
                if operation.path in deleted:
                    continue
                deleted.add(operation.path)
            operations.append(operation)
    return operations


def _operations(view: DataflowView, instruction: ev.RegistryInstruction) -> list[Operation]:
    match instruction:
        case ev.AcceptConfig(config, version):
            return [view.acceptance(config, version)]
        case ev.RemoveWorker(name):
            return view.worker_removal(name)
        case ev.Release(task, slot, lease):
            assignment = TaskAssignment(task=task, lease=lease, release=True)
            return [Set(_path(view, task, slot), assignment.to_bytes())]
        case ev.Assign(task, slot, lease, previous, release):
            data = TaskAssignment(task=task, lease=lease, release=release).to_bytes()
            if previous == slot:
                return [Set(_path(view, task, slot), data)]
            left: list[Operation] = [] if previous is None else [Delete(_path(view, task, previous))]
            return [*left, Create(_path(view, task, slot), data)]
        case ev.Unassign(task, slot):
            return [Delete(_path(view, task, slot))]
        case ev.CreateTasks(tasks):
            return view.creation_of_tasks(tasks)


def _path(view: DataflowView, task: str, slot: Slot) -> str:
    return view.paths.assignment(slot.worker, slot.executor, task)
