"""How long tasks stand still that an edit does not touch, while a dataflow is scaled to two workers and back to one."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from statistics import median

from scribengin.base.clock import Clock
from scribengin.dataflow.registry.view import DataflowView
from scribengin.operations.editing import edit_config
from scribengin_dev.bench.dataflows.steady import (
    RECORDS_PER_S,
    STREAMS,
    await_workers,
    fed_dataflow,
    rounds_of,
    wait_for,
)
from scribengin_dev.bench.rows import Row, Scale
from scribengin_dev.harness.installation import Installation, embedded_place
from scribengin_dev.harness.progress import FlowProgress
from scribengin_dev.harness.standstill import longest_gap_ms

SCALING = "scaling"
_CALM_ROUNDS = 100
"""So many rounds of each stream say what is usual."""


def scaling(base: Path, scale: Scale, clock: Clock) -> Row:
    """The longest gap between two commits of a task that stays where it is, beside twice the usual 99th percentile.

    Scaled up and down `scale.runs` times under a steady load; medians. Raises DataflowError.
    """
    stood_ms, usual_ms = [], []
    with embedded_place(base / SCALING, clock, "local") as place, fed_dataflow(place, SCALING, "local", 1) as flow:
        for workers in (2, 1) * scale.runs:
            usual_ms.append(_usual_gap_ms(place, flow))
            stood_ms.append(_gap_of_those_who_stay_ms(place, flow, workers))
    how = (
        f"exactly once; {STREAMS} tasks, {STREAMS * RECORDS_PER_S}/s; from the edit of `workers` until all tasks have "
        f"settled. The p99 of a task's gap before was {median(usual_ms):.0f} ms"
    )
    return Row(SCALING, "ms", median(stood_ms), 2 * median(usual_ms), "twice the p99 of the gaps before", how)


def _usual_gap_ms(place: Installation, flow: FlowProgress) -> float:
    """The 99th percentile of the times between two commits of a stream, from now on, while nothing happens."""
    since_ms = place.clock.now_ms()

    def calm() -> list[list[int]]:
        found = [[c.at_ms for c in commits if c.at_ms > since_ms] for commits in rounds_of(flow).values()]
        return found if all(len(times) >= _CALM_ROUNDS for times in found) else []

    wait_for(place, flow, lambda: bool(calm()), f"{_CALM_ROUNDS} rounds of each stream")
    gaps = sorted(later - earlier for times in calm() for earlier, later in pairwise(times))
    return gaps[int(len(gaps) * 0.99)]


def _gap_of_those_who_stay_ms(place: Installation, flow: FlowProgress, workers: int) -> int:
    """Edit the config, and wait until all tasks stand where they belong. Tasks that move are none of this figure."""
    since_ms = place.clock.now_ms()
    edit_config(
        DataflowView(place.registry, flow.dataflow), lambda config: config.model_copy(update={"workers": workers})
    )
    await_workers(place, flow, workers)
    found = rounds_of(flow).values()
    stayed = [commits for commits in found if len({c.owner for c in commits if c.at_ms > since_ms}) == 1]
    return max(longest_gap_ms(commits, since_ms) for commits in stayed)
