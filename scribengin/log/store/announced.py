"""Which segment of a log was made last, told by a name: whoever opens the log need not list all its files.

    <the log's directory>/.made/<epoch>-<18 digits>     a writer of that epoch is about to make that segment

The name is durable before the segment's file is there, and the highest one counts: by epoch, then by number. So a
registry that went back behind the log's files knows less than the name tells, whatever power failures there were. Names
that were taken away may come back then: they are lower. One whose segment was never made costs one look too many.

A writer takes away lower names than its own, and no others. So one that was fenced, and goes on for a moment, takes
back nothing that a later one has said.

What stands in such a file is what it was when it was made: its inode, and its birth. Somewhere else it is another file,
and one that was written over is, too. Then it is not believed: it may be older than the files it was copied with. It
needs no sync, since an empty one is not believed either.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from scribengin.base.failpoints import failpoint
from scribengin.base.process.private import PRIVATE_MODE
from scribengin.filesystems.birth import file_status
from scribengin.filesystems.directories import sync_directory
from scribengin.log.store.contract import Announced

_PLACE = ".made"
_NAME = re.compile(r"(\d+)-(\d{18})")


def announce(directory: Path, epoch: int, segment: int) -> None:
    """Durably. Raises OSError; FileNotFoundError: the log has no directory."""
    place = directory / _PLACE
    with failpoint("log.announce"):
        with suppress(FileExistsError):
            os.mkdir(place, PRIVATE_MODE)  # only if the log has a directory: it may have been deleted
        path = place / f"{epoch}-{segment:018d}"
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            os.write(file, original(file))
        finally:
            os.close(file)
    sync_directory(place)
    with failpoint("log.announced_remove"):
        for lower in [name for name in _names(place) if name < (epoch, segment)]:
            (place / f"{lower[0]}-{lower[1]:018d}").unlink(missing_ok=True)


def announced(directory: Path) -> Announced:
    """What was announced last. Raises OSError."""
    place = directory / _PLACE
    try:
        epoch, segment = max(_names(place), default=(0, 0))
    except FileNotFoundError:
        return Announced(0, None)
    return Announced(epoch, segment if epoch and is_original(place / f"{epoch}-{segment:018d}") else None)


def original(file: int) -> bytes:
    """What stands in an announcement that is this very file. Empty: nobody knows when it was born."""
    status = file_status(file)
    return b"" if status.born_ns is None else b"%d %d\n" % (status.inode, status.born_ns)


def is_original(path: Path) -> bool:
    """Whether that announcement is the very file that was made."""
    try:
        file = os.open(path, os.O_RDONLY)
        try:
            expected = original(file)
            return bool(expected) and os.read(file, len(expected) + 1) == expected
        finally:
            os.close(file)
    except OSError:  # as of one that was just replaced by a higher one
        return False


def _names(place: Path) -> list[tuple[int, int]]:
    found = map(_NAME.fullmatch, os.listdir(place))
    return [(int(name[1]), int(name[2])) for name in found if name is not None]
