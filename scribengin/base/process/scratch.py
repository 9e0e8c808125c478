"""A directory private to this process. It is removed at the end; after a crash, by the next process that makes one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from scribengin.base.clock import SYSTEM_CLOCK

_LOCK = "in-use"
_UNLOCKED_MAX_S = 3600.0
"""An empty directory that is older was to have its lock at once: its process died in between."""


class ScratchDirectory:
    """`path` is empty at first, readable by this user only, and nobody else's while this process lives.

    A lock file says so: the kernel drops the lock with the process, however that ends, so what a killed process left
    behind can be told from what is in use without trusting process ids.
    """

    def __init__(self, prefix: str, parent: Path | None = None) -> None:
        """Its name begins with `prefix`; it is in `parent`, or else in the temporary directory. Raises OSError when
        that cannot be written."""
        parent = parent or Path(tempfile.gettempdir())
        _remove_abandoned(parent, prefix)
        self._lock = -1
        while self._lock < 0:
            self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent)).resolve()
            self._lock = _locked(self.path / _LOCK)

    def subdirectory(self, name: str) -> Path:
        """A new directory in it."""
        path = self.path / name
        path.mkdir()
        return path

    def remove(self) -> None:
        """Delete it and everything in it. Idempotent."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _locked(lock: Path) -> int:
    """The lock file, made and locked, or -1 where another process took it for abandoned in between, and removed it with
    its directory."""
    try:
        descriptor = os.open(lock, os.O_CREAT | os.O_RDWR)
    except FileNotFoundError:
        return -1
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    if os.fstat(descriptor).st_nlink:
        return descriptor
    os.close(descriptor)
    return -1


def _remove_abandoned(parent: Path, prefix: str) -> None:
    for lock in parent.glob(f"{prefix}*/{_LOCK}"):
        try:
            descriptor = os.open(lock, os.O_RDWR)
        except OSError:  # another user's, or gone meanwhile
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(descriptor)
    for empty in parent.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):  # not empty, another user's, or gone meanwhile
            if SYSTEM_CLOCK.now_ms() / 1000 - empty.stat().st_mtime > _UNLOCKED_MAX_S:
                empty.rmdir()
