"""What others have written, made harmless for a terminal: a record must not move the cursor, or set the title. And
whether anybody still reads what is written.

Only where a terminal is: what is piped goes through as it is, for programs.
"""

from __future__ import annotations

import re
import select
from contextlib import suppress
from io import UnsupportedOperation
from typing import IO, Any

_COMMANDS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\udc80-\udc9f]|\r(?!\n)")
"""Control characters of 7 and of 8 bits (also as bytes that are no UTF-8), but for tabs and the ends of lines."""


def visible(text: str) -> str:
    """`text` with what a terminal would obey written out, as in `\\x1b`."""
    return _COMMANDS.sub(lambda found: f"\\x{ord(found.group()) & 0xFF:02x}", text)


def visible_on(stream: IO[Any], text: str) -> str:
    """The same where `stream` is a terminal; elsewhere `text` as it is."""
    return visible(text) if stream.isatty() else text


def visible_bytes_on(stream: IO[Any], data: bytes) -> bytes:
    """The same of bytes, which may be text."""
    if not stream.isatty():
        return data
    return visible(data.decode(errors="surrogateescape")).encode(errors="surrogateescape")


def check_read(stream: IO[Any]) -> None:
    """For who waits until there is more to write: a write would tell, and may never come. Raises BrokenPipeError where
    a pipe's reader has gone (`| head -1`)."""
    with suppress(UnsupportedOperation):  # a test's
        poll = select.poll()
        poll.register(stream.fileno(), 0)
        if any(told & (select.POLLERR | select.POLLHUP) for _file, told in poll.poll(0)):
            raise BrokenPipeError
