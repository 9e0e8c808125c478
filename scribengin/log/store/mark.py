"""The mark of a namespace: a file in its directory that holds the token that the registry holds.

A directory whose disk is not mounted looks like an empty one. Without the mark a log would be made on the wrong disk, a
missing segment taken for a deleted one, and a delete would succeed without having removed anything.

Everybody who reaches the registry reads the token there. So the directory and the mark also belong to who uses them, or
to root: else whoever may write the namespace's node leads writers and readers into a directory of his own. A directory
that users share is named to each of them in SCRIBENGIN_STORES.
"""

from __future__ import annotations

import errno
import os
import re
import uuid
from pathlib import Path

from scribengin.base.failpoints import failpoint
from scribengin.errors import LogWriteFailed, StoreNotMounted, StoreUnreachable
from scribengin.filesystems.directories import make_directory, sync_directory

MARK = ".namespace"
STORES_VARIABLE = "SCRIBENGIN_STORES"
"""Directories, as in PATH: stores of logs below them may belong to other users."""
_ROOT = 0
_TOKEN = re.compile(r"^[0-9a-f]{32}$", re.MULTILINE)


def read_mark(directory: Path) -> str | None:
    """The token in the directory, its first whole line; None: there is none. Raises OSError for what cannot be read."""
    try:
        found = _TOKEN.search((directory / MARK).read_text(encoding="ascii", errors="replace"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found[0] if found is not None else None


def mark_directory(directory: Path) -> str:
    """Make the directory, and its mark if it has none; the token that stands there. Raises LogWriteFailed.

    Whoever finds none adds a line, the first whole one counts: so all who do it at once get the same token. What is
    there is synced, too: whoever wrote it may have died before that.
    """
    try:
        make_directory(directory)
        with failpoint("log.mark"):
            file = os.open(directory / MARK, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                if read_mark(directory) is None:
                    os.write(file, f"\n{uuid.uuid4().hex}\n".encode("ascii"))
                os.fsync(file)
            finally:
                os.close(file)
        sync_directory(directory)
        token = read_mark(directory)
    except OSError as error:
        raise LogWriteFailed(
            f"cannot mark {directory} as the directory of a namespace: {error.strerror}; mend that, or name another one"
        ) from error
    if token is None:
        raise LogWriteFailed(f"cannot mark {directory}: what was written to {MARK} is not there; look at its disk")
    return token


def unmark_directory(directory: Path, token: str) -> None:
    """Remove the mark with that token, if it stands there. Idempotent. Raises LogWriteFailed."""
    try:
        if read_mark(directory) == token:
            with failpoint("log.unmark"):
                (directory / MARK).unlink()
            sync_directory(directory)
    except OSError as error:
        raise LogWriteFailed(f"cannot remove {directory / MARK}: {error.strerror}") from error


def check_mark(directory: Path, token: str) -> None:
    """Raises StoreNotMounted, unless this is the directory with that token, and nobody else's; StoreUnreachable: this
    process may open no more files just now."""
    try:
        found = read_mark(directory)
        owners = {(directory / name).stat().st_uid for name in (".", MARK)} if found == token else set()
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise StoreUnreachable(
                f"cannot read {directory / MARK}: {error.strerror}; let this process open more (`ulimit -n`)"
            ) from error
        raise StoreNotMounted(f"cannot read {directory / MARK}: {error.strerror}; give this user access") from error
    if found != token:
        what = f"{directory} is not the directory of this namespace: its file {MARK}"
        otherwise = "mount the disk that belongs there, or if it is the right one, write that token into "
        raise another_place(what, token, found, f"{otherwise}{directory / MARK}")
    strangers = owners - {os.geteuid(), _ROOT}
    if strangers and not _shared(directory):
        raise StoreNotMounted(
            f"{directory}, where this namespace's node leads, belongs to user {min(strangers)}, not to this one: if it "
            f"is right that you share it, name it, or a directory above it, in {STORES_VARIABLE}"
        )


def another_place(what: str, token: str, found: str | None, otherwise: str) -> StoreNotMounted:
    """The error of who finds in a namespace's place `found`, and not its token. One that is written back by hand lets
    writers that were opened before the logs were moved make new ones there: so that comes last."""
    there = "there is none" if found is None else f"it holds {found}"
    return StoreNotMounted(
        f"{what} should hold {token}, and {there}; open the namespace again: its logs may have been moved (if that "
        f"ends here, too, {otherwise})"
    )


def _shared(directory: Path) -> bool:
    stores = [Path(store) for store in os.environ.get(STORES_VARIABLE, "").split(os.pathsep) if store]
    return any(directory.resolve().is_relative_to(store.resolve()) for store in stores)
