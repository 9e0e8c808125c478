"""What a master's decisions are as operations of one transaction."""

from __future__ import annotations

from collections.abc import Iterable

from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.edits import EditPlan
from scribengin.dataflow.registry.config_node import as_json, too_large
from scribengin.dataflow.registry.descriptors import ConfigEdit, TaskAssignment
from scribengin.dataflow.registry.edit_log import outcome_operations
from scribengin.dataflow.registry.view import DataflowView
from scribengin.master.state import events as ev
from scribengin.master.state.spreading import Slot
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
        case ev.AcceptConfig(config, version, workers_since, plan, at_ms, numbers):
            seen = _edit(version, at_ms, config, plan)
            return [view.acceptance(config, version, workers_since, numbers), *outcome_operations(view, seen)]
        case ev.RefuseConfig(config, version, plan, at_ms):
            return outcome_operations(view, _edit(version, at_ms, config, plan))
        case ev.RemoveWorker(name):
            return view.worker_removal(name)
        case ev.Release(task, slot, generation, next_slot):
            there = None if next_slot is None else (next_slot.worker, next_slot.executor)
            assignment = TaskAssignment(task=task, generation=generation, release=True, next_slot=there)
            return [Set(_path(view, task, slot), assignment.to_bytes())]
        case ev.Assign(task, slot, generation, previous, release):
            data = TaskAssignment(task=task, generation=generation, release=release).to_bytes()
            if previous == slot:
                return [Set(_path(view, task, slot), data)]
            left: list[Operation] = [] if previous is None else [Delete(_path(view, task, previous))]
            return [*left, Create(_path(view, task, slot), data)]
        case ev.Unassign(task, slot):
            return [Delete(_path(view, task, slot))]
        case ev.CreateTasks(tasks, grouped_for):
            return view.creation_of_tasks(tasks, grouped_for)
        case ev.ReplaceTasks(removed, tasks, count, grouped_for):
            return view.replacement_of_tasks(removed, tasks, count, grouped_for)
        case ev.GrowTask(task):
            return view.growth_of_task(task)


def _edit(version: int, at_ms: int, config: DataflowConfig | None, plan: EditPlan) -> ConfigEdit:
    if config is not None and plan.refusal is not None and too_large(config) is not None:
        config = None  # nobody will go back to it, and the history could not take it either
    return ConfigEdit(
        version=version,
        at_ms=at_ms,
        config=None if config is None else as_json(config),
        outcome="accepted" if plan.refusal is None else "refused",
        changes=plan.changes,
        actions=plan.actions,
        error=plan.refusal,
    )


def _path(view: DataflowView, task: str, slot: Slot) -> str:
    return view.paths.assignment(slot.worker, slot.executor, task)
