"""Operating a chain: its dataflows one after the other, in the order that leaves nothing half way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.threads import pause
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.edges import Edge
from scribengin.dataflow.registry.descriptors import FINAL_STATES, DataflowStatus
from scribengin.dataflow.registry.view import DataflowView
from scribengin.dataflow.retention_holds import release_all_holds
from scribengin.dataflow.round.checkpoints import StateLeft
from scribengin.errors import DataflowBusy, DataflowError
from scribengin.operations.chain.draining import left_to_read
from scribengin.operations.chain.graph import graph_of
from scribengin.operations.chain.registry import ChainDescriptor, ChainMember, forget_chain
from scribengin.operations.delete import delete_dataflow
from scribengin.operations.editing import refuse_unless_led
from scribengin.operations.lifecycle import (
    await_masters_gone,
    ended_badly,
    has_master,
    masters,
    set_desired_state,
    start_again,
    wait_for_state,
)
from scribengin_registry.contract import Registry

_LOOK_S = 0.3
_WAITING_MAX = 3
Progress = Callable[[str], None]
"""Told what is waited for."""


def stop_chain(
    registry: Registry, chain: ChainDescriptor, progress: Progress, *, timeout_s: float | None = None
) -> None:
    """Stop the dataflows from the sources down: each reads on until everything that those before it wrote is committed.

    Asked again after it was cut short, it goes on where it was. Raises DataflowBusy (one cannot drain as it is, or none
    did within `timeout_s`: those before it have stopped), DataflowError (some could not drain; the others have
    stopped).
    """
    deadline_s = None if timeout_s is None else SYSTEM_CLOCK.monotonic_s() + timeout_s
    graph = graph_of(chain.parsed())
    undrained: list[str] = []
    for member, view in _views(registry, chain):
        name = f"{chain.name}/{member.key}"
        status = view.status()
        edges = graph.feeding(member.key)
        if status.state not in FINAL_STATES and edges:
            status = _drain(view, name, edges, progress, deadline_s)
        if status.state in FINAL_STATES and edges and (left := left_to_read(view, [edge.source for edge in edges])):
            undrained.append(f"{name} is {status.state} and has not read all of {_some(left)}")
        progress(f"stopping {name}")
        set_desired_state(view, "stopped")
        if status.state in FINAL_STATES:
            continue
        status = wait_for_state(view, lambda s: s.state in FINAL_STATES, lambda _: None, asked="stopped")
        await_masters_gone(view)
        if status.state == "failed":
            undrained.append(f"{name} failed while it stopped: {status.error}")
    if undrained:
        raise DataflowError(
            f"chain '{chain.name}' has stopped, but not all that was written has come through: {'; '.join(undrained)}; "
            f"nothing is lost: `scribengin start {chain.name}` goes on there"
        )


def _drain(
    view: DataflowView, name: str, edges: tuple[Edge, ...], progress: Progress, deadline_s: float | None
) -> DataflowStatus:
    """Return once nothing is left to read, or the dataflow has ended. One that is paused goes on for that.

    Raises DataflowBusy when the deadline is over, and at once where nobody is to read what is left.
    """
    if view.config_to_edit().value.desired_state == "paused":
        set_desired_state(view, "running")
    while True:
        status = view.status()
        if status.state in FINAL_STATES:
            return status
        unread = left_to_read(view, [edge.source for edge in edges])
        if not unread:
            return status
        hindrance = hindrance_of(view.config_to_edit().value, name, unread)
        late = deadline_s is not None and SYSTEM_CLOCK.monotonic_s() > deadline_s
        if hindrance or late:
            raise DataflowBusy(
                f"{name} has not read all of {_some(unread)}{f': {hindrance}' if hindrance else ' yet'}; those before "
                f"it have stopped, and nothing else. Stop the chain again then; or `scribengin stop {name}` first, and "
                "what is unread waits for its next start"
            )
        progress(f"{name} reads on: {_some(unread)}")
        if not masters(view):  # waits for one, and raises when none comes
            wait_for_state(view, lambda s: bool(masters(view)) or s.state in FINAL_STATES, lambda _: None)
        pause(_LOOK_S)


def hindrance_of(config: DataflowConfig, name: str, unread: tuple[str, ...]) -> str:
    """Why what is left will never be read as the config is, and what to do; nothing, if it will."""
    if not config.workers:
        return f"it is to have no workers: `scribengin scale {name} --workers 1`"
    paused = [one for one, source in config.sources.items() if source.paused]
    waiting = [one for one in paused if any(stream.startswith(f"{one}:") for stream in unread)]
    if waiting:
        return f"source '{waiting[0]}' is paused: `scribengin config set {name} sources.{waiting[0]}.paused=false`"
    return ""


def ask_chain_to_pause(registry: Registry, chain: ChainDescriptor) -> None:
    """Ask all dataflows to pause, from the sources down, and wait for none. Raises DataflowBusy before anything is
    done."""
    for _, view in _led(registry, chain):
        set_desired_state(view, "paused")


def pause_chain(registry: Registry, chain: ChainDescriptor, progress: Progress) -> None:
    """Pause all dataflows, from the sources down. Raises DataflowBusy before anything is done, DataflowError."""
    for member, view in _led(registry, chain):
        progress(f"pausing {chain.name}/{member.key}")
        set_desired_state(view, "paused")
        status = wait_for_state(view, lambda s: s.state in ("paused", *FINAL_STATES), lambda _: None, asked="paused")
        if status.state != "paused":
            raise ended_badly(status)


def resume_chain(registry: Registry, chain: ChainDescriptor) -> list[str]:
    """Let all dataflows go on, readers first; returns which ones were paused. Raises DataflowBusy before anything is
    done."""
    led = reversed(_led(registry, chain))
    return [member.key for member, view in led if set_desired_state(view, "running")]


def start_chain(registry: Registry, chain: ChainDescriptor, home: Path) -> list[str]:
    """Start the dataflows that have ended, readers first; returns their names. Raises DataflowBusy (none has)."""
    views = list(_views(registry, chain))
    ended = [(m, view) for m, view in views if view.status().state in FINAL_STATES or not has_master(view)]
    if not ended:
        raise DataflowBusy(f"all dataflows of chain '{chain.name}' run: there is nothing to start")
    for _, view in reversed(ended):
        start_again(view, home)
    return [member.key for member, _ in ended]


def refuse_running(registry: Registry, chain: ChainDescriptor) -> None:
    """Raise DataflowBusy for a chain of which a dataflow has not ended, and so cannot be deleted."""
    for member, view in _there(registry, chain):
        state = view.status().state
        if state not in (*FINAL_STATES, "deleting"):
            raise DataflowBusy(
                f"dataflow '{chain.name}/{member.key}' is {state}: `scribengin stop {chain.name}` first (or kill)"
            )


def refuse_incomplete(registry: Registry, chain: ChainDescriptor) -> None:
    """Raise DataflowBusy for a chain of which a dataflow is not there."""
    for _ in _views(registry, chain):
        pass


def delete_chain(registry: Registry, chain: ChainDescriptor, *, force: bool) -> list[StateLeft]:
    """Forget a chain and its dataflows; the logs and topics between them stay. Cut short, it can be asked again.

    Returns the state that stays, as `delete_dataflow` does. Raises DataflowBusy, before anything is done
    if one of them runs, and SystemUnreachable.
    """
    refuse_running(registry, chain)
    left = [delete_dataflow(view, force=force) for _, view in reversed(list(_there(registry, chain)))]
    for config in chain.parsed().dataflows.values():
        release_all_holds(registry, config)  # of those that were never started, because the submission was cut short
    forget_chain(registry, chain.name)
    return [state for state in left if state is not None]


def _views(registry: Registry, chain: ChainDescriptor) -> Iterator[tuple[ChainMember, DataflowView]]:
    """The dataflows in the order in which records flow. Raises DataflowBusy if one is not there."""
    for member in chain.members:
        view = DataflowView(registry, member.dataflow)
        if registry.find(view.paths.root) is None:
            why = "its submission was cut short" if chain.state == "submitting" else "somebody has deleted it"
            raise DataflowBusy(
                f"dataflow '{chain.name}/{member.key}' is not there, {why}: submit the chain again, or `scribengin "
                f"kill {chain.name}` and `scribengin delete {chain.name}`"
            )
        yield member, view


def _led(registry: Registry, chain: ChainDescriptor) -> list[tuple[ChainMember, DataflowView]]:
    """The dataflows in the order in which records flow. Raises DataflowBusy if one is not there, has ended, or has no
    master."""
    found = list(_views(registry, chain))
    for _, view in found:
        refuse_unless_led(view)
    return found


def _there(registry: Registry, chain: ChainDescriptor) -> Iterator[tuple[ChainMember, DataflowView]]:
    """The dataflows that are there."""
    for member in chain.members:
        view = DataflowView(registry, member.dataflow)
        if registry.find(view.paths.root) is not None:
            yield member, view


def _some(names: tuple[str, ...]) -> str:
    more = len(names) - _WAITING_MAX
    return ", ".join(names[:_WAITING_MAX]) + (f" and {more} more" if more > 0 else "")
