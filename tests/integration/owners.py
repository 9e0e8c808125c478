"""The tasks of a dataflow owned by this process, without masters and workers."""

from __future__ import annotations

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.round.checkpoints import state_of_task
from scribengin.dataflow.round.runner import RoundRunner, RoundTransform
from scribengin.dataflow.round.state.query import StreamTransform
from scribengin.dataflow.round.stateful import StatefulRunner
from scribengin_registry.contract import Registry


def owners_of(
    registry: Registry,
    resources: OpenedDataflow,
    transform: RoundTransform,
    *,
    owner: str = "test",
    generation: int = 1,
    clock: Clock = SYSTEM_CLOCK,
) -> list[RoundRunner]:
    """An owner for each task, who has not taken it over yet. The sinks' streams are made."""
    tasks, config = resources.tasks(), resources.config
    for name, streams in resources.sink_streams(len(tasks)).items():
        resources.sinks[name].create(streams)
    return [
        RoundRunner(
            registry,
            config.name,
            task,
            owner=owner,
            generation=generation,
            sources=resources.sources,
            sinks=resources.sinks,
            transform=transform,
            round_config=config.round,
            errors=config.errors,
            clock=clock,
        )
        for task in tasks
    ]


def owner_with_state(
    registry: Registry,
    resources: OpenedDataflow,
    transform: StreamTransform,
    generation: int,
    clock: Clock = SYSTEM_CLOCK,
) -> StatefulRunner:
    """The owner of the one task of a dataflow with state. As `owners_of`."""
    [owner] = owners_with_state(registry, resources, transform, generation, clock)
    return owner


def owners_with_state(
    registry: Registry,
    resources: OpenedDataflow,
    transform: StreamTransform,
    generation: int,
    clock: Clock = SYSTEM_CLOCK,
) -> list[StatefulRunner]:
    """Those of all its tasks. As `owners_of`."""
    tasks, config, state = resources.tasks(), resources.config, resources.config.state
    assert state is not None, "the dataflow has state"
    for name, streams in resources.sink_streams(len(tasks)).items():
        resources.sinks[name].create(streams)
    return [
        StatefulRunner(
            registry,
            config.name,
            task,
            transform=transform,
            state=state_of_task(config.name, task.name, state, 1),
            owner=f"owner-{generation}",
            generation=generation,
            sources=resources.sources,
            sinks=resources.sinks,
            round_config=config.round,
            errors=config.errors,
            clock=clock,
        )
        for task in tasks
    ]
