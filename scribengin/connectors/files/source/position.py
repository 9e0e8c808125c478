"""Where a reader of files stands. Pure. How it is held against the files that are there: matching.py.

    {"streams": 2, "finished": {"a.txt": [120, 1700000000000, "1f2e3d4c", "98a5.18c0"]},
     "open": {"b.txt": [64, ...], "c.gz": [52311, ..., 1000]},
     "fold": 3, "nodes": ["000000003-5e0c..."], "dropped": ["old.txt"]}

Of each file: the bytes of it that were read (of a whole one, Parquet or compressed, those that it has), its time of
modification then, the checksum of the last of those bytes, what its file system knows it by, and, of a whole one that
is half read, the records that were read.

`finished`: was read to its end, as far as anybody had written then. It may be removed (then it is forgotten), and is
read on when it has grown, if it is of a kind that grows. `open`: had more to read when the range was planned, so it
must still be there. `nodes` hold further finished files, but for the `dropped` ones, and `fold` counts how often files
went there (finished.py); what stands in `finished` or `open` goes before what they say. `streams`: over how many
streams the files were spread; with another number they would be other streams', and be read again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from scribengin.base.model import JsonObject, Position
from scribengin.base.text.counting import many
from scribengin.errors import DataflowError
from scribengin.filesystems.contract import FileInfo

POSITION_BYTES_MAX = 64 * 1024
"""A position travels in every commit of its stream, and a whole commit must fit into one registry transaction."""
INLINE_BYTES_MAX = 16 * 1024
"""Beyond this the names of finished files go into nodes of their own."""
_SEEN_BYTES = 64
"""About what is known of a file takes, beside its name."""


@dataclass(frozen=True, slots=True)
class SeenFile:
    """What is known of a file that was read: so much of it, and what it was known by."""

    read: int
    """Bytes: those that were read or, of a whole file, those that it has."""
    modified_ms: int = 0
    mark: str = ""
    """The checksum of the bytes before `read`."""
    identity: str = ""
    """What its file system knows it by (FileInfo.identity)."""
    records: int | None = None
    """Of a whole file that is half read: the records that were."""

    @property
    def offset(self) -> int:
        """Where reading goes on: a byte, or a record of a whole file."""
        return self.read if self.records is None else self.records

    def to_json(self) -> list[int | str]:
        known: list[int | str] = [self.read, self.modified_ms, self.mark, self.identity]
        return known if self.records is None else [*known, self.records]

    @classmethod
    def parse(cls, value: object) -> SeenFile:
        """Raises ValueError for what `to_json` has not made."""
        if not isinstance(value, list) or len(value) not in (4, 5):
            raise ValueError("what is known of a file is a list of 4 or 5")
        read, modified_ms, mark, identity, *records = value
        if not isinstance(modified_ms, int) or not isinstance(mark, str) or not isinstance(identity, str):
            raise ValueError("a time, a checksum and an identity")
        return cls(_count(read), modified_ms, mark, identity, _count(records[0]) if records else None)


@dataclass(frozen=True, slots=True)
class Unread:
    """A file with something that was not read yet, from `offset` on (bytes, or records of a whole file)."""

    info: FileInfo
    offset: int


@dataclass(frozen=True, slots=True)
class FilePosition:
    """A position as it is worked with."""

    streams: int
    finished: Mapping[str, SeenFile] = field(default_factory=dict)
    open: Mapping[str, SeenFile] = field(default_factory=dict)
    fold: int = 0
    nodes: tuple[str, ...] = ()
    dropped: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, position: Position, *, streams: int, what: str) -> FilePosition:
        """What `to_position` wrote. Raises DataflowError when it is something else, or of another number of streams."""
        try:
            found = cls(
                int(position["streams"]),
                {str(name): SeenFile.parse(seen) for name, seen in position["finished"].items()},
                {str(name): SeenFile.parse(seen) for name, seen in position["open"].items()},
                int(position.get("fold", 0)),
                tuple(map(str, position.get("nodes", ()))),
                frozenset(map(str, position.get("dropped", ()))),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise DataflowError(
                f"{what}: {json.dumps(position)[:200]} is no position of files; restore the commit log"
            ) from None
        if found.streams != streams:
            raise DataflowError(
                f"{what}: its files were read as {many(found.streams, 'stream')} and are configured as {streams}; "
                f"go back to streams: {found.streams}, or submit it under another name to read everything again"
            )
        return found

    def to_position(self, *, what: str) -> Position:
        """As JSON. Raises DataflowError when it is too large to be committed."""
        position: Position = {"streams": self.streams, "finished": _json(self.finished), "open": _json(self.open)}
        if self.fold:
            position.update(fold=self.fold, nodes=list(self.nodes), dropped=sorted(self.dropped))
        size = len(json.dumps(position, ensure_ascii=False).encode())
        if size > POSITION_BYTES_MAX:
            raise DataflowError(
                f"{what}: {len(self.open)} files are half read, and {len(self.finished)} were read whole: that is a "
                f"position of {size:,} bytes, and {POSITION_BYTES_MAX:,} can be committed; use more streams"
            )
        return position

    @property
    def inline_bytes(self) -> int:
        """About what the names cost that a fold would take out of the position."""
        names = sum(len(name.encode()) + 16 for name in (*self.finished, *self.dropped))
        return names + _SEEN_BYTES * len(self.finished)

    def seen(self, name: str, folded: Mapping[str, SeenFile]) -> SeenFile | None:
        """What is known of the file of that name. `folded`: what the nodes say."""
        found = self.open.get(name) or self.finished.get(name)
        if found is not None:
            return found
        return None if name in self.dropped else folded.get(name)

    def unread(self, infos: Iterable[FileInfo], folded: Mapping[str, SeenFile]) -> list[Unread]:
        """The files with something unread, of those that a match has found: those half read first, then those that
        have grown, then the others, by name."""
        found = [Unread(info, offset) for info in infos if (offset := self._unread_from(info, folded)) is not None]
        return sorted(found, key=lambda file: (file.info.name not in self.open, not file.offset, file.info.name))

    def _unread_from(self, info: FileInfo, folded: Mapping[str, SeenFile]) -> int | None:
        seen = self.seen(info.name, folded)
        if seen is None:
            return 0 if info.size_bytes else None
        return seen.offset if seen.records is not None or seen.read != info.size_bytes else None

    def moved(
        self,
        read: Mapping[str, SeenFile],
        sizes: Mapping[str, int],
        *,
        gone: Collection[str] = (),
        done: Mapping[str, SeenFile] | None = None,
    ) -> FilePosition:
        """The position after reading each file of `read` up to there, and whole files to the end (`done`).

        `sizes`: of all files there are. `gone`: finished files, here or in nodes, that are not: they drop out.
        """
        places: dict[str, SeenFile] = {**self.open, **read}
        finished = {name: seen for name, seen in self.finished.items() if name not in gone and name not in places}
        finished.update(done or {})
        for name, seen in [*places.items()]:
            if name in finished or (seen.records is None and seen.read == sizes.get(name)):
                finished.setdefault(name, seen)
                del places[name]
        return replace(
            self,
            finished=dict(sorted(finished.items())),
            open=dict(sorted(places.items())),
            dropped=self.dropped.union(gone),
        )

    def folded(self, nodes: Iterable[str]) -> FilePosition:
        """The position once all its finished files stand in `nodes`."""
        return replace(self, finished={}, fold=self.fold + 1, nodes=tuple(nodes), dropped=frozenset())


def _json(files: Mapping[str, SeenFile]) -> JsonObject:
    return {name: seen.to_json() for name, seen in files.items()}


def _count(value: object) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError("sizes and offsets are numbers")
    return value
