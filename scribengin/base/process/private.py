"""Directories for this user's eyes only: what containers say and are given, packages, logs; their end, and what
is replaced."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from scribengin.errors import ConfigInvalid, ScribenginError, is_full

PRIVATE_MODE = 0o700
_REMOVALS_MAX = 100
_LINKS_MAX = 40
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW
"""How a folder is opened that may be one where this user may make files, and not list them."""


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


@contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A new file that takes the place of `path`, durably, when the block has ended well; else nothing is left of it.
    `mode`: its rights, less the umask. Raises ConfigInvalid: it cannot be written, and as `replaceable`; OSError, which
    names `path`: its disk is full; ScribenginError: it was written, but its name is not known to be durable."""
    place = replaceable(path)
    new = f".scribengin-{secrets.token_hex(8)}.part"  # a name that nobody can have guessed
    try:
        with _folder(place.parent) as folder:
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode, dir_fd=folder)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    yield file
                    file.flush()
                    os.fsync(descriptor)
                if replaceable(path) != place or not os.path.samestat(os.fstat(folder), place.parent.stat()):
                    raise ConfigInvalid(f"{path} has become another place meanwhile: nothing was written")
                os.replace(new, place.name, src_dir_fd=folder, dst_dir_fd=folder)
                _make_durable(folder, path)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(new, dir_fd=folder)
    except OSError as error:
        if is_full(error):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise _unwritable(path, error) from error


@contextmanager
def _folder(path: Path) -> Iterator[int]:
    """A descriptor of that folder, to which no link leads. It stays the same folder, whatever takes its place. Raises
    OSError."""
    folder = os.open(path.anchor, _FOLDER)
    try:
        for step in path.parts[1:]:
            above, folder = folder, os.open(step, _FOLDER, dir_fd=folder)
            os.close(above)
        yield folder
    finally:
        os.close(folder)


def _make_durable(folder: int, path: Path) -> None:
    """What was renamed there, as `path`, is called so after a power failure, too. Raises ScribenginError: it may not
    be."""
    try:
        _sync(folder)
    except OSError as error:
        raise ScribenginError(
            f"{path} was written, but its name may not survive a power failure: {error.strerror}; write it again"
        ) from error


def _sync(folder: int) -> None:
    try:
        listed = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
    except PermissionError:
        return  # only who may list a folder may sync it
    try:
        os.fsync(listed)
    finally:
        os.close(listed)


def replaceable(path: Path) -> Path:
    """Where a file is that another one is to take the place of, or none. Links are followed, but for those of other
    users, who may have planted them. A device or a pipe is nothing to be replaced. Raises ConfigInvalid."""
    try:
        there = _found(path.stat)  # before links are read: that of an open pipe names nothing
        place = _place(path)
        if there is not None and not (stat.S_ISREG(there.st_mode) and _found(place.lstat)):
            raise ConfigInvalid(f"{path} is there, and is no file: name a file that is to be written, or replaced")
        return place
    except (OSError, RuntimeError, ValueError) as error:
        raise _unwritable(path, error) from error


def _place(path: Path) -> Path:
    """The path without links. Raises ConfigInvalid (a link of another user), OSError."""
    ahead = [*reversed(path.absolute().parts)]
    place, links = Path(ahead.pop()), 0
    while ahead:
        step = ahead.pop()
        next_place = place.parent if step == ".." else place / step
        there = _found(next_place.lstat)
        if there is None or not stat.S_ISLNK(there.st_mode):
            place = next_place
            continue
        if there.st_uid not in (0, os.geteuid()):
            raise ConfigInvalid(f"{next_place} is a link of another user: name the file itself, if that is meant")
        links += 1
        if links > _LINKS_MAX:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        ahead += reversed(next_place.readlink().parts)
    return place


def _found(look: Callable[[], os.stat_result]) -> os.stat_result | None:
    """What is there; None if nothing is."""
    try:
        return look()
    except FileNotFoundError:
        return None


def _unwritable(path: Path, error: Exception) -> ConfigInvalid:
    reason = (isinstance(error, OSError) and error.strerror) or error
    return ConfigInvalid(f"{path} cannot be written: {reason}; name another place")
