"""Operating a chain: its dataflows one after the other, in the order that leaves nothing half way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.threads import pause
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.edges import Edge
from scribengin.dataflow.registry.descriptors import FINAL_STATES, DataflowState, DataflowStatus
from scribengin.dataflow.registry.view import DataflowView
from scribengin.dataflow.retention_holds import HeldLog, release_all_holds, retention_holds
from scribengin.dataflow.round.checkpoints import StateLeft
from scribengin.errors import DataflowBusy, DataflowError, ScribenginError
from scribengin.operations.chain.draining import left_to_read
from scribengin.operations.chain.graph import ChainGraph, graph_of_flows
from scribengin.operations.chain.registry import ChainDescriptor, ChainMember, forget_chain
from scribengin.operations.delete import delete_dataflow, release_holds
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
    views, graph = _flowing(registry, chain)
    undrained: list[str] = []
    stopped: set[str] = set()
    for member, view in views:
        name = f"{chain.name}/{member.key}"
        status = view.status()
        edges = tuple(edge for edge in graph.feeding(member.key) if edge.writer in stopped)
        stopped.add(member.key)
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


@dataclass(frozen=True, slots=True)
class ChainStart:
    """Which dataflows of a chain were started, and the states of those that ran already, by their names there."""

    started: tuple[str, ...]
    others: Mapping[str, DataflowState]


def start_chain(registry: Registry, chain: ChainDescriptor, home: Path) -> ChainStart:
    """Start the dataflows that have ended, readers first. Raises DataflowBusy (none has), and what starting one raises:
    it then says which were started."""
    views, _ = _flowing(registry, chain)
    states = {member.key: view.status().state for member, view in views}
    ended = [(m.key, view) for m, view in views if states[m.key] in FINAL_STATES or not has_master(view)]
    if not ended:
        raise _needs_no_start(chain.name, states)
    started: list[str] = []
    for key, view in reversed(ended):
        try:
            start_again(view, home)
        except ScribenginError as error:
            if started:
                error.args = (f"{error}; started before it: {', '.join(started)}",)
            raise
        started.append(key)
    return ChainStart(tuple(reversed(started)), {key: states[key] for key in states if key not in started})


def _needs_no_start(chain: str, states: Mapping[str, DataflowState]) -> DataflowBusy:
    """What to raise of a chain of which no dataflow has ended."""
    for state, next_step in (
        ("stopping", f"wait until it has, then `scribengin start {chain}`"),
        ("paused", f"`scribengin resume {chain}` lets it go on"),
    ):
        keys = [key for key in states if states[key] == state]
        if keys:
            partly = "" if len(keys) == len(states) else "partly "
            return DataflowBusy(f"chain '{chain}' is {partly}{state} ({', '.join(keys)}): {next_step}")
    return DataflowBusy(f"all dataflows of chain '{chain}' run: there is nothing to start")


def release_chain_holds(registry: Registry, chain: ChainDescriptor) -> tuple[list[HeldLog], list[str]]:
    """Have logs keep nothing more for the dataflows of a chain; returns what they had kept, and of each dataflow that
    is not there why. What is kept for such a one, because it was to be started, goes as well. Raises DataflowBusy, as
    `release_holds`."""
    views = {member.key: view for member, view in _there(registry, chain)}
    held = release_holds(list(views.values()))
    missing = [member for member in chain.members if member.key not in views]
    configs = chain.parsed().dataflows if missing else {}
    for member in missing:
        held += retention_holds(registry, configs[member.key])
        release_all_holds(registry, configs[member.key])
    return held, [f"{chain.name}/{member.key} is not there, {_why_missing(chain)}" for member in missing]


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
    """The dataflows in the order in which records flowed at the submit. Raises DataflowBusy if one is not there."""
    for member in chain.members:
        view = DataflowView(registry, member.dataflow)
        if registry.find(view.paths.root) is None:
            raise DataflowBusy(
                f"dataflow '{chain.name}/{member.key}' is not there, {_why_missing(chain)}: submit the chain again, or "
                f"`scribengin kill {chain.name}` and `scribengin delete {chain.name}`"
            )
        yield member, view


def _why_missing(chain: ChainDescriptor) -> str:
    return "its submission was cut short" if chain.state == "submitting" else "somebody has deleted it"


def _flowing(registry: Registry, chain: ChainDescriptor) -> tuple[list[tuple[ChainMember, DataflowView]], ChainGraph]:
    """The dataflows in the order in which records flow as their configs are now, which may have been edited since they
    were submitted, and the graph of them. Raises DataflowBusy if one is not there."""
    views = {member.key: (member, view) for member, view in _views(registry, chain)}
    graph = graph_of_flows({key: view.config_in_force().value for key, (_, view) in views.items()})
    return [views[key] for key in graph.order], graph


def _led(registry: Registry, chain: ChainDescriptor) -> list[tuple[ChainMember, DataflowView]]:
    """The dataflows in the order in which records flow. Raises DataflowBusy if one is not there, has ended, or has no
    master."""
    found, _ = _flowing(registry, chain)
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
