"""Leader election: who of several processes leads, decided by ephemeral nodes with sequence numbers.

Every candidate keeps one node below the election's path; the lowest number leads, everybody else watches the node just
before their own. A leader that dies is followed by exactly one other.

Two leaders at once cannot be ruled out by any election, only bounded: an old leader that hears nothing is DOUBTFUL as
soon as its connection breaks, and steps down before its session can have expired: kazoo notices a silent server
within two thirds of a session, so a third is left. A process that is stalled, or keeps sending into the silence,
notices later. What a leader changes is safe at any time if its transactions contain `Election.fence()`: they fail once
its node is gone.
"""

from __future__ import annotations

import json
import queue
import threading
import uuid
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial

from scribengin_registry.contract import Check, Registry, SessionState, WatchEvent
from scribengin_registry.errors import (
    NodeMissing,
    OutcomeUnknown,
    RegistryClosed,
    RegistryError,
    RegistryUnreachable,
    SessionLost,
)
from scribengin_registry.threads import background, delayed, started

_SEQUENCE_DIGITS = 10
_RETRY_S = 0.5
_DOUBT_OF_SESSION = 1 / 3


class CandidateState(Enum):
    """NEW; CANDIDATE; LEADER; DOUBTFUL (leader, but out of touch: begin nothing); OUT (withdrawn, or the registry was
    closed); FAILED (see `Election.error`)."""

    NEW = "new"
    CANDIDATE = "candidate"
    LEADER = "leader"
    DOUBTFUL = "doubtful"
    OUT = "out"
    FAILED = "failed"


_LEADING = (CandidateState.LEADER, CandidateState.DOUBTFUL)
_FINAL = (CandidateState.OUT, CandidateState.FAILED)


def in_order(contenders: Sequence[str]) -> list[str]:
    """Names of contenders' nodes by their sequence numbers, the leader's first."""
    return sorted(contenders, key=lambda name: name[-_SEQUENCE_DIGITS:])


def predecessor(contenders: Sequence[str], own: str) -> str | None:
    """Whom `own`, one of the contenders, waits for; None when it leads."""
    ordered = in_order(contenders)
    place = ordered.index(own)
    return ordered[place - 1] if place else None


