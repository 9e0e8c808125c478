"""Killing a worker, a master, or a machine with all that runs there: SIGKILL, no warning, no clean-up."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

from scribengin.dataflow.registry.view import DataflowView
from scribengin.errors import DataflowError
from scribengin_dev.harness.installation import Installation
from scribengin_registry.election import Election
from scribengin_registry.errors import NodeMissing


@dataclass(frozen=True, slots=True)
class Casualty:
    """Who was killed and when, by the wall clock; `tasks` are those that a worker had, or all workers of a machine.
    `pid` is the process, or one of the machine's."""

    name: str
    pid: int
    at_ms: int
    tasks: tuple[str, ...] = ()


def kill_worker(place: Installation, dataflow: str) -> Casualty:
    """Kill the worker that has the most tasks. Raises DataflowError if none has any, or if it died by itself."""
    victim, tasks = _busiest(place, dataflow)
    pid = DataflowView(place.registry, dataflow).worker(victim).pid
    at_ms = place.clock.now_ms()
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        words = place.last_words(dataflow)
        raise DataflowError(f"worker '{victim}' of '{dataflow}' was dead before it was killed:\n{words}") from None
    return Casualty(victim, pid, at_ms, tasks[victim])


def kill_machine(place: Installation, dataflow: str) -> Casualty:
    """Let the machine lose its power that the worker with the most tasks runs on, with all else that runs there.
    Raises DataflowError if no worker has any, or there are no machines."""
    victim, tasks = _busiest(place, dataflow)
    view = DataflowView(place.registry, dataflow)
    pid = view.worker(victim).pid
    machine = place.machines.of(pid) if place.machines is not None else None
    if machine is None:
        raise DataflowError(f"worker '{victim}' of '{dataflow}' runs on no machine of the demo")
    dead = tuple(task for worker, mine in tasks.items() if machine.has(view.worker(worker).pid) for task in mine)
    at_ms = place.clock.now_ms()
    machine.power_off()
    return Casualty(machine.name, pid, at_ms, dead)


def _busiest(place: Installation, dataflow: str) -> tuple[str, dict[str, tuple[str, ...]]]:
    """The worker that has the most tasks, and the tasks of all."""
    tasks = working_workers(place, dataflow)
    if not tasks:
        raise DataflowError(f"dataflow '{dataflow}' has no worker with tasks to kill: {place.last_words(dataflow)}")
    return max(tasks, key=lambda worker: len(tasks[worker])), tasks


def kill_master(place: Installation, dataflow: str) -> Casualty:
    """Kill the master that leads. Raises DataflowError if none does."""
    leader = Election(place.registry, DataflowView(place.registry, dataflow).paths.master, "demo").leader()
    if leader is None:
        raise DataflowError(f"dataflow '{dataflow}' has no master to kill: {place.last_words(dataflow)}")
    at_ms = place.clock.now_ms()
    return Casualty(leader, place.containers.kill_leader(dataflow, leader), at_ms)


def working_workers(place: Installation, dataflow: str) -> dict[str, tuple[str, ...]]:
    """The workers that live and have tasks, with the names of those."""
    view = DataflowView(place.registry, dataflow)
    tasks = {worker: _tasks_of(view, worker) for worker in view.workers() if view.lives(worker)}
    return {worker: mine for worker, mine in tasks.items() if mine}


def _tasks_of(view: DataflowView, worker: str) -> tuple[str, ...]:
    try:
        executors = view.worker(worker).executors
        return tuple(p.assignment.task for executor in executors for p in view.assignments(worker, executor))
    except NodeMissing:  # its master has replaced it since it was listed
        return ()
