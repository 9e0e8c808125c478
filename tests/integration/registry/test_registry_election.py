"""Leader election between real sessions: one leads, another follows when it is gone, and nobody leads out of touch."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from scribengin.testing.chaos_proxy import ChaosProxy
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Create, Delete, Registry, SessionState, Watch
from scribengin_registry.election import CandidateState, Election, in_order, predecessor
from scribengin_registry.errors import NodeMissing, NotAuthorised, RegistryError, SessionLost
from scribengin_registry.opening import connect

CANDIDATE, LEADER, DOUBTFUL, OUT = (
    CandidateState.CANDIDATE,
    CandidateState.LEADER,
    CandidateState.DOUBTFUL,
    CandidateState.OUT,
)
PATH = "/flows/flights/master"

LEADING_PROCESS = """
import sys, time
from scribengin_registry.election import Election
from scribengin_registry.opening import connect

registry = connect(sys.argv[1], session_timeout_s=1.0)
election = Election(registry, sys.argv[2], "process")
election.volunteer(lambda standing: print(standing.value, flush=True))
sys.stdin.readline()
"""


@dataclass
class Candidate:
    """One candidate with a session and a network of its own, and what it was told."""

    name: str
    proxy: ChaosProxy
    registry: Registry
    election: Election
    heard: list[CandidateState] = field(default_factory=list)

    def wait_for(self, *heard: CandidateState) -> None:
        """Wait until this candidate was told exactly this, from its beginning."""
        wait_until(
            lambda: self.heard == list(heard), timeout_s=60, what=f"{self.name} to hear {heard}, not {self.heard}"
        )


class Candidates:
    """Makes candidates, who all know each other's election."""

    def __init__(self, hosts: str, resources: ExitStack) -> None:
        self._hosts = hosts
        self._resources = resources

    def add(self, name: str, session_timeout_s: float = 20.0, *, volunteers: bool = True) -> Candidate:
        """A new candidate, who stands where the registry has it last."""
        address, _, chroot = self._hosts.partition("/")
        proxy = self._resources.enter_context(ChaosProxy(address))
        registry = connect(f"{proxy.address}/{chroot}", session_timeout_s=session_timeout_s)
        self._resources.callback(registry.close)
        self._resources.callback(proxy.heal)
        candidate = Candidate(name, proxy, registry, Election(registry, PATH, name))
        if volunteers:
            candidate.election.volunteer(candidate.heard.append)
        return candidate


@pytest.fixture
def candidates(registry: Registry, registry_hosts: str) -> Iterator[Candidates]:
    with ExitStack() as resources:
        registry.create(PATH, parents=True)
        yield Candidates(registry_hosts, resources)


def wait_until_they_stand(registry: Registry, count: int) -> None:
    """Wait until the election has that many candidates."""

    def standing() -> int:
        node = registry.find(PATH)
        return 0 if node is None else node.children_count

    wait_until(lambda: standing() == count, timeout_s=60, what=f"{count} candidates")


def test_the_lowest_number_leads_whatever_comes_before_it_in_the_name() -> None:
    contenders = ["a-0000000011", "z-0000000002", "m-0000000007"]
    assert in_order(contenders) == ["z-0000000002", "m-0000000007", "a-0000000011"]
    assert predecessor(contenders, "z-0000000002") is None
    assert predecessor(contenders, "a-0000000011") == "m-0000000007"


def test_the_first_leads_and_everybody_knows_it(candidates: Candidates, registry: Registry) -> None:
    onlooker = Election(registry, PATH, "onlooker")
    assert onlooker.leader() is None
    ada = candidates.add("ada")
    ada.wait_for(CANDIDATE, LEADER)
    bob = candidates.add("bob")
    wait_until_they_stand(registry, 2)
    assert onlooker.leader() == bob.election.leader() == "ada"
    assert onlooker.standing is CandidateState.NEW
    assert bob.heard == [CANDIDATE]


def test_when_the_leader_withdraws_exactly_the_next_one_leads(candidates: Candidates, registry: Registry) -> None:
    ada = candidates.add("ada")
    ada.wait_for(CANDIDATE, LEADER)
    others = []
    for count, name in enumerate(("bob", "cyd", "dan"), 2):
        others.append(candidates.add(name))
        wait_until_they_stand(registry, count)
    bob, cyd, dan = others
    ada.election.withdraw()
    bob.wait_for(CANDIDATE, LEADER)
    assert bob.election.leader() == "bob"
    cyd.election.withdraw()
    wait_until_they_stand(registry, 2)
    bob.registry.close()
    dan.wait_for(CANDIDATE, LEADER)
    assert (ada.heard, bob.heard[:2], cyd.heard) == ([CANDIDATE, LEADER], [CANDIDATE, LEADER], [CANDIDATE])
    ada.election.withdraw()
    assert ada.election.standing is OUT


