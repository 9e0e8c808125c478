"""Directories whose names survive a power failure."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from scribengin.base.failpoints import failpoint
from scribengin.base.process.private import PRIVATE_MODE


def make_directory(path: Path) -> None:
    """Make `path` and what is missing above it, so that all of it survives a power failure.

    What is there may have been made a moment ago, by somebody who has not synced it yet, or was killed before that.
    """
    if path.is_dir():
        with suppress(PermissionError):  # who may not look into a directory did not make anything in it
            sync_directory(path.parent)
        return
    make_directory(path.parent)
    with failpoint("log.log_directory"):
        path.mkdir(mode=PRIVATE_MODE, exist_ok=True)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make what was made, renamed or removed in a directory survive a power failure. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with failpoint("log.directory_sync"):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
