"""Several files made durable at once, by one thread: Linux does `fdatasync` for it, and tells of each when it is done.

A disk makes sixty-four files durable in a little more time than one: what the file system writes down for one of them,
and what empties the disk's cache, do for all. A thread for each would have the disk do the same. But then each waits
for Python's lock after its call, and takes it from whoever does the work.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Sequence
from typing import NamedTuple

from scribengin.base.closing import ClosedAtExit


class _Calls(NamedTuple):
    """Numbers of system calls that the C library has no functions for."""

    setup: int
    destroy: int
    getevents: int
    submit: int


_CALLS = {"x86_64": _Calls(206, 207, 208, 209), "aarch64": _Calls(0, 1, 4, 2)}
_REQUEST = struct.Struct("=QIiHhIQQqQII")  # iocb: data, key, flags, what, priority, file, and more that is 0
_EVENT = struct.Struct("=QQqq")  # io_event: data, request, result, and a second one that nothing uses
_FDATASYNC = 3
_libc = ctypes.CDLL(None, use_errno=True)


class FileSyncs(ClosedAtExit):
    """What is under way, at most `at_once` files. Of one thread."""

    def __init__(self, at_once: int) -> None:
        """Raises OSError where the machine does not have it, or has no more of it."""
        calls = _CALLS.get(platform.machine())
        if calls is None or ctypes.sizeof(ctypes.c_void_p) != 8:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        self._calls = calls
        self._context = ctypes.c_ulong(0)
        _called(calls.setup, ctypes.c_uint(at_once), ctypes.byref(self._context))
        self._under_way = 0
        self._request = ctypes.create_string_buffer(_REQUEST.size)
        self._requests = (ctypes.c_void_p * 1)(ctypes.addressof(self._request))
        self._events = ctypes.create_string_buffer(_EVENT.size * at_once)
        self._at_once = at_once

    def begin(self, file: int, key: int) -> None:
        """Let the descriptor's file be made durable, as `fdatasync`. Raises OSError; then nothing has begun."""
        _REQUEST.pack_into(self._request, 0, key, 0, 0, _FDATASYNC, 0, file, 0, 0, 0, 0, 0, 0)
        _called(self._calls.submit, self._context, ctypes.c_long(1), self._requests)  # Linux copies the request
        self._under_way += 1

    def ended(self) -> Sequence[tuple[int, OSError | None]]:
        """Waits until one that is under way has ended. The keys of those that have, and what each failed with. Raises
        OSError: nobody knows how any of them has ended."""
        assert self._under_way, "something is under way"
        most = ctypes.c_long(self._at_once)
        while True:
            try:
                found = _called(self._calls.getevents, self._context, ctypes.c_long(1), most, self._events, None)
                break
            except InterruptedError:
                continue
        self._under_way -= found
        rows = _EVENT.iter_unpack(self._events.raw[: found * _EVENT.size])
        return [(key, OSError(-result, os.strerror(-result)) if result < 0 else None) for key, _, result, _ in rows]

    def close(self) -> None:
        """Waits for what is under way. Idempotent."""
        context, self._context = self._context, ctypes.c_ulong(0)
        if context.value:
            _called(self._calls.destroy, context)


def _called(number: int, *arguments: object) -> int:
    """What a system call answers. Raises OSError."""
    answer: int = _libc.syscall(ctypes.c_long(number), *arguments)
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return answer