def test_when_the_leaders_process_is_killed_another_leads(
    candidates: Candidates, registry: Registry, registry_hosts: str
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", LEADING_PROCESS, registry_hosts, PATH],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    assert [process.stdout.readline().strip() for _ in range(2)] == ["candidate", "leader"]
    ada, bob = candidates.add("ada"), candidates.add("bob")
    wait_until_they_stand(registry, 3)
    process.kill()
    process.wait()
    wait_until(lambda: LEADER in ada.heard + bob.heard, timeout_s=120, what="a new leader")
    wait_until_they_stand(registry, 2)
    assert sorted([ada.heard, bob.heard], key=len) == [[CANDIDATE], [CANDIDATE, LEADER]]


def test_a_leader_out_of_touch_doubts_and_leads_on_when_its_session_stands(candidates: Candidates) -> None:
    ada = candidates.add("ada", session_timeout_s=60)
    ada.wait_for(CANDIDATE, LEADER)
    fence = ada.election.fence()
    ada.proxy.cut()
    ada.wait_for(CANDIDATE, LEADER, DOUBTFUL)
    ada.proxy.heal()
    ada.wait_for(CANDIDATE, LEADER, DOUBTFUL, LEADER)
    assert ada.election.fence() == fence, "it is the same term"


def test_a_leader_out_of_touch_steps_down_by_itself(candidates: Candidates) -> None:
    ada = candidates.add("ada", session_timeout_s=6)
    ada.wait_for(CANDIDATE, LEADER)
    ada.proxy.cut()
    ada.wait_for(CANDIDATE, LEADER, DOUBTFUL, CANDIDATE)
    assert ada.registry.state is SessionState.SUSPENDED, "nobody had to tell it"
    with pytest.raises(SessionLost, match="ada does not lead"):
        ada.election.fence()


def test_a_leader_whose_session_expired_stands_again_behind_its_successor(
    candidates: Candidates, registry: Registry
) -> None:
    ada = candidates.add("ada", session_timeout_s=6)
    ada.wait_for(CANDIDATE, LEADER)
    fence = ada.election.fence()
    bob = candidates.add("bob")
    wait_until_they_stand(registry, 2)
    ada.proxy.cut()
    bob.wait_for(CANDIDATE, LEADER)
    assert ada.election.standing not in (LEADER, DOUBTFUL)
    ada.proxy.heal()
    wait_until_they_stand(registry, 2)
    assert bob.election.leader() == "bob"
    with pytest.raises(NodeMissing):
        registry.commit([fence, Create("/written-by-a-stale-leader")])
    assert registry.commit([bob.election.fence(), Create("/written")]) == [0, 0]
    bob.election.withdraw()
    ada.wait_for(CANDIDATE, LEADER, DOUBTFUL, CANDIDATE, LEADER)


def test_a_leader_whose_node_is_deleted_stands_again_at_the_end(candidates: Candidates, registry: Registry) -> None:
    ada = candidates.add("ada")
    ada.wait_for(CANDIDATE, LEADER)
    bob = candidates.add("bob")
    wait_until_they_stand(registry, 2)
    registry.commit([Delete(ada.election.fence().path)])
    bob.wait_for(CANDIDATE, LEADER)
    ada.wait_for(CANDIDATE, LEADER, CANDIDATE)
    wait_until_they_stand(registry, 2)


def test_a_candidate_whose_session_ends_between_two_looks_stands_again(
    candidates: Candidates, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = candidates.add("ada", volunteers=False)
    look = ada.registry.children
    gone: list[str] = []

    def look_late(path: str, watch: Watch | None = None) -> list[str]:
        if not gone:
            gone.extend(registry.children(PATH))
            registry.commit([Delete(f"{PATH}/{name}") for name in gone])
        return look(path, watch)

    monkeypatch.setattr(ada.registry, "children", look_late)
    ada.election.volunteer(ada.heard.append)
    ada.wait_for(CANDIDATE, LEADER)
    assert len(gone) == 1
    assert not set(gone) & set(registry.children(PATH))


@pytest.mark.parametrize("lose", ["drop_next_reply", "drop_next_request"])
def test_a_candidate_whose_creation_has_an_unknown_outcome_stands_once(
    candidates: Candidates, registry: Registry, lose: str
) -> None:
    ada = candidates.add("ada", volunteers=False)
    getattr(ada.proxy, lose)()
    ada.election.volunteer(ada.heard.append)
    wait_until(lambda: ada.election.standing is LEADER, what="ada to lead")
    assert len(registry.children(PATH)) == 1


def test_withdrawing_leaves_nothing_behind_and_silences_the_listener(
    candidates: Candidates, registry: Registry
) -> None:
    ada = candidates.add("ada")
    ada.wait_for(CANDIDATE, LEADER)
    ada.election.withdraw()
    assert registry.children(PATH) == []
    assert ada.heard == [CANDIDATE, LEADER]
    assert ada.election.standing is OUT
    with pytest.raises(RegistryError, match="another Election"):
        ada.election.volunteer(ada.heard.append)
    candidates.add("never", volunteers=False).election.withdraw()


def test_closing_the_registry_ends_the_candidacy(candidates: Candidates, registry: Registry) -> None:
    ada = candidates.add("ada")
    ada.wait_for(CANDIDATE, LEADER)
    ada.registry.close()
    ada.wait_for(CANDIDATE, LEADER, OUT)
    ada.election.withdraw()
    assert registry.children(PATH) == []


def test_nobody_stands_for_what_was_deleted_and_nothing_of_it_is_made_again(
    candidates: Candidates, registry: Registry
) -> None:
    bob = candidates.add("bob", volunteers=False)
    registry.delete("/flows", recursive=True)
    bob.election.volunteer(bob.heard.append)
    bob.wait_for(CANDIDATE, CandidateState.FAILED)
    assert str(bob.election.error) == f"{PATH} is gone: there is nothing that bob could lead"
    assert registry.find("/flows") is None


def test_an_election_that_cannot_go_on_says_why(registry: Registry, registry_hosts: str) -> None:
    with connect(registry_hosts, auth="ada:secret") as owner:
        owner.create("/private")
        election = Election(registry, "/private", "bob")
        heard: list[CandidateState] = []
        election.volunteer(heard.append)
        wait_until(lambda: heard == [CANDIDATE, CandidateState.FAILED], what="the election to fail")
        assert isinstance(election.error, NotAuthorised)
        election.withdraw()
        owner.delete("/private")
