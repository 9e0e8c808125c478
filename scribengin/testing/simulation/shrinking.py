"""A failing plan, made as small as it still fails: fewer faults, edits and rewinds, fewer records, fewer processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from scribengin.testing.simulation.plan import Plan
from scribengin.testing.simulation.world import Outcome, simulate

TRIES_MAX = 200


def shrunk(failing: Outcome, tries_max: int = TRIES_MAX, run: Callable[[Plan], Outcome] = simulate) -> Outcome:
    """The smallest simulation found that breaks the same promise. Runs some dozens of them, each by `run`."""
    smallest = failing
    tries = 0
    while True:
        for plan in _smaller(smallest.plan):
            tries += 1
            if tries > tries_max:
                return smallest
            outcome = run(plan)
            if outcome.promise == failing.promise:
                smallest = outcome
                break
        else:
            return smallest


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Plans with one thing less, what a reader has most trouble with first."""
    for number in range(len(plan.faults)):
        yield replace(plan, faults=plan.faults[:number] + plan.faults[number + 1 :])
    for number in range(len(plan.edits)):
        yield replace(plan, edits=plan.edits[:number] + plan.edits[number + 1 :])
    for number in range(len(plan.rewinds)):
        yield replace(plan, rewinds=plan.rewinds[:number] + plan.rewinds[number + 1 :])
    if plan.deleted:
        yield replace(plan, deleted=False)
    if plan.flows > 1 and not plan.rewinds_later:
        yield replace(plan, flows=plan.flows - 1, fork=False)
    for name, least in (("streams", 1), ("workers", 1), ("executors", 1), ("standbys", 0)):
        if getattr(plan, name) > least:
            yield replace(plan, **{name: getattr(plan, name) - 1})
    if plan.records > 1:
        yield replace(plan, records=plan.records // 2)
        yield replace(plan, records=plan.records - 1)
