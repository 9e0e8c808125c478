"""Directories for this user's eyes only: what containers say and are given, packages, logs; and their end."""

from __future__ import annotations

import shutil
from pathlib import Path

PRIVATE_MODE = 0o700
_REMOVALS_MAX = 100


def private_directory(path: Path) -> Path:
    """Make `path` and what is missing above it, so that no other user may look in. What is there stays as it is. Raises
    OSError."""
    if not path.is_dir():
        private_directory(path.parent)
        path.mkdir(mode=PRIVATE_MODE, exist_ok=True)
    return path


def remove_directory(path: Path) -> None:
    """Delete a directory with all that is in it, also when somebody makes a file there at the last moment: nobody can
    once it is gone. What this user may not delete stays."""
    for _ in range(_REMOVALS_MAX):
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            return
