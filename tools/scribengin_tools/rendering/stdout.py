"""What commands write on, told from the files that they write: where there is no room, it is said which one it was."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from scribengin.errors import is_full


class OutputFull(Exception):
    """There is no room for what is written on stdout."""


@contextmanager
def own_stdout() -> Iterator[None]:
    """In the block, stdout raises OutputFull where there is no room."""
    before = sys.stdout
    sys.stdout = cast(Any, _Output(before))
    try:
        yield
    finally:
        sys.stdout = before


class _Output:
    """A stream, or the bytes behind it, that tells its own lack of room."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def buffer(self) -> Any:
        return _Output(self._stream.buffer)

    def write(self, said: Any) -> Any:
        with _own_room():
            return self._stream.write(said)

    def flush(self) -> None:
        with _own_room():
            self._stream.flush()


@contextmanager
def _own_room() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise
        raise OutputFull(error.strerror) from error
