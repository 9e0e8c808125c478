"""The lock of a subscriber: of all readers that call themselves the same, one reads at a time.

    <log>/readers/<subscriber>/lock      ephemeral: LockDescriptor of the reader

It is kept by the session. When that ends the reader fails with ReaderLockLost at its next call and does not take the
lock again by itself: another reader may have read, and stored a position, meanwhile.
"""

from __future__ import annotations

import threading
import uuid
from contextlib import suppress

from scribengin.base.clock import Clock
from scribengin.base.failpoints import failpoint
from scribengin.base.model import node_name
from scribengin.base.process.machine import this_process
from scribengin.base.threads import go_on_trying
from scribengin.errors import OwnershipAcquireFailed, ReadCancelled, ReaderLockLost
from scribengin.log.metadata.names import check_reader_name
from scribengin.log.metadata.segments import LockDescriptor, LogMetadata
from scribengin_registry.compare_and_set import win_race
from scribengin_registry.contract import Node, SessionState
from scribengin_registry.errors import (
    NodeExists,
    NodeMissing,
    OutcomeUnknown,
    RegistryClosed,
    RegistryUnreachable,
    SessionLost,
    VersionConflict,
)

_CANCEL_POLL_S = 0.05


class SubscriberLock:
    """Held from `acquire` to `release`."""

    def __init__(self, metadata: LogMetadata, subscriber: str) -> None:
        self.subscriber = check_reader_name(metadata.log, subscriber)
        self._metadata = metadata
        self._readers = f"{metadata.path}/readers"
        self._parent = f"{self._readers}/{node_name(subscriber)}"
        self._path = f"{self._parent}/lock"
        self._lock = LockDescriptor(owner=this_process(), token=uuid.uuid4().hex)
        self._changed = threading.Event()

    def acquire(self, clock: Clock, *, timeout_s: float, cancel: threading.Event | None) -> None:
        """Wait for the lock. Raises OwnershipAcquireFailed after `timeout_s`, ReadCancelled as soon as `cancel` is set,
        LogNotFound."""
        deadline_s = clock.monotonic_s() + timeout_s
        try:
            while True:
                holder = self._holder()
                if holder is None:
                    self._take()
                elif holder.token == self._lock.token:
                    return
                else:
                    self._await_release(holder, clock, deadline_s, timeout_s, cancel)
        except BaseException:
            self._metadata.registry.unwatch(self._on_change)
            raise

    def check(self) -> None:
        """Costs nothing as long as nobody touched the lock and the registry is in touch; while it is not, nobody knows
        who has the lock, and this waits. Raises ReaderLockLost, and what the registry raises."""
        if not self._changed.is_set() and self._metadata.registry.state is SessionState.CONNECTED:
            return
        holder = self._holder()
        if holder is None or holder.token != self._lock.token:
            now = "nobody has it now" if holder is None else f"{holder.owner} has it now"
            raise ReaderLockLost(
                f"log '{self._metadata.log}': the lock of subscriber '{self.subscriber}' went with the session that "
                f"held it, {now}; open a new reader from the position that was stored last"
            )

    def release(self) -> None:
        """Give the lock back, if it still is this reader's. Idempotent. Raises what the registry raises."""
        self._metadata.registry.unwatch(self._on_change)
        with suppress(RegistryClosed, SessionLost):  # then it went with the session
            # A lost reply leaves open whether it was given back: look.
            win_race(self._release, races=(NodeMissing, VersionConflict), registry=self._metadata.registry)

    def give_up(self) -> None:
        """As `release`, for whoever has no reader that would be closed once more: if the registry cannot be asked now
        it goes on trying, since the lock stays for as long as the session lives."""
        if not self._released():
            go_on_trying("log-reader-lock", self._released)

    def _released(self) -> bool:
        try:
            self.release()
        except (OutcomeUnknown, RegistryUnreachable):
            return False
        return True

    def _release(self) -> None:
        node = self._metadata.registry.find(self._path)
        if node is not None and self._descriptor(node).token == self._lock.token:
            with failpoint("log.reader_unlock"):
                self._metadata.registry.delete(self._path, node.version)

    def _holder(self) -> LockDescriptor | None:
        self._changed.clear()
        node = self._metadata.registry.find(self._path, self._on_change)
        return None if node is None else self._descriptor(node)

    def _on_change(self, _event: object) -> None:
        self._changed.set()

    def _descriptor(self, node: Node) -> LockDescriptor:
        return LockDescriptor.from_bytes(node.data, path=self._path)

    def _take(self) -> None:
        """Try to create the lock; who has it is for the next look to say."""
        try:
            with failpoint("log.reader_lock"):
                self._metadata.registry.create(self._path, self._lock.to_bytes(), ephemeral=True)
        except NodeExists:
            return
        except NodeMissing:
            self._make(self._readers)
            self._make(self._parent)
        except OutcomeUnknown:
            self._metadata.registry.sync(self._path)

    def _make(self, path: str) -> None:
        try:
            with failpoint("log.reader_node"):
                self._metadata.registry.create(path)
        except NodeExists:
            return
        except NodeMissing:
            raise self._metadata.not_found() from None
        except OutcomeUnknown:
            self._metadata.registry.sync(path)

    def _await_release(
        self, holder: LockDescriptor, clock: Clock, deadline_s: float, timeout_s: float, cancel: threading.Event | None
    ) -> None:
        while not self._changed.is_set():
            if cancel is not None and cancel.is_set():
                raise ReadCancelled(
                    f"log '{self._metadata.log}': waiting for the lock of subscriber '{self.subscriber}' was cancelled"
                )
            left_s = deadline_s - clock.monotonic_s()
            if left_s <= 0:
                raise OwnershipAcquireFailed(
                    f"log '{self._metadata.log}' is being read by {holder.owner} as subscriber '{self.subscriber}': no "
                    f"lock within {timeout_s:g} s; wait for that reader to close, or read as another subscriber"
                )
            self._changed.wait(left_s if cancel is None else min(left_s, _CANCEL_POLL_S))
