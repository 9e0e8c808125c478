"""Where a reader of files stands, and what is unread from there. Pure.

    {"streams": 2, "finished": {"a.txt": 120}, "open": {"b.txt": 64, "c.gz": [1000, 52311]},
     "fold": 3, "nodes": ["000000003-5e0c..."], "dropped": ["old.txt"]}

`finished`: was read to its end, as far as anybody had written then; the bytes it had. It may be removed (then it is
forgotten), and is read on when it has grown, if it is of a kind that grows. `open`: had more to read when the range was
planned, so it must still be there; the bytes that were read or, of a whole file (Parquet, compressed), the records, and
the bytes that it has. `nodes` hold the names of further finished files, but for the `dropped` ones, and `fold` counts
how often names went there (finished.py); what stands in `finished` or `open` goes before what they say. `streams`: over
how many streams the files were spread; with another number they would be other streams', and be read again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from scribengin.connectors.files.system import FileInfo
from scribengin.errors import DataflowError
from scribengin.model import Position

POSITION_BYTES_MAX = 64 * 1024
"""A position travels in every commit of its stream, and a whole commit must fit into one registry transaction."""
INLINE_BYTES_MAX = 16 * 1024
"""Beyond this the names of finished files go into nodes of their own."""

Open = int | tuple[int, int]
"""Where an open file was left: bytes of one that grows; of a whole one, records and the bytes that it has."""


@dataclass(frozen=True, slots=True)
class Unread:
    """A file with something that was not read yet, from `offset` on (bytes, or records of a whole file)."""

    info: FileInfo
    offset: int


@dataclass(frozen=True, slots=True)
class FilePosition:
    """A position as it is worked with."""

    streams: int
    finished: Mapping[str, int] = field(default_factory=dict)
    open: Mapping[str, Open] = field(default_factory=dict)
    fold: int = 0
    nodes: tuple[str, ...] = ()
    dropped: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, position: Position, *, streams: int, what: str) -> FilePosition:
        """What `to_position` wrote. Raises DataflowError when it is something else, or of another number of streams."""
        try:
            found = cls(
                int(position["streams"]),
                _sizes(position["finished"]),
                {str(name): _open(place) for name, place in position["open"].items()},
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
                f"{what}: its files were read as {found.streams} streams and are configured as {streams}; go back to "
                f"streams: {found.streams}, or submit it under another name to read everything again"
            )
        return found

    def to_position(self, *, what: str) -> Position:
        """As JSON. Raises DataflowError when it is too large to be committed."""
        position: Position = {"streams": self.streams, "finished": dict(self.finished), "open": _json(self.open)}
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
        return sum(len(name.encode()) + 16 for name in (*self.finished, *self.dropped))

    def unread(
        self,
        infos: Iterable[FileInfo],
        *,
        what: str,
        folded: Mapping[str, int] | None = None,
        grows: Callable[[str], bool] = lambda _: True,
    ) -> list[Unread]:
        """The files with something unread: those half read first, then the others, by name.

        `folded`: what the nodes say. Raises DataflowError when an open file is gone, any file is shorter than what was
        read of it, or a whole file has changed.
        """
        infos = list(infos)
        there = {info.name for info in infos} if self.open else ()
        for name, place in self.open.items():
            if name not in there:
                read = f"{place} bytes" if isinstance(place, int) else f"{place[0]} records"
                raise DataflowError(f"{what}: {name} is gone, and only {read} of it were read; put it back to go on")
        found = [unread for info in infos if (unread := self._unread(info, folded or {}, grows, what)) is not None]
        return sorted(found, key=lambda file: (file.info.name not in self.open, file.info.name))

    def _unread(
        self, info: FileInfo, folded: Mapping[str, int], grows: Callable[[str], bool], what: str
    ) -> Unread | None:
        name, size = info.name, info.size_bytes
        place = self.open.get(name)
        if isinstance(place, tuple):
            if place[1] != size:
                raise _changed(what, name, size, place[1])
            return Unread(info, place[0])
        read = place if place is not None else self._finished(name, folded)
        if size == read:
            return None
        if size < read:
            raise DataflowError(
                f"{what}: {name} has {size} bytes, and {read} of them were read: it was cut or "
                "replaced; put it back, or give new data a new name"
            )
        if read and not grows(name):
            raise _changed(what, name, size, read)
        return Unread(info, read)

    def _finished(self, name: str, folded: Mapping[str, int]) -> int:
        read = self.finished.get(name)
        if read is not None:
            return read
        return 0 if name in self.dropped else folded.get(name, 0)

    def moved(
        self, read: Mapping[str, Open], sizes: Mapping[str, int], *, gone: Iterable[str] = (), done: Iterable[str] = ()
    ) -> FilePosition:
        """The position after reading each file of `read` up to there, and whole files to the end (`done`).

        `sizes`: of all files there are. `gone`: names in nodes whose files are not. Finished files that are gone drop
        out.
        """
        places: dict[str, Open] = {**self.open, **read}
        finished = {name: offset for name, offset in self.finished.items() if name in sizes and name not in places}
        finished.update({name: sizes[name] for name in done})
        for name in [name for name, place in places.items() if name in finished or place == sizes.get(name)]:
            finished[name] = sizes[name]
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


def _changed(what: str, name: str, size: int, read: int) -> DataflowError:
    return DataflowError(
        f"{what}: {name} has {size} bytes, and had {read} when it was read: a file of its kind is read once it is "
        "complete, and may not change; put it back, or give new data a new name"
    )


def _json(places: Mapping[str, Open]) -> dict[str, object]:
    return {name: place if isinstance(place, int) else list(place) for name, place in places.items()}


def _sizes(value: Mapping[str, object]) -> dict[str, int]:
    return {str(name): _count(size) for name, size in value.items()}


def _open(value: object) -> Open:
    if isinstance(value, list):
        records, size = value
        return _count(records), _count(size)
    return _count(value)


def _count(value: object) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError("sizes and offsets are numbers")
    return value
