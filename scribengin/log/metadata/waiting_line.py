"""Those who wait for the lock of a log, in the order in which they came.

    <log>/waiting/place-<sequence> ephemeral: LockDescriptor of who waits

Each watches the one before; the first watches the lock. A place goes with the session of who waits.
"""

from __future__ import annotations

from scribengin.base.failpoints import failpoint
from scribengin.base.threads import go_on_trying
from scribengin.log.metadata.segments import LockDescriptor, LogMetadata
from scribengin_registry.contract import Delete, Watch
from scribengin_registry.errors import (
    NodeExists,
    NodeMissing,
    OutcomeUnknown,
    RegistryClosed,
    RegistryUnreachable,
    SessionLost,
)


class WaitingLine:
    """The line at one log's lock, and this caller's place in it, if it has one."""

    def __init__(self, metadata: LogMetadata, lock: LockDescriptor) -> None:
        self._metadata = metadata
        self._registry = metadata.registry
        self._lock = lock
        self._path = f"{metadata.path}/waiting"
        self.place: str | None = None
        """The node of this caller's place."""
        self._asked = False
        """Whether a place was asked for, so that there may be one that this caller has not heard of."""

    def ahead(self, watch: Watch) -> bool:
        """Whether somebody comes before this caller; `watch` fires when the one right before has gone. Raises
        SessionLost when the place went with its session."""
        places = self._places()
        if self.place is not None:
            mine = self.place.rpartition("/")[2]
            if mine not in places:
                self._metadata.descriptor()  # raises LogNotFound
                raise SessionLost(
                    f"log '{self._metadata.log}': the session ended while its lock was waited for; open the writer anew"
                )
            places = places[: places.index(mine)]
        while places:  # who has gone between the two looks is not there to be watched
            if self._registry.find(f"{self._path}/{places[-1]}", watch) is not None:
                return True
            places.pop()
        return False

    def join(self) -> None:
        """Take the last place. Raises LogNotFound, and what the registry raises."""
        while self.place is None:
            self._asked = True
            try:
                with failpoint("log.waiting_join"):
                    self.place = self._registry.create(
                        f"{self._path}/place-", self._lock.to_bytes(), ephemeral=True, sequential=True
                    )
            except NodeMissing:
                self._make()
            except OutcomeUnknown:
                self._registry.sync(self._path)
                self.place = self._found()

    def operations(self) -> list[Delete]:
        """What gives the place up, within the transaction that takes the lock."""
        return [] if self.place is None else [Delete(self.place)]

    def leave(self) -> None:
        """Give the place up. If the registry cannot be asked now it goes on trying: a place that nobody waits at keeps
        all others waiting for as long as the session lives."""
        if self._asked and not self._left():
            go_on_trying("log-waiting", self._left)

    def _places(self) -> list[str]:
        try:
            return sorted(self._registry.children(self._path))
        except NodeMissing:
            return []

    def _found(self) -> str | None:
        for name in self._places():
            node = self._registry.find(f"{self._path}/{name}")
            if node is not None and LockDescriptor.from_bytes(node.data, path=self._path).token == self._lock.token:
                return f"{self._path}/{name}"
        return None

    def _make(self) -> None:
        try:
            with failpoint("log.waiting_make"):
                self._registry.create(self._path)
        except NodeExists:
            return
        except NodeMissing:
            raise self._metadata.not_found() from None
        except OutcomeUnknown:
            self._registry.sync(self._path)

    def _left(self) -> bool:
        try:
            if self.place is None:
                self._registry.sync(self._path)
                self.place = self._found()
            if self.place is not None:
                with failpoint("log.waiting_leave"):
                    self._registry.delete(self.place)
        except (NodeMissing, RegistryClosed, SessionLost):
            return True
        except (OutcomeUnknown, RegistryUnreachable):
            return False
        return True
