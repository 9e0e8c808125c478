"""What a candidate does without a thread, and an embedded ZooKeeper with a port that there cannot be."""

from __future__ import annotations

import threading

import pytest

from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin_registry.election import CandidateState, Election
from scribengin_registry.java.process import free_port

PATH = "/master"


def test_a_candidate_that_got_no_thread_can_withdraw(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with MemoryEnsemble().connect() as session:
        session.create(PATH)
        election = Election(session, PATH, "a")
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError, match="can't start"):
                election.volunteer(lambda _: None)
        election.withdraw()
        assert election.standing is CandidateState.OUT


@pytest.mark.parametrize("port", [-1, 65_536, 10**30])
def test_a_port_that_there_cannot_be_is_not_free(port: int) -> None:
    assert free_port(port) == 0, "a damaged `port` file of an embedded ZooKeeper names one"
