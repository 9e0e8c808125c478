"""A candidate that asks a server which has fallen behind: it stands once, and leads."""

from __future__ import annotations

from scribengin.testing.memory.registry import Loss, MemoryEnsemble
from scribengin.testing.waiting import wait_until
from scribengin_registry.election import CandidateState, Election

PATH = "/master"


def test_a_candidate_whose_creation_it_cannot_see_yet_stands_once() -> None:
    """Its reply was lost, and who answers next has not got so far: a second node would wait for the first."""
    ensemble = MemoryEnsemble()
    with ensemble.connect() as operator:
        operator.create(PATH)
    behind = ensemble.follower()
    losses: list[Loss] = ["reply"]
    ensemble.lose = lambda act, _path: losses.pop() if losses and act == "create" else None
    with ensemble.connect(follower=behind) as session:
        election = Election(session, PATH, "a")
        election.volunteer(lambda _: None)
        wait_until(lambda: election.standing is CandidateState.LEADER, what="the only candidate to lead")
        assert len(ensemble.tree.children(PATH)) == 1
        election.withdraw()
    assert ensemble.tree.children(PATH) == []
