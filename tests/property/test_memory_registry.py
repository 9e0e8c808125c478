"""The registry in memory against the real one: the same random history on both, and the same answers, errors, watches.

And what only the one in memory can be told to do: to lose a request or a reply, to lose sight of a session, to end it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from scribengin.testing.memory.registry import Loss, MemoryEnsemble, MemoryRegistry
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Check, Create, Delete, Operation, Registry, SessionState, Set, WatchEvent
from scribengin_registry.errors import (
    NodeMissing,
    OutcomeUnknown,
    RegistryError,
    RegistryUnreachable,
    VersionConflict,
)
from scribengin_registry.opening import connect

STEPS = 60
PATHS = ("/a", "/b", "/a/x", "/a/y", "/a/x/deep", "/b/x")


class Side:
    """Two sessions of one registry, and what their watches were told."""

    def __init__(self, open_session: Callable[[], Registry]) -> None:
        self.sessions = [open_session(), open_session()]
        self.told: list[tuple[int, WatchEvent]] = []

    def act(self, chance: random.Random) -> object:
        """The next step of a history, and what came of it."""
        number = chance.randrange(2)
        session, path, version = self.sessions[number], chance.choice(PATHS), chance.choice((-1, -1, -1, 0, 1))
        data = bytes(chance.randrange(256) for _ in range(chance.randrange(4)))
        ephemeral, operations = chance.random() < 0.3, [_operation(chance) for _ in range(chance.randint(1, 4))]

        def watch(event: WatchEvent) -> None:
            self.told.append((number, event))

        acts: list[Callable[[], object]] = [
            lambda: session.create(path, data, ephemeral=ephemeral),
            lambda: session.create(f"{path}/n-", data, sequential=True, parents=True),
            lambda: session.set(path, data, version),
            lambda: session.delete(path, version),
            lambda: session.commit(operations),
            lambda: session.children(path, watch),
            lambda: session.find(path, watch) is None,
            lambda: session.get(path, watch).data,
        ]
        try:
            return chance.choice(acts)()
        except RegistryError as error:
            return type(error).__name__, error.path
        finally:
            for other in self.sessions:
                other.sync()  # what this step fired comes before what the next one does

    def tree(self, path: str = "/") -> list[object]:
        """All that stands there, for both sides the same."""
        session = self.sessions[0]
        names = session.children(path)
        below = [self.tree(f"{path.rstrip('/')}/{name}") for name in names]
        node = session.get(path)
        keeper = [other.session_id for other in self.sessions]
        owner = keeper.index(node.owner_session) if node.owner_session else None
        return [path, node.data if path != "/" else b"", node.version if path != "/" else 0, owner, *below]

    def close(self) -> None:
        for session in self.sessions:
            session.close()


def _operation(chance: random.Random) -> Operation:
    path, version = chance.choice(PATHS), chance.choice((-1, -1, 0, 1))
    return chance.choice(
        [Create(path, b"c"), Create(path, b"e", True), Set(path, b"s", version), Delete(path, version), Check(path, 0)]
    )


@pytest.mark.parametrize("seed", range(10))
def test_the_same_history_has_the_same_answers_and_tells_the_same(registry_hosts: str, seed: int) -> None:
    real, memory = Side(lambda: connect(registry_hosts, session_timeout_s=100)), Side(MemoryEnsemble().connect)
    try:
        chances = random.Random(seed), random.Random(seed)
        for step in range(STEPS):
            answers = real.act(chances[0]), memory.act(chances[1])
            assert answers[0] == answers[1], f"step {step}"
            wait_until(
                lambda: _events(real) == _events(memory),
                timeout_s=120,
                what=f"the same watches after step {step}: {real.told} and {memory.told}",
            )
        assert real.tree() == memory.tree()
        for side in (real, memory):
            side.sessions[1].close()
            side.sessions[1] = side.sessions[0]
        assert real.tree() == memory.tree()
    finally:
        real.close()
        memory.close()


def _events(side: Side) -> list[tuple[int, str, str]]:
    """Watches of one step fire in no order that anybody may rely on."""
    return sorted((number, event.kind, event.path) for number, event in side.told)


@pytest.fixture
def session(ensemble: MemoryEnsemble) -> Iterator[MemoryRegistry]:
    """A session with them, which gives up soon."""
    with ensemble.connect(session_timeout_s=0.1) as opened:
        yield opened


@pytest.mark.parametrize("loss", ["request", "reply"])
def test_a_write_that_is_lost_is_unknown_and_a_look_tells(
    ensemble: MemoryEnsemble, session: MemoryRegistry, loss: Loss
) -> None:
    losses: list[Loss] = [loss]
    ensemble.lose = lambda _act, _path: losses.pop() if losses else None
    with pytest.raises(OutcomeUnknown, match="/a"):
        session.create("/a")
    session.sync()
    assert (session.find("/a") is not None) == (loss == "reply")


def test_a_session_that_no_server_answers_comes_back_with_its_nodes_and_tells_its_watches(
    ensemble: MemoryEnsemble, session: MemoryRegistry
) -> None:
    states: list[SessionState] = []
    events: list[WatchEvent] = []
    session.on_session(states.append)
    session.create("/a", ephemeral=True)
    session.find("/a", events.append)
    ensemble.suspend(session)
    for request in (lambda: session.get("/a"), lambda: session.set("/a", b"x")):
        with pytest.raises(RegistryUnreachable):
            request()
    ensemble.resume(session)
    assert session.get("/a").owner_session == session.session_id
    wait_until(lambda: events == [WatchEvent("session", "/a")], what="the watch to be told")
    assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]


def test_a_session_that_expired_while_it_was_away_is_a_new_one_without_its_nodes(
    ensemble: MemoryEnsemble, session: MemoryRegistry
) -> None:
    states: list[SessionState] = []
    session.on_session(states.append)
    session.create("/kept")
    session.create("/gone", ephemeral=True)
    before = session.session_id
    ensemble.suspend(session)
    ensemble.expire(session)
    ensemble.resume(session)
    assert session.session_id != before
    with pytest.raises(NodeMissing):
        session.get("/gone")
    assert session.set("/kept", b"x") == 1
    wait_until(lambda: len(states) == 3, what="the listener to hear of it")
    assert states == [SessionState.SUSPENDED, SessionState.LOST, SessionState.CONNECTED]


def test_a_session_that_expires_in_touch_is_told_at_once(ensemble: MemoryEnsemble, session: MemoryRegistry) -> None:
    events: list[WatchEvent] = []
    session.find("/a", events.append)
    ensemble.expire(session)
    wait_until(lambda: events == [WatchEvent("session", "/a")], what="the watch to be told")
    assert session.create("/a", ephemeral=True) == "/a"


def test_a_server_that_is_behind_shows_what_it_has_until_its_session_writes_or_syncs(ensemble: MemoryEnsemble) -> None:
    server = ensemble.follower()
    with ensemble.connect() as ahead, ensemble.connect(follower=server) as behind:
        ahead.create("/a")
        assert behind.find("/a") is None
        behind.create("/b")  # its answer comes after all that came before
        assert behind.find("/a") is not None
        ahead.set("/a", b"x")
        assert behind.get("/a").data == b""
        with pytest.raises(VersionConflict):  # a refusal, too
            behind.set("/a", b"y", 0)
        assert behind.get("/a").data == b"x"
        ahead.delete("/a")
        behind.sync()
        assert behind.find("/a") is None


def test_a_server_that_is_behind_may_answer_next_after_a_reply_was_lost(ensemble: MemoryEnsemble) -> None:
    losses: list[Loss] = ["reply"]
    ensemble.lose = lambda _act, _path: losses.pop() if losses else None
    with ensemble.connect(follower=ensemble.follower()) as behind:
        with pytest.raises(OutcomeUnknown):
            behind.create("/a")
        assert behind.find("/a") is None
        behind.sync()
        assert behind.find("/a") is not None


def test_a_server_that_is_behind_tells_watches_when_it_gets_there(ensemble: MemoryEnsemble) -> None:
    server = ensemble.follower()
    events: list[WatchEvent] = []
    with ensemble.connect() as ahead, ensemble.connect(follower=server, dispatch=lambda act: act()) as behind:
        behind.children("/", events.append)
        ahead.create("/a", ephemeral=True)
        behind.find("/a", events.append)
        assert events == []
        ahead.close()
        assert (server.behind, behind.find("/a"), events) == (2, None, [])
        ensemble.catch_up(server)
        assert sorted((event.kind, event.path) for event in events) == [
            ("children", "/"),
            ("created", "/a"),
        ]


def test_a_session_with_a_server_that_was_behind_sees_all_that_came_before_it(ensemble: MemoryEnsemble) -> None:
    server = ensemble.follower()
    with ensemble.connect() as ahead:
        ahead.create("/a")
        with ensemble.connect(follower=server) as behind:
            assert behind.find("/a") is not None
