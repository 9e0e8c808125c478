"""Becoming the writer of a log: its lock, and a new epoch, in one transaction.

The lock is for politeness: it makes a second writer wait. What is safe is the epoch. From the moment it is raised,
every change of metadata by the old writer fails; its appends end with the fence (recovery.py).
"""

from __future__ import annotations

import os
import platform
import threading
import uuid

from scribengin.clock import Clock
from scribengin.effect import effect
from scribengin.errors import Fenced, LogNotFound, OwnershipAcquireFailed
from scribengin.log.metadata import ATTEMPTS_MAX, LockDescriptor, LogMetadata, Owner
from scribengin_registry.contract import Create, Delete, Node, Operation, Set, Watch
from scribengin_registry.errors import NodeExists, NodeMissing, OutcomeUnknown, VersionConflict


def acquire(metadata: LogMetadata, clock: Clock, *, timeout_s: float, steal: bool) -> Owner:
    """Wait for the log's lock, or with `steal` take it from its owner at once, and raise the epoch.

    Raises OwnershipAcquireFailed after `timeout_s`, LogNotFound.
    """
    lock = LockDescriptor(owner=f"{platform.node()}:{os.getpid()}", token=uuid.uuid4().hex)
    deadline_s = clock.monotonic_s() + timeout_s
    while True:
        changed = threading.Event()
        held = metadata.registry.find(metadata.lock_path, _setter(changed))
        holder = None if held is None else LockDescriptor.from_bytes(held.data, path=metadata.lock_path)
        if holder is None or steal or holder.token == lock.token:
            owner = _take(metadata, lock, held)
            if owner is not None:
                return owner
        elif not changed.wait(max(0.0, deadline_s - clock.monotonic_s())):
            raise OwnershipAcquireFailed(
                f"log '{metadata.log}' is being written by {holder.owner}: no lock within {timeout_s:g} s; "
                "wait for that writer to close, or open with steal=True to replace it"
            )


def _setter(event: threading.Event) -> Watch:
    return lambda _change: event.set()


def release(metadata: LogMetadata, owner: Owner) -> None:
    """Give the lock back, if it still is ours. Raises what the registry raises."""
    try:
        for _attempt in range(ATTEMPTS_MAX):  # a lost reply leaves open whether the lock was given back: look
            if not metadata.release_operations(owner):
                return
            metadata.change(owner, lambda head: (head, metadata.release_operations(owner)))
    except (Fenced, LogNotFound):
        return  # then it is not ours any more


def _take(metadata: LogMetadata, lock: LockDescriptor, held: Node | None) -> Owner | None:
    head, version = metadata.head()
    after = head.model_copy(update={"epoch": head.epoch + 1})
    operations: list[Operation] = [Set(metadata.segments_path, after.to_bytes(), version)]
    if held is not None:
        operations.append(Delete(metadata.lock_path, held.version))
    operations.append(Create(metadata.lock_path, lock.to_bytes(), ephemeral=True))
    owner = Owner(after.directory, after.epoch, lock.token)
    try:
        with effect("log.lock"):
            metadata.registry.commit(operations)
        return owner
    except (VersionConflict, NodeExists, NodeMissing):
        return None  # somebody was faster: look again
    except OutcomeUnknown:
        return _settle(metadata, owner)


def _settle(metadata: LogMetadata, owner: Owner) -> Owner | None:
    metadata.registry.sync(metadata.lock_path)
    held = metadata.registry.find(metadata.lock_path)
    if held is None or LockDescriptor.from_bytes(held.data, path=metadata.lock_path).token != owner.token:
        return None
    head, _version = metadata.head()
    return owner if (head.directory, head.epoch) == (owner.directory, owner.epoch) else None
