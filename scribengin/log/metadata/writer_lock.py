"""Becoming the writer of a log: its lock, and a new epoch, in one transaction.

The lock is for politeness: it makes a second writer wait. What is safe is the epoch. From the moment it is raised,
every change of metadata by the old writer fails; its appends end with the fence (scan/recovery.py).
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from scribengin.base.clock import Clock
from scribengin.base.failpoints import failpoint
from scribengin.base.names import log_command
from scribengin.base.process.machine import this_process
from scribengin.base.threads import background, go_on_trying
from scribengin.errors import Fenced, InconsistentLog, LogNotFound, OwnershipAcquireFailed, ScribenginError
from scribengin.log.metadata.segments import (
    ATTEMPTS_MAX,
    LockDescriptor,
    LogMetadata,
    LogOperator,
    SegmentsHead,
    WriterEpoch,
)
from scribengin.log.metadata.waiting_line import WaitingLine
from scribengin_registry.contract import Create, Delete, Node, Operation, Registry, SessionState, Set, Watch
from scribengin_registry.errors import (
    NodeExists,
    NodeMissing,
    OutcomeUnknown,
    RegistryClosed,
    RegistryUnreachable,
    SessionLost,
    VersionConflict,
)

_RETRY_S = 1.0
_CANCEL_POLL_S = 0.05
_SESSION_POLL_S = 1.0


def acquire(
    metadata: LogMetadata, clock: Clock, *, timeout_s: float, steal: bool, cancel: threading.Event | None = None
) -> WriterEpoch:
    """Wait for the log's lock, behind all who wait for it already, or with `steal` take it from its owner at once, and
    raise the epoch.

    Raises OwnershipAcquireFailed after `timeout_s` and as soon as `cancel` is set, LogNotFound, InconsistentLog (nobody
    can write it), SessionLost (the place in the line went with the session), RegistryClosed.
    """
    lock = LockDescriptor(owner=this_process(), token=uuid.uuid4().hex)
    line = WaitingLine(metadata, lock)
    deadline_s = clock.monotonic_s() + timeout_s
    changed = threading.Event()
    watch = _setter(changed)
    lost = 0
    try:
        while True:
            changed.clear()
            held = metadata.registry.find(metadata.lock_path, watch)
            holder = None if held is None else LockDescriptor.from_bytes(held.data, path=metadata.lock_path)
            mine = holder is not None and holder.token == lock.token
            if steal or mine or (not line.ahead(watch) and holder is None):
                owner = _take(metadata, lock, held, line)
                if owner is not None:
                    return owner
                _check_writable(metadata)
                lost += 1
                late = lost >= ATTEMPTS_MAX and clock.monotonic_s() >= deadline_s
                if late or (cancel is not None and cancel.is_set()):
                    raise _not_acquired(metadata, holder, timeout_s, cancel)
            elif line.place is None:
                line.join()  # and look again: whoever was ahead may have gone meanwhile
            elif not _waited(metadata.registry, changed, cancel, clock, deadline_s):
                raise _not_acquired(metadata, holder, timeout_s, cancel)
    except BaseException:
        line.leave()
        raise
    finally:
        metadata.registry.unwatch(watch)


def _not_acquired(
    metadata: LogMetadata, holder: LockDescriptor | None, timeout_s: float, cancel: threading.Event | None
) -> OwnershipAcquireFailed:
    by = "others who wait for it" if holder is None else f"by {holder.owner}"
    why = "the wait was cancelled" if cancel and cancel.is_set() else f"no lock within {timeout_s:g} s"
    return OwnershipAcquireFailed(
        f"log '{metadata.log}' is being written {by}: {why}; wait for that writer to close, steal the log from it "
        "(`steal=True`, --steal) or, if it is a proxy, write through it (--proxy)"
    )


def _check_writable(metadata: LogMetadata) -> None:
    """Whoever could not take the log was slower than somebody else; or the node is missing that all changes check."""
    before = metadata.head()
    named = metadata.registry.find(metadata.same(before[0].directory).path) is not None
    if not named and metadata.head() == before:
        raise InconsistentLog(
            f"log '{metadata.log}': the empty node {before[0].directory} is missing, and nobody can write the log "
            f"without it: see {log_command(metadata.namespace, 'inspect', metadata.log)}"
        )


def _waited(
    registry: Registry, changed: threading.Event, cancel: threading.Event | None, clock: Clock, until_s: float
) -> bool:
    """Wait for a change, or the end of the session; False if there was none in time, or `cancel` was set."""
    slice_s = _SESSION_POLL_S if cancel is None else _CANCEL_POLL_S
    while cancel is None or not cancel.is_set():
        left_s = until_s - clock.monotonic_s()
        if changed.wait(max(0.0, min(slice_s, left_s))) or registry.state is SessionState.CLOSED:
            return True  # no watch tells of the end of a session that this process has closed
        if left_s <= 0:
            break
    return False


class HeldLock:
    """A writer's lock, kept while the writer is open: when it went with a session, and nobody has the log since, it is
    taken again; otherwise `ended` is told why the writer has lost the log.

    Costs nothing while nothing happens: one watch, and a thread from when that fires until all is well again.
    """

    def __init__(self, metadata: LogMetadata, owner: WriterEpoch, ended: Callable[[ScribenginError], None]) -> None:
        self._metadata = metadata
        self._owner = owner
        self._ended = ended
        self._guard = threading.Lock()
        """Of the four below."""
        self._changed = False
        self._running = False
        self._relinquished = False
        self._retrying: threading.Event | None = None
        """Ends the wait of the thread that runs. There is none before: a process may have ten thousand locks."""
        self._looking = threading.Lock()
        """Held during each look: none is under way once `relinquish` has returned."""
        self._gives_back_later = False

    def keep(self) -> None:
        """Begin. Raises what the registry raises."""
        try:
            self._look()
        except BaseException:
            self.relinquish()
            raise

    def relinquish(self) -> None:
        """From here on the lock is not taken again, whatever becomes of it. Idempotent."""
        self._let_nobody_look()
        with self._looking:
            self._metadata.registry.unwatch(self._on_change)

    def give_back(self) -> None:
        """Relinquish it, and give it back. Raises what the registry raises; then it goes on trying, since the caller
        may not: a lock that nobody writes under keeps all others waiting for as long as the session lives."""
        self.relinquish()
        try:
            release(self._metadata, self._owner)
        except (RegistryClosed, SessionLost):
            raise  # then it went with the session
        except BaseException:
            if not self._gives_back_later:
                self._gives_back_later = True
                _go_on_trying(self._metadata, self._owner)
            raise

    def _on_change(self, _event: object) -> None:
        with self._guard:
            self._changed = True
            if self._running or self._relinquished:
                return
            self._running = True
            self._retrying = self._retrying or threading.Event()
        background(f"log-lock {self._metadata.log}", self._run).start()

    def _run(self) -> None:
        assert self._retrying is not None, "made with the thread"
        while self._pending():
            try:
                self._look()
            except (RegistryUnreachable, OutcomeUnknown, SessionLost, InconsistentLog):
                self._changed = True  # nobody knows yet: look again when it answers
                self._retrying.wait(_RETRY_S)
            except LogNotFound as error:
                self._end(Fenced(f"log '{self._metadata.log}' was deleted under its writer: {error}"))
            except ScribenginError as error:
                self._end(error)

    def _end(self, error: ScribenginError) -> None:
        if self._let_nobody_look():
            self._metadata.registry.unwatch(self._on_change)
            self._ended(error)

    def _let_nobody_look(self) -> bool:
        """From here on. False: so it was."""
        with self._guard:
            before = self._relinquished
            self._relinquished = True
            if self._retrying is not None:
                self._retrying.set()
            return not before

    def _pending(self) -> bool:
        with self._guard:
            self._running = self._changed and not self._relinquished
            self._changed = False
            return self._running

    def _look(self) -> None:
        with self._looking:
            while not self._relinquished:  # a request that was lost leaves the head as it is, too: look
                held = self._metadata.registry.find(self._metadata.lock_path, self._on_change)
                if held is not None and self._is_ours(held):
                    return
                self._metadata.change(self._owner, self._taken_again)

    def _taken_again(self, head: SegmentsHead) -> tuple[SegmentsHead, list[Operation]]:
        held = self._metadata.registry.find(self._metadata.lock_path)
        if held is not None and self._is_ours(held):
            return head, []
        lock = LockDescriptor(owner=this_process(), token=self._owner.token)
        return head, [Create(self._metadata.lock_path, lock.to_bytes(), ephemeral=True)]

    def _is_ours(self, held: Node) -> bool:
        return LockDescriptor.from_bytes(held.data, path=self._metadata.lock_path).token == self._owner.token


def _setter(event: threading.Event) -> Watch:
    return lambda _change: event.set()


def release(metadata: LogMetadata, owner: WriterEpoch) -> None:
    """Give the lock back, if it still is ours. Raises what the registry raises."""
    # Its token says whose it is. The owner's epoch may have been raised further, by the owner itself.
    operator = LogOperator(owner.directory)
    try:
        for _attempt in range(ATTEMPTS_MAX):  # a lost reply leaves open whether the lock was given back: look
            if not metadata.release_operations(owner):
                return
            metadata.change(operator, lambda head: (head, metadata.release_operations(owner)))
    except LogNotFound:
        return  # then it is not ours any more


def give_back(metadata: LogMetadata, owner: WriterEpoch, error: BaseException) -> None:
    """Give the lock back, if it is ours, for whoever ends with this error. If that cannot be done now it goes on
    trying: a lock that nobody writes under keeps all others waiting for as long as the session lives.

    Raises nothing: of what is in the way, other than a registry that is away, `error` gets a note.
    """
    try:
        # Whoever presses Ctrl-C does not wait for a registry that is away once more.
        if not isinstance(error, KeyboardInterrupt) and _given_back(metadata, owner):
            return
    except ScribenginError as trouble:
        error.add_note(f"and the log's lock was not given back, which is tried further: {trouble}")
    _go_on_trying(metadata, owner)


@contextmanager
def given_back(metadata: LogMetadata, owner: WriterEpoch) -> Iterator[None]:
    """The lock is given back in the end, however that comes. Raises what is in the way, if that is nothing else; but a
    registry that is away is waited for behind."""
    try:
        yield
    except BaseException as error:
        give_back(metadata, owner, error)
        raise
    if not _given_back(metadata, owner):
        _go_on_trying(metadata, owner)


def _go_on_trying(metadata: LogMetadata, owner: WriterEpoch) -> None:
    go_on_trying(f"log-lock {metadata.log}", partial(_given_back, metadata, owner))


def _given_back(metadata: LogMetadata, owner: WriterEpoch) -> bool:
    try:
        metadata.registry.sync(metadata.lock_path)  # whether we have it may be known to the server that is asked later
        release(metadata, owner)
    except (RegistryClosed, SessionLost):
        return True  # then it went with the session
    except (OutcomeUnknown, RegistryUnreachable):
        return False
    return True


def _take(metadata: LogMetadata, lock: LockDescriptor, held: Node | None, line: WaitingLine) -> WriterEpoch | None:
    head, version = metadata.head()
    after = head.model_copy(update={"epoch": head.epoch + 1})
    operations: list[Operation] = [
        metadata.same(head.directory),
        Set(metadata.segments_path, after.to_bytes(), version),
    ]
    if held is not None:
        operations.append(Delete(metadata.lock_path, held.version))
    operations.append(Create(metadata.lock_path, lock.to_bytes(), ephemeral=True))
    operations += line.operations()
    owner = WriterEpoch(after.directory, after.epoch, lock.token)
    try:
        return _committed(metadata, owner, operations)
    except BaseException as error:
        give_back(metadata, owner, error)  # whether it is ours nobody knows
        raise


def _committed(metadata: LogMetadata, owner: WriterEpoch, operations: list[Operation]) -> WriterEpoch | None:
    try:
        with failpoint("log.lock"):
            metadata.registry.commit(operations)
        return owner
    except (VersionConflict, NodeExists, NodeMissing):
        return None  # somebody was faster: look again
    except OutcomeUnknown:
        return _settle(metadata, owner)


def _settle(metadata: LogMetadata, owner: WriterEpoch) -> WriterEpoch | None:
    metadata.registry.sync(metadata.lock_path)
    held = metadata.registry.find(metadata.lock_path)
    if held is None or LockDescriptor.from_bytes(held.data, path=metadata.lock_path).token != owner.token:
        return None
    head, _version = metadata.head()
    return owner if (head.directory, head.epoch) == (owner.directory, owner.epoch) else None
