"""Carrying the acts of a schedule out on real processes: what each breaks or edits, and how it is mended."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from scribengin.dataflow.config import DataflowConfig, RoundConfig
from scribengin.dataflow.registry.config_node import as_json, config_to_bytes
from scribengin.dataflow.registry.descriptors import WorkerDescriptor
from scribengin.dataflow.registry.view import DataflowView
from scribengin.errors import DataflowError
from scribengin.launcher.contract import ContainerDescriptor
from scribengin.operations.editing import ConfigChange, edit_config
from scribengin.operations.lifecycle import set_desired_state, start_again
from scribengin.operations.restart import next_version, put_in_force, stop_for_restart
from scribengin_dev.soak.chain import STREAMS, SoakFlow
from scribengin_dev.soak.measuring import processes_of
from scribengin_dev.soak.pace import Pace
from scribengin_dev.soak.schedule import Act, Kind

_ROUND_LIMITS = (100, 300, 1000, 5000)


@dataclass(frozen=True, slots=True)
class Doing:
    """An act that is being carried out."""

    act: Act
    flow: SoakFlow
    pace: Pace

    def edit(self, **changes: Any) -> None:
        """Edit the config, as the commands do, and wait until a master has accepted it."""
        change: ConfigChange = lambda config: config.model_copy(update=changes)  # noqa: E731
        edited = edit_config(self.flow.view, change)
        self.pace.wait(lambda: self.flow.view.accepted().version >= edited.version, f"{changes} to be accepted")


def carry_out(act: Act, flow: SoakFlow, pace: Pace) -> None:
    """Do it, and mend what it broke, also when something goes wrong. Raises DataflowError, EndedEarly."""
    DEEDS[act.kind](Doing(act, flow, pace))


# -- harm


def _kill_worker(doing: Doing) -> None:
    _signal(_a_worker(doing).pid, signal.SIGKILL)


def _kill_master(doing: Doing) -> None:
    doing.flow.place.launcher.kill(_the_leader(doing))


def _kill_both(doing: Doing) -> None:
    worker = _a_worker(doing)
    _kill_master(doing)
    _signal(worker.pid, signal.SIGKILL)


def _stall_worker(doing: Doing) -> None:
    """It stands still for longer than its session, and then goes on, in the middle of its round."""
    view, worker = doing.flow.view, _a_worker(doing)
    with _stopped([worker.pid]):
        doing.pace.wait(lambda: not view.lives(worker.name), f"the session of {worker.name} to end")


def _stall_master(doing: Doing) -> None:
    """The same: another one leads before it goes on."""
    flow, leader = doing.flow, _the_leader(doing)
    with _stopped([pid for pid in processes_of(leader.pid) if pid != leader.pid]):
        doing.pace.wait(lambda: flow.leader() not in (None, leader.name), f"another master of '{flow.name}'")


def _cut_registry(doing: Doing) -> None:
    """For everything that was launched: half of the times it refuses connections, else it is silent."""
    proxy, pace = doing.flow.place.proxy, doing.pace
    try:
        (proxy.cut if doing.act.dice % 2 else proxy.pause)()
        pace.rest(pace.clock.monotonic_s() + doing.act.lasts_s)
    finally:
        proxy.heal()


# -- operating


def _pause(doing: Doing) -> None:
    view, pace = doing.flow.view, doing.pace
    set_desired_state(view, "paused")
    try:
        pace.wait(lambda: view.status().state == "paused", f"'{view.dataflow}' to pause")
        pace.rest(pace.clock.monotonic_s() + doing.act.lasts_s)
    finally:
        set_desired_state(view, "running")


def _scale_workers(doing: Doing) -> None:
    doing.edit(workers=3 - doing.flow.view.config_in_force().value.workers)


def _scale_tasks(doing: Doing) -> None:
    tasks = doing.flow.view.config_in_force().value.tasks
    doing.edit(tasks=STREAMS // 2 if tasks == STREAMS else STREAMS)


def _live_edit(doing: Doing) -> None:
    present = doing.flow.view.config_in_force().value.round.records_max
    others = [limit for limit in _ROUND_LIMITS if limit != present]
    doing.edit(round=RoundConfig(records_max=others[doing.act.dice % len(others)]))


def _rolling_edit(doing: Doing) -> None:
    doing.edit(settings={"edited at": doing.act.at_s})


def _bad_edit(doing: Doing) -> None:
    """As a ZooKeeper client writes it, which nobody holds back: it must be shown, and change nothing."""
    view, act = doing.flow.view, doing.act
    accepted = view.accepted()
    choices = bad_configs(view.config_in_force().value)
    bad = choices[act.dice % len(choices)]
    view.registry.set(view.paths.config, bad)
    try:
        doing.pace.wait(lambda: view.status().config_error, f"the bad edit of '{view.dataflow}' to be shown")
        if view.accepted() != accepted:
            raise DataflowError(f"a bad edit of '{view.dataflow}' was accepted: {bad.decode()}")
    finally:
        view.registry.set(view.paths.config, config_to_bytes(view.config_in_force().value))


def bad_configs(config: DataflowConfig) -> Sequence[bytes]:
    """What no master may accept while there are workers: no config, another transformation, another sink, an unknown
    key, a value out of range."""
    other_sink = {"out": {"kind": "log", "log": "elsewhere"}}
    return [
        b'{"name": ',
        config_to_bytes(config.model_copy(update={"sql": "SELECT payload FROM src LIMIT 1"})),
        config_to_bytes(DataflowConfig.parse({**as_json(config), "sinks": other_sink}, source="the soak")),
        config_to_bytes(config).replace(b'"workers"', b'"wrokers"'),
        config_to_bytes(config.model_copy(update={"workers": -3})),
    ]


def _restart(doing: Doing) -> None:
    place = doing.flow.place
    view = DataflowView(place.cut_off, doing.flow.name)  # its masters are given the registry's address from here
    base = view.config_to_edit()
    config = next_version(view, base.value, None, {})
    stop_for_restart(view)
    put_in_force(view, base, config, place.home)
    start_again(view, place.home)


DEEDS: dict[Kind, Callable[[Doing], None]] = {
    "kill worker": _kill_worker,
    "kill master": _kill_master,
    "kill both": _kill_both,
    "stall worker": _stall_worker,
    "stall master": _stall_master,
    "pause": _pause,
    "cut registry": _cut_registry,
    "scale workers": _scale_workers,
    "scale tasks": _scale_tasks,
    "live edit": _live_edit,
    "rolling edit": _rolling_edit,
    "bad edit": _bad_edit,
    "restart": _restart,
}
"""How each kind of act is done."""


def _a_worker(doing: Doing) -> WorkerDescriptor:
    """One that is ready, if need be soon: on a busy machine a session may be lost without us."""
    flow = doing.flow

    def one() -> WorkerDescriptor | None:
        ready = flow.ready_workers()
        return flow.view.worker(ready[doing.act.dice % len(ready)]) if ready else None

    return doing.pace.found(one, f"a worker of '{flow.name}' that is ready")


def _the_leader(doing: Doing) -> ContainerDescriptor:
    flow = doing.flow
    return doing.pace.found(lambda: flow.container(flow.leader() or ""), f"a master that leads '{flow.name}'")


def _signal(pid: int, number: signal.Signals) -> None:
    """To a process that may just have ended by itself."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


@contextmanager
def _stopped(pids: Sequence[int]) -> Iterator[None]:
    try:
        for pid in pids:
            _signal(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            _signal(pid, signal.SIGCONT)
