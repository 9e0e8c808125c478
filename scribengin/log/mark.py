"""The mark of a namespace: a file in its directory that holds the token that the registry holds.

A directory whose disk is not mounted looks like an empty one. Without the mark a log would be made on the wrong disk, a
missing segment taken for a deleted one, and a delete would succeed without having removed anything.
"""

from __future__ import annotations

import re
from pathlib import Path

from scribengin.errors import StoreNotMounted

MARK = ".namespace"
_TOKEN = re.compile(r"^[0-9a-f]{32}$", re.MULTILINE)


def read_mark(directory: Path) -> str | None:
    """The token in the directory, its first whole line; None: there is none. Raises OSError for what cannot be read."""
    try:
        found = _TOKEN.search((directory / MARK).read_text(encoding="ascii", errors="replace"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found[0] if found is not None else None


def check_mark(directory: Path, token: str) -> None:
    """Raises StoreNotMounted, unless this is the directory with that token."""
    try:
        found = read_mark(directory)
    except OSError as error:
        raise StoreNotMounted(f"cannot read {directory / MARK}: {error.strerror}; give this user access") from error
    if found != token:
        there = "there is none" if found is None else f"it holds {found}"
        raise StoreNotMounted(
            f"{directory} is not the directory of this namespace: its file {MARK} should hold {token}, and {there}; "
            f"mount the disk that belongs there (if it is the right one, write that token into {directory / MARK})"
        )
