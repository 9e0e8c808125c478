"""Where a record stands in a log: DistributedLog's sequence number, in its three printed forms.

A position is written down as a DLSN too: the first record that has not been read yet. `DLSN(s, e, n)` for an entry of
n records means the same as `DLSN(s, e + 1, 0)`; readers accept both.
"""

from __future__ import annotations

import base64
import re
import struct
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from scribengin.errors import LogError
from scribengin.model import JsonObject

_V1 = struct.Struct(">Bqqq")
_V0_BYTES = 200
"""Version 0 was written into an array sized in bits, not bytes; the rest of it is zero. Kept readable, as
DistributedLog does."""
_PRINTED = re.compile(r"DLSN\{logSegmentSequenceNo=(-?\d+), entryId=(-?\d+), slotId=(-?\d+)\}")


class _Place(NamedTuple):
    segment: int
    entry: int
    slot: int


class DLSN(_Place):
    """(segment, entry, slot), ordered. Segments count from 1, entries and slots from 0."""

    __slots__ = ()
    INITIAL: ClassVar[DLSN]
    INVALID: ClassVar[DLSN]

    def to_bytes(self) -> bytes:
        """The 25 bytes of version 1: the version, then three big-endian int64."""
        return _V1.pack(1, *self)

    @classmethod
    def from_bytes(cls, data: bytes) -> DLSN:
        """Read version 1 (25 bytes) or version 0 (200 bytes). Raises LogError."""
        version = data[0] if data else -1
        if (version, len(data)) not in ((1, _V1.size), (0, _V0_BYTES)):
            raise LogError(f"{len(data)} bytes of version {version} are no DLSN: expected 25 bytes of version 1")
        return cls(*_V1.unpack_from(data)[1:])

    def to_base64(self) -> str:
        """The form in which clients keep a position."""
        return base64.b64encode(self.to_bytes()).decode()

    @classmethod
    def parse(cls, text: str) -> DLSN:
        """Read what `to_base64` or `str` printed, or `segment/entry/slot`. Raises LogError."""
        if printed := _PRINTED.fullmatch(text) or re.fullmatch(r"(\d+)/(\d+)/(\d+)", text):
            return cls(*(int(number) for number in printed.groups()))
        try:
            return cls.from_bytes(base64.b64decode(text, validate=True))
        except ValueError:
            raise LogError(f"'{text}' is no DLSN: expected base64, or segment/entry/slot as in 1/0/0") from None

    def to_json(self) -> JsonObject:
        """As in the position of a source stream."""
        return self._asdict()

    def __str__(self) -> str:
        return f"DLSN{{logSegmentSequenceNo={self.segment}, entryId={self.entry}, slotId={self.slot}}}"


DLSN.INITIAL = DLSN(1, 0, 0)
DLSN.INVALID = DLSN(0, -1, -1)


@dataclass(frozen=True, slots=True)
class DlsnRange:
    """The records from `first` to `last`, both included. They may lie in several entries, and so in several
    segments."""

    first: DLSN
    last: DLSN


@dataclass(frozen=True, slots=True)
class TransactionId:
    """Start at the first record whose transaction id is at least `value`."""

    value: int
