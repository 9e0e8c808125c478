"""Where a reader of files stands, and what is unread from there. Pure.

    {"streams": 2, "finished": {"a.txt": 120}, "open": {"b.txt": 64}}

`finished`: was read to its end, as far as anybody had written then. It may be removed (then it is forgotten), and is
read on when it has grown. `open`: had more to read when the range was planned, so it must still be there. `streams`:
over how many streams the files were spread; with another number they would be other streams', and be read again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from scribengin.connectors.files.system import FileInfo
from scribengin.errors import DataflowError
from scribengin.model import Position

POSITION_BYTES_MAX = 64 * 1024
"""A position travels in every commit of its stream, and a whole commit must fit into one registry transaction."""


@dataclass(frozen=True, slots=True)
class Unread:
    """A file with bytes that were not read yet: those from `offset` on."""

    info: FileInfo
    offset: int


@dataclass(frozen=True, slots=True)
class FilePosition:
    """A position as it is worked with. Offsets are bytes."""

    streams: int
    finished: Mapping[str, int] = field(default_factory=dict)
    open: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, position: Position, *, streams: int, what: str) -> FilePosition:
        """What `to_position` wrote. Raises DataflowError when it is something else, or of another number of streams."""
        try:
            found = cls(int(position["streams"]), _offsets(position["finished"]), _offsets(position["open"]))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise DataflowError(
                f"{what}: {json.dumps(position)[:200]} is no position of files; restore the commit log"
            ) from None
        if found.streams != streams:
            raise DataflowError(
                f"{what}: its files were read as {found.streams} streams and are configured as {streams}; go back to "
                f"streams: {found.streams}, or submit it under another name to read everything again"
            )
        return found

    def to_position(self, *, what: str) -> Position:
        """As JSON. Raises DataflowError when it is too large to be committed."""
        position: Position = {"streams": self.streams, "finished": dict(self.finished), "open": dict(self.open)}
        size = len(json.dumps(position, ensure_ascii=False).encode())
        if size > POSITION_BYTES_MAX:
            raise DataflowError(
                f"{what}: the names of the {len(self.finished) + len(self.open)} files it has read make a position of "
                f"{size:,} bytes, and {POSITION_BYTES_MAX:,} can be committed: move files that were read away, and "
                "they are forgotten; or use fewer, larger files"
            )
        return position

    def unread(self, infos: Iterable[FileInfo], *, what: str) -> list[Unread]:
        """The files with unread bytes: those half read first, then the others, by name.

        Raises DataflowError when an open file is gone, or any file is shorter than what was read of it.
        """
        there = {info.name: info for info in infos}
        for name, offset in self.open.items():
            if name not in there:
                raise DataflowError(
                    f"{what}: {name} is gone, and only {offset} bytes of it were read; put it back to go on"
                )
        known = {**self.finished, **self.open}
        for name, offset in known.items():
            if name in there and there[name].size_bytes < offset:
                raise DataflowError(
                    f"{what}: {name} has {there[name].size_bytes} bytes, and {offset} of them were read: it was cut or "
                    "replaced; put it back, or give new data a new name"
                )
        unread = [
            Unread(info, known.get(info.name, 0))
            for info in there.values()
            if info.size_bytes > known.get(info.name, 0)
        ]
        return sorted(unread, key=lambda file: (file.info.name not in self.open, file.info.name))

    def moved(self, read: Mapping[str, int], infos: Iterable[FileInfo]) -> FilePosition:
        """The position after reading each file of `read` up to that offset. Finished files that are gone drop out."""
        sizes = {info.name: info.size_bytes for info in infos}
        offsets = {**self.finished, **self.open, **read}
        finished = {name: offset for name, offset in offsets.items() if offset == sizes.get(name)}
        grown = {name: offset for name, offset in self.finished.items() if name in sizes and name not in read}
        still_open = {name: o for name, o in {**self.open, **read}.items() if name not in finished}
        return FilePosition(self.streams, dict(sorted({**finished, **grown}.items())), dict(sorted(still_open.items())))


def _offsets(value: Mapping[str, object]) -> dict[str, int]:
    offsets = {str(name): offset for name, offset in value.items() if isinstance(offset, int) and offset >= 0}
    if len(offsets) != len(value):
        raise ValueError("offsets are numbers")
    return offsets
