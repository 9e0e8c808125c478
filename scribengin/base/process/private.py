"""Directories for this user's eyes only: what containers say and are given, packages, logs."""

from __future__ import annotations

from pathlib import Path

PRIVATE_MODE = 0o700


def private_directory(path: Path) -> Path:
    """Make `path` and what is missing above it, so that no other user may look in. What is there stays as it is. Raises
    OSError."""
    if not path.is_dir():
        private_directory(path.parent)
        path.mkdir(mode=PRIVATE_MODE, exist_ok=True)
    return path