class Election:
    """One candidate, called `name` (for people), of the election at `path`, a node that must be there: candidates make
    none, and what has been deleted has no leader any more.

    `volunteer` once; `withdraw` ends it. The listener is called with every change of `standing`, in order, on a thread
    of the registry or the election, while the election waits: it must return at once, and call neither of the two.
    """

    def __init__(self, registry: Registry, path: str, name: str) -> None:
        self._registry = registry
        self._path = path
        self._name = name
        self._id = uuid.uuid4().hex
        self._lock = threading.RLock()
        self._standing = CandidateState.NEW
        self._listener: Callable[[CandidateState], None] = _nobody
        self._contender = ""
        self._doubts = 0
        self._wakeups: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.error: BaseException | None = None
        """Why the standing is FAILED."""

    @property
    def standing(self) -> CandidateState:
        """What this candidate is just now."""
        return self._standing

    def volunteer(self, listener: Callable[[CandidateState], None]) -> None:
        """Stand for election. Returns at once; the listener hears CANDIDATE, then LEADER when it is so."""
        if self._standing is not CandidateState.NEW:
            raise RegistryError(f"{self._name} has volunteered at {self._path} already: make another Election")
        self._listener = listener
        self._move(CandidateState.CANDIDATE)
        self._registry.on_session(self._on_session)
        self._thread = started(background(f"election-{self._name}", self._run))

    def leader(self) -> str | None:
        """The name of the leader as the registry has it now, None when nobody stands. Asks the registry."""
        while True:
            try:
                contenders = in_order(self._registry.children(self._path))
                if not contenders:
                    return None
                leader = json.loads(self._registry.get(f"{self._path}/{contenders[0]}").data)
                return str(leader["name"])
            except NodeMissing:
                if self._registry.find(self._path) is None:
                    return None  # and else the leader vanished between the two looks

    def fence(self) -> Check:
        """An operation that fails its transaction unless this leader's node still stands. Raises SessionLost."""
        with self._lock:
            if self._standing not in _LEADING:
                raise SessionLost(f"{self._name} does not lead {self._path} any more: stop leading")
            return Check(self._contender, 0)

    def withdraw(self) -> None:
        """Stand down and stay out; the next candidate leads. The listener is not called any more. Idempotent.

        Raises what `Registry.delete` raises; then call it again, or close the registry, which has the same effect.
        """
        with self._lock:
            self._listener = _nobody
            self._move(CandidateState.OUT)
        if self._thread is None:
            return
        self._thread.join()
        self._registry.unwatch(self._on_watch)
        self._registry.off_session(self._on_session)
        try:
            self._remove_contenders()
        except RegistryClosed:
            return  # the nodes went with the session

    def _run(self) -> None:
        try:
            while self._standing is not CandidateState.OUT:
                self._await_wakeup(None if self._took_a_look() else _RETRY_S)
        except RegistryClosed:
            self._move(CandidateState.OUT)
        except Exception as error:  # noqa: BLE001  the thread's outermost loop; the listener and `error` tell of it
            self.error = error
            self._move(CandidateState.FAILED)

    def _await_wakeup(self, timeout_s: float | None) -> None:
        try:
            self._wakeups.get(timeout=timeout_s)
        except queue.Empty:
            return

    def _took_a_look(self) -> bool:
        """Look who leads, and see to being woken when that changes. False when the registry could not be asked."""
        try:
            own, owner_session = self._own_contender()
            contenders = self._registry.children(self._path)
            if own not in contenders:
                return False  # its session has ended between the two looks
            before = predecessor(contenders, own)
            if self._registry.find(f"{self._path}/{before or own}", self._on_watch) is None:
                self._wakeups.put(None)  # it vanished between the two looks
            elif before is None:
                self._lead(own, owner_session)
        except (NodeMissing, OutcomeUnknown, RegistryUnreachable, SessionLost):
            return False
        return True

    def _own_contender(self) -> tuple[str, int]:
        """This candidate's node and the session that it lives by, made if there is none under the present session.

        After an unknown outcome it is found again by the id in its name, once the server that is asked has got so far:
        of two nodes, the second would wait for the first. A node of an expired session may stand for a moment more, and
        is not ours any longer.
        """
        own = self._standing_contender()
        if own is None:
            self._registry.sync(self._path)
            own = self._standing_contender()
        if own is not None:
            return own
        self._move(CandidateState.CANDIDATE)
        data = json.dumps({"name": self._name}, ensure_ascii=False).encode()
        try:
            path = self._registry.create(f"{self._path}/{self._id}-", data, ephemeral=True, sequential=True)
        except NodeMissing:
            raise RegistryError(f"{self._path} is gone: there is nothing that {self._name} could lead") from None
        return path.rpartition("/")[2], self._registry.get(path).owner_session

    def _standing_contender(self) -> tuple[str, int] | None:
        """This candidate's node under the present session, as the server that is asked has it."""
        for name in self._contenders_of_mine():
            node = self._registry.find(f"{self._path}/{name}")
            if node is not None and node.owner_session == self._registry.session_id:
                return name, node.owner_session
        return None

    def _contenders_of_mine(self) -> list[str]:
        if self._registry.find(self._path) is None:
            return []
        return in_order([name for name in self._registry.children(self._path) if name.startswith(self._id)])

    def _remove_contenders(self) -> None:
        self._registry.sync(self._path)  # so that a creation whose outcome is unknown is behind us
        for name in self._contenders_of_mine():
            try:
                self._registry.delete(f"{self._path}/{name}")
            except NodeMissing:
                continue

    def _lead(self, own: str, owner_session: int) -> None:
        """Ours is the first node. It counts only while its session stands; if it does not, its next event wakes us."""
        with self._lock:
            connected = self._registry.state is SessionState.CONNECTED
            if connected and self._registry.session_id == owner_session:
                self._contender = f"{self._path}/{own}"
                self._move(CandidateState.LEADER)

    def _on_watch(self, _: WatchEvent) -> None:
        self._wakeups.put(None)

    def _on_session(self, state: SessionState) -> None:
        with self._lock:
            if state is SessionState.SUSPENDED and self._standing is CandidateState.LEADER:
                self._move(CandidateState.DOUBTFUL)
                self._doubts += 1
                patience = delayed(
                    "election-doubt",
                    self._registry.session_timeout_s * _DOUBT_OF_SESSION,
                    partial(self._give_up, self._doubts),
                )
                patience.start()
            elif state is SessionState.LOST and self._standing in _LEADING:
                self._move(CandidateState.CANDIDATE)
            elif state is SessionState.CLOSED:
                self._move(CandidateState.OUT)
        self._wakeups.put(None)

    def _give_up(self, doubt: int) -> None:
        with self._lock:
            if self._standing is CandidateState.DOUBTFUL and self._doubts == doubt:
                self._move(CandidateState.CANDIDATE)

    def _move(self, standing: CandidateState) -> None:
        """OUT and FAILED are final. The listener is called under the lock, so that it hears changes in their order."""
        with self._lock:
            if standing is self._standing or self._standing in _FINAL:
                return
            self._standing = standing
            self._wakeups.put(None)
            self._listener(standing)


def _nobody(_: CandidateState) -> None:
    """The listener that nobody is."""
