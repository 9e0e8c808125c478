"""The registry of a simulation: the ensemble in memory, and sessions that take time and may be lost on the way.

A request takes a while to come there, and its answer a while to come back; in between, whoever asked may be killed,
stalled past its session, or cut off. The servers know of an expired session before its process does: a process that
went on late is told when it asks, as a client is whose connection was closed meanwhile.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from scribengin.base.clock import Clock
from scribengin.testing.memory.registry import Follower, MemoryEnsemble
from scribengin.testing.simulation.scheduler import SimulatedProcess
from scribengin_registry.contract import ANY_VERSION, Node, Operation, Registry, SessionState, Watch
from scribengin_registry.errors import OutcomeUnknown

if TYPE_CHECKING:
    from scribengin.testing.simulation.world import World

_T = TypeVar("_T")
_SAME_S = 1e-6
"""Times that are no further apart are the same."""
Observer = Callable[[int, Sequence[Operation], Sequence[int]], None]
"""Called with every transaction that was applied: its session, its operations, the versions afterwards."""


class _Request:
    """What a session asks for, and the two stops that it passes."""

    def __init__(self, act: str) -> None:
        self.act = act
        self.asked = f"registry.{act}"
        self.answered = f"registry.{act}:answered"


_GET, _FIND, _CHILDREN, _SYNC = map(_Request, ("get", "find", "children", "sync"))
_CREATE, _SET, _DELETE, _COMMIT = map(_Request, ("create", "set", "delete", "commit"))


class SimulatedEnsemble(MemoryEnsemble):
    """The servers, and who wants to know of every change. One of them may fall behind (`lag`)."""

    def __init__(self, clock: Clock, *, lags: bool = False) -> None:
        super().__init__(clock)
        self.observers: list[Observer] = []
        self._follower = self.follower() if lags else None
        self._lags = 0

    def change(self, operations: Sequence[Operation], *, session_id: int, user: str | None) -> list[int]:
        versions = super().change(operations, session_id=session_id, user=user)
        if self._follower is not None and not self._lags:
            self.catch_up(self._follower)
        for observer in self.observers:
            observer(session_id, operations, versions)
        return versions

    def drawn_server(self, chance: random.Random) -> Follower | None:
        """Whom a new session asks: where a server may fall behind, that one or the leader."""
        return None if self._follower is None or chance.random() < 0.5 else self._follower

    def lag(self) -> None:
        """From now on the server that may fall behind applies what it has to, and nothing else."""
        self._lags += 1

    def lag_ends(self) -> None:
        """It goes on, unless it was made to lag again meanwhile."""
        self._lags -= 1
        if self._follower is not None and not self._lags:
            self.catch_up(self._follower)

    def knows(self, session_id: int) -> bool:
        """Whether that session stands."""
        return session_id in self._sessions


class SimulatedSession(Registry):
    """A session of one process."""

    def __init__(
        self,
        world: World,
        process: SimulatedProcess,
        session_timeout_s: float,
        *,
        server: Follower | None = None,
    ) -> None:
        self._world = world
        self._process = process
        self._ensemble = world.ensemble
        with self._world.scheduler.at_once():
            self._inner = world.ensemble.connect(session_timeout_s=session_timeout_s, follower=server)

    # -- what becomes of it

    def cut_off(self, seconds: float) -> None:
        """No server answers it for so long; it expires meanwhile if that is long."""
        session_id = self._inner.session_id
        if self._inner.state is not SessionState.CONNECTED:
            return
        with self._world.scheduler.at_once():
            self._ensemble.suspend(self._inner)
        if seconds > self.session_timeout_s:
            until_s = self._world.scheduler.now_s + seconds
            self._expire_later(until_s, lambda: self._expire(session_id))
        self._world.later(seconds, "reconnection", self._resume)

    def outlived(self, seconds: float) -> None:
        """Its process says nothing for so long (or any more): the servers expire it if that is too long."""
        session_id = self._inner.session_id
        if seconds > self.session_timeout_s:
            until_s = self._world.scheduler.now_s + seconds
            self._expire_later(until_s, lambda: self._forget(session_id))
            self._world.later(seconds + self._world.latency_s(), "reconnection", self._notice_here, self._process)

    def _expire_later(self, until_s: float, expire: Callable[[], None]) -> None:
        """Once it has said nothing for all of its time, unless it speaks again before. Servers that restart count anew
        from when they are back."""
        world, begun_s = self._world, self._world.scheduler.now_s

        def look() -> None:
            due_s = max(begun_s, world.servers_back_s) + self.session_timeout_s
            if due_s <= world.scheduler.now_s + _SAME_S:
                expire()
            elif due_s < until_s:
                world.later(due_s - world.scheduler.now_s, "expiry", look)

        world.later(self.session_timeout_s, "expiry", look)

    def _expire(self, session_id: int) -> None:
        if self._inner.session_id == session_id and self._ensemble.knows(session_id):
            self._world.tell(f"the session of {self._process.name} has expired")
            with self._world.scheduler.at_once():
                self._ensemble.expire(self._inner)

    def _forget(self, session_id: int) -> None:
        if self._ensemble.knows(session_id):
            self._world.tell(f"the session of {self._process.name} has expired")
            with self._world.scheduler.at_once():
                self._ensemble.leave(session_id)

    def _resume(self) -> None:
        away_s = self._world.answering_s - self._world.scheduler.now_s
        if away_s > _SAME_S:  # it was cut off for less, when they went
            self._world.later(away_s, "reconnection", self._resume)
        elif self._inner.state is SessionState.SUSPENDED:
            with self._world.scheduler.at_once():
                if not self._ensemble.knows(self._inner.session_id):  # it expired as one of a process that stood still
                    self._inner.was_expired()
                self._ensemble.resume(self._inner)

    def _notice_here(self) -> None:
        self._notice()

    def _notice(self) -> bool:
        """Hear of an expiry, as a client that finds its connection closed: whether there was one."""
        inner = self._inner
        if self._ensemble.knows(inner.session_id) or inner.state is not SessionState.CONNECTED:
            return False
        with self._world.scheduler.at_once():
            self._inner.was_expired()
        return True

    # -- the contract

    @property
    def hosts(self) -> str:
        return self._inner.hosts

    @property
    def session_id(self) -> int:
        return self._inner.session_id

    @property
    def session_timeout_s(self) -> float:
        return self._inner.session_timeout_s

    @property
    def state(self) -> SessionState:
        return self._inner.state

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        self._inner.on_session(listener)

    def off_session(self, listener: Callable[[SessionState], None]) -> None:
        self._inner.off_session(listener)

    def get(self, path: str, watch: Watch | None = None) -> Node:
        return self._read(_GET, path, self._inner.get, path, watch)

    def find(self, path: str, watch: Watch | None = None) -> Node | None:
        return self._read(_FIND, path, self._inner.find, path, watch)

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return self._read(_CHILDREN, path, self._inner.children, path, watch)

    def unwatch(self, watch: Watch) -> None:
        self._inner.unwatch(watch)

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False, parents: bool = False
    ) -> str:
        return self._write(
            _CREATE,
            path,
            lambda: self._inner.create(path, data, ephemeral=ephemeral, sequential=sequential, parents=parents),
        )

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        return self._write(_SET, path, lambda: self._inner.set(path, data, version))

    def delete(self, path: str, version: int = ANY_VERSION, *, recursive: bool = False) -> None:
        self._write(_DELETE, path, lambda: self._inner.delete(path, version, recursive=recursive))

    def commit(self, operations: Sequence[Operation]) -> list[int]:
        if not operations:
            return []
        return self._write(_COMMIT, operations[0].path, lambda: self._inner.commit(operations))

    def sync(self, path: str = "/") -> None:
        self._read(_SYNC, path, self._inner.sync, path)

    def close(self) -> None:
        self._world.scheduler.refuse_ended()
        with self._world.scheduler.at_once():
            self._inner.close()

    # -- how requests go

    def _read(self, request: _Request, path: str, ask: Callable[..., _T], *about: object) -> _T:
        world = self._world
        world.passed(request.asked, path)
        self._notice()
        with world.scheduler.at_once():
            answer = ask(*about)
        world.passed(request.answered, path)
        return answer

    def _write(self, request: _Request, path: str, ask: Callable[[], _T]) -> _T:
        world = self._world
        session_id = self._inner.session_id
        world.passed(request.asked, path)
        if self._notice() or self._inner.session_id != session_id:
            raise OutcomeUnknown(f"the session expired while asking to {request.act} {path}: sync and read", path=path)
        with world.scheduler.at_once():
            answer = ask()
        world.passed(request.answered, path)
        return answer
