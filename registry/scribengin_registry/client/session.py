"""What a registry client knows about its own session: the state, the id, who wants to hear of it. No ZooKeeper here."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from scribengin_registry.client.deadline import Deadline
from scribengin_registry.contract import Registry, SessionState

Dispatch = Callable[[Callable[[], None]], None]


class SessionTracker:
    """The session's state, changed by the connection's thread, read and awaited by everybody else.

    Whatever it has to tell goes through `dispatch`, which runs it on the thread for watches, in order: no listener runs
    on the connection's own thread, where it could hold up the heartbeats.
    """

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch
        self._changed = threading.Condition()
        self._state = SessionState.SUSPENDED
        self._session_id = 0
        self._is_refused = False
        self._listeners: list[Callable[[SessionState], None]] = []
        self._parked: list[Callable[[], None]] = []

    @property
    def state(self) -> SessionState:
        """The state just now."""
        return self._state

    @property
    def session_id(self) -> int:
        """The id of the last session that was connected, 0 before the first one."""
        return self._session_id

    @property
    def is_refused(self) -> bool:
        """Whether the servers have refused who the session says it is: then none follows."""
        return self._is_refused

    def listen(self, listener: Callable[[SessionState], None]) -> None:
        """Tell `listener` of every change from now on."""
        with self._changed:
            self._listeners.append(listener)

    def unlisten(self, listener: Callable[[SessionState], None]) -> None:
        """Tell `listener` of nothing more. Nothing happens if it does not listen."""
        with self._changed, suppress(ValueError):
            self._listeners.remove(listener)

    def move(self, state: SessionState, session_id: int | None = None) -> None:
        """The session is in `state` now. CLOSED is final."""
        with self._changed:
            if self._state in (state, SessionState.CLOSED):
                return
            self._state = state
            if session_id is not None:
                self._session_id = session_id
            self._changed.notify_all()
            for listener in self._listeners:
                self._dispatch(partial(listener, state))
            if state is not SessionState.SUSPENDED:
                self._release_parked()

    def refuse(self) -> None:
        """The session is LOST, and no other follows: the servers do not believe whose it is."""
        self._is_refused = True
        self.move(SessionState.LOST)

    def when_settled(self, action: Callable[[], None]) -> None:
        """Dispatch `action` as soon as it is known whether the session still stands: at once unless SUSPENDED."""
        with self._changed:
            self._parked.append(action)
            if self._state is not SessionState.SUSPENDED:
                self._release_parked()

    def await_settled(self, deadline: Deadline) -> SessionState:
        """Wait until the session is not SUSPENDED, or the deadline: the state then."""
        if (state := self._state) is not SessionState.SUSPENDED:  # as nearly always: no lock for that
            return state
        with self._changed:
            deadline.wait(partial(self._changed.wait_for, lambda: self._state is not SessionState.SUSPENDED))
            return self._state

    def await_usable(self, deadline: Deadline) -> SessionState:
        """Wait until the session is CONNECTED (maybe a new one), CLOSED or refused, or the deadline: the state then."""
        usable = (SessionState.CONNECTED, SessionState.CLOSED)
        if (state := self._state) in usable:  # as nearly always: no lock for that
            return state
        with self._changed:
            deadline.wait(partial(self._changed.wait_for, lambda: self._state in usable or self._is_refused))
            return self._state

    def await_told(self, deadline: Deadline) -> None:
        """Wait until everybody has been told what had been dispatched by now, or the session is CLOSED, or the
        deadline."""
        told = threading.Event()
        self._dispatch(told.set)
        deadline.wait(lambda timeout_s: told.wait(timeout_s) or self._state is SessionState.CLOSED)

    def _release_parked(self) -> None:
        parked, self._parked = self._parked, []
        for action in parked:
            self._dispatch(action)


class TrackedRegistry(Registry):
    """What every registry says of its session, by its tracker."""

    _tracker: SessionTracker
    _session_timeout_s: float

    @property
    def session_id(self) -> int:
        return self._tracker.session_id

    @property
    def session_timeout_s(self) -> float:
        return self._session_timeout_s

    @property
    def state(self) -> SessionState:
        return self._tracker.state

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        self._tracker.listen(listener)

    def off_session(self, listener: Callable[[SessionState], None]) -> None:
        self._tracker.unlisten(listener)
