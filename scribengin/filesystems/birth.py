"""What the operating system says of a file, with the time of its birth, which Python does not ask for on Linux."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass

_AT_FDCWD = -100
_AT_EMPTY_PATH = 0x1000
_STATX_BASIC_STATS = 0x7FF
_STATX_BTIME = 0x800
_BUFFER_BYTES = 256
_ANSWER = struct.Struct("=I28xQQ32xqI20xqI")
"""struct statx of Linux: its mask, inode, size, and the times of birth and modification."""
_NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class FileStatus:
    """A file at one moment. `born_ns` is None where nobody knows it."""

    inode: int
    size_bytes: int
    modified_ns: int
    born_ns: int | None


def file_status(file: str | int) -> FileStatus:
    """Of a path, which may be a link to the file, or of an open descriptor. Raises OSError."""
    if _statx is not None:
        answer = ctypes.create_string_buffer(_BUFFER_BYTES)
        place, name, flags = (file, b"", _AT_EMPTY_PATH) if isinstance(file, int) else (_AT_FDCWD, os.fsencode(file), 0)
        if _statx(place, name, flags, _STATX_BASIC_STATS | _STATX_BTIME, answer) == 0:
            mask, inode, size, born_s, born_ns, modified_s, modified_ns = _ANSWER.unpack_from(answer.raw)
            born = born_s * _NS_PER_S + born_ns if mask & _STATX_BTIME else None
            return FileStatus(inode, size, modified_s * _NS_PER_S + modified_ns, born)
    status = os.stat(file)  # says why, or knows it by other means
    birth_s = getattr(status, "st_birthtime", None)
    birth_ns = None if birth_s is None else int(birth_s * _NS_PER_S)
    return FileStatus(status.st_ino, status.st_size, status.st_mtime_ns, birth_ns)


_statx: Callable[..., int] | None = getattr(ctypes.CDLL(None), "statx", None)
