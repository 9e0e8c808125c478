"""How long a dataflow takes to recover when a machine loses power under its worker, or under its master (SIGKILL).

Beside each figure stands the session timeout: until it is over, nobody may take the place of one who is only silent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from scribengin.base.clock import Clock
from scribengin.dataflow.registry.view import DataflowView
from scribengin_dev.bench.dataflows.steady import (
    RECORDS_PER_S,
    STREAMS,
    await_workers,
    fed_dataflow,
    rounds_of,
    wait_for,
)
from scribengin_dev.bench.rows import Row, Scale
from scribengin_dev.harness.casualties import Casualty, kill_master, kill_worker
from scribengin_dev.harness.installation import Installation, embedded_place
from scribengin_dev.harness.progress import FlowProgress
from scribengin_dev.harness.standstill import SeenCommit, longest_gap_ms

RECOVERIES = ("recovery-local", "recovery-yarn", "recovery-skein")
"""The benchmarks; each is named after the launcher of its containers."""
_NAME = "recovery"
_WORKERS = 2
_MS_PER_S = 1000


@dataclass(frozen=True, slots=True)
class _Recovery:
    """From the kill until the place was filled, and the longest that a task stood still meanwhile."""

    took_ms: float
    standstill_ms: float


def recovery(base: Path, name: str, scale: Scale, clock: Clock) -> list[Row]:
    """A row for a worker and one for a master, killed in turn `scale.runs` times under a steady load; medians.

    Everything runs below `base`. Raises DataflowError, and what the servers raise that cannot be started.
    """
    launcher = name.removeprefix("recovery-")
    workers, masters = [], []
    with embedded_place(base / name, clock, launcher) as place, fed_dataflow(place, _NAME, launcher, _WORKERS) as flow:
        timeout_ms = DataflowView(place.registry, _NAME).config().value.session_timeout_s * _MS_PER_S
        for _ in range(scale.runs):
            workers.append(_after_a_worker(place, flow))
            masters.append(_after_a_master(place, flow))
    how = (
        f"exactly once; launcher {launcher}, {_WORKERS} workers, {STREAMS} tasks, {STREAMS * RECORDS_PER_S}/s; from "
        "SIGKILL until "
    )
    ends = {
        "worker": (workers, "all of its tasks have committed a round elsewhere"),
        "master": (masters, "another master leads"),
    }
    return [_row(f"{name}/{whom}", found, timeout_ms, f"{how}{until}") for whom, (found, until) in ends.items()]


def _row(name: str, found: list[_Recovery], timeout_ms: float, what: str) -> Row:
    stood_ms = median(one.standstill_ms for one in found)
    guarantee = f"{what}; meanwhile the task that stood still longest did so for {stood_ms / _MS_PER_S:.1f} s (median)"
    peer = f"the session timeout of {timeout_ms / _MS_PER_S:g} s"
    return Row(name, "ms", median(one.took_ms for one in found), timeout_ms, peer, guarantee)


def _after_a_worker(place: Installation, flow: FlowProgress) -> _Recovery:
    """Kill one, and wait until all of its tasks have committed elsewhere, and further until all is as before."""
    victim = kill_worker(place, flow.dataflow)

    def back_ms() -> list[int | None]:
        """When each of its tasks was first committed by somebody else; None where it was not yet."""
        bereft = [commits for commits in rounds_of(flow).values() if commits and commits[0].task in victim.tasks]
        return [_taken_over_ms(commits, victim.at_ms) for commits in bereft]

    wait_for(place, flow, lambda: None not in back_ms(), f"the tasks of {victim.name} to go on elsewhere")
    took_ms = max(at_ms for at_ms in back_ms() if at_ms is not None) - victim.at_ms
    stood_ms = _standstill_ms(flow, victim)
    await_workers(place, flow, _WORKERS)
    return _Recovery(took_ms, stood_ms)


def _taken_over_ms(commits: Sequence[SeenCommit], killed_ms: int) -> int | None:
    """When another owner than the one of `killed_ms` first committed."""
    owner = next((commit.owner for commit in reversed(commits) if commit.at_ms <= killed_ms), None)
    return next((commit.at_ms for commit in commits if commit.at_ms > killed_ms and commit.owner != owner), None)


def _after_a_master(place: Installation, flow: FlowProgress) -> _Recovery:
    """Kill the one that leads, and wait until another does."""
    view = DataflowView(place.registry, flow.dataflow)
    before = view.placement_head().value.epoch
    victim = kill_master(place, flow.dataflow)
    led_ms: list[int] = []

    def led() -> bool:
        if view.placement_head().value.epoch > before:
            led_ms.append(place.clock.now_ms())
        return bool(led_ms)

    wait_for(place, flow, led, f"another master after {victim.name}")
    await_workers(place, flow, _WORKERS)
    return _Recovery(led_ms[0] - victim.at_ms, _standstill_ms(flow, victim))


def _standstill_ms(flow: FlowProgress, victim: Casualty) -> int:
    return max(longest_gap_ms(commits, victim.at_ms) for commits in rounds_of(flow).values())
