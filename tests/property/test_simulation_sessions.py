"""A simulated session that is over at the servers is never taken up again, however its end came about."""

from __future__ import annotations

from scribengin.testing.simulation.plan import Fault, Plan
from scribengin.testing.simulation.world import simulate


def test_a_process_that_stands_still_while_no_server_answers_has_a_new_session_afterwards() -> None:
    faults = (Fault("quorum away", "", 9, 3.69), Fault("zombie", "registry.", 9, 0.18))
    plan = Plan(5984, streams=1, records=9, workers=1, executors=1, standbys=0, faults=faults)
    outcome = simulate(plan)
    assert outcome.failure is None, outcome.transcript
