"""Sessions of a simulation: one that is over is never taken up again, and without servers nobody is answered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from scribengin.testing.simulation.plan import SESSION_TIMEOUT_S, Fault, FaultKind, Plan
from scribengin.testing.simulation.world import Line, simulate

AWAY_S = 0.75 * SESSION_TIMEOUT_S
ON_ITS_WAY_S = 0.5
"""Now and then a message takes a hundred times as long as others."""


def test_a_process_that_stands_still_while_no_server_answers_has_a_new_session_afterwards() -> None:
    faults = (Fault("quorum away", "", 9, 3.69), Fault("zombie", "registry.", 9, 0.18))
    plan = Plan(5984, streams=1, records=9, workers=1, executors=1, standbys=0, faults=faults)
    outcome = simulate(plan)
    assert outcome.failure is None, outcome.transcript


@pytest.mark.parametrize("kind", ["servers restart", "quorum away"])
@pytest.mark.parametrize("seed", range(3))
def test_who_begins_while_no_server_answers_is_answered_once_they_do(kind: FaultKind, seed: int) -> None:
    """A container was just launched: its process begins within half a second."""
    plan = Plan(seed, faults=(Fault(kind, "launcher.launch:after", 3, AWAY_S),))
    _check_silent(plan)


@pytest.mark.parametrize("kind", ["servers restart", "quorum away"])
@pytest.mark.parametrize("seed", range(3))
def test_who_was_cut_off_already_is_answered_no_earlier_than_others(kind: FaultKind, seed: int) -> None:
    cut_off = (Fault("cut off", "round.commit:before", 2, 0.3),)
    _check_silent(Plan(seed, faults=(*cut_off, Fault(kind, "registry.", 400, AWAY_S))))
    _check_silent(Plan(seed, faults=(*cut_off, Fault(kind, "round.commit:before", 2, AWAY_S))))


def _check_silent(plan: Plan) -> None:
    """While they are away, the last fault of the plan, nobody of the engine has an answer to what was asked since; then
    everybody has. An answer that had left before may come just after they went."""
    outcome = simulate(plan, every_stop=True)
    assert outcome.failure is None, outcome.transcript
    gone_s = next(line.at_s for line in outcome.lines if line.what.endswith(str(plan.faults[-1])))
    early = [
        (asked_s, answer)
        for asked_s, answer in _answers(outcome.lines)
        if gone_s < answer.at_s < gone_s + AWAY_S and (asked_s > gone_s or answer.at_s > gone_s + ON_ITS_WAY_S)
    ]
    assert not early, f"{early[0]}, in:\n{outcome.transcript}"
    assert any(answer.at_s >= gone_s + AWAY_S for _asked_s, answer in _answers(outcome.lines))


def _answers(lines: Sequence[Line]) -> Iterator[tuple[float, Line]]:
    """The answers of the registry, each with when it was asked."""
    asked_s: dict[tuple[str, str], float] = {}
    for line in lines:
        if line.what.startswith("registry."):
            what, answered, path = line.what.partition(":answered")
            if answered:
                yield asked_s[line.who, what + path], line
            else:
                asked_s[line.who, what] = line.at_s
