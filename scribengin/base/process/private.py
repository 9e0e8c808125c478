"""Directories for this user's eyes only: what containers say and are given, packages, logs; their end, and what
is replaced."""

from __future__ import annotations

import shutil
from pathlib import Path

from scribengin.errors import ConfigInvalid

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


def replaceable(path: Path) -> Path:
    """Where a file is that another one is to take the place of, or none: links are followed. A device or a pipe is
    nothing to be replaced. Raises ConfigInvalid."""
    place = path.resolve()
    if place.exists() and not place.is_file():
        raise ConfigInvalid(f"{path} is there, and is no file: name a file that is to be written, or replaced")
    return place
