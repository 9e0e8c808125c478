"""Where a record stands in a log: DistributedLog's sequence number, in its three printed forms.

A position is written down as a DLSN too: the first record that has not been read yet. `DLSN(s, e, n)` for an entry of
n records means the same as `DLSN(s, e + 1, 0)`; readers accept both.
"""

from __future__ import annotations

import base64
import re
import struct
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from scribengin.base.model import JsonObject
from scribengin.errors import LogError

_V1 = struct.Struct(">Bqqq")
_V0_BYTES = 200
"""Version 0 was written into an array sized in bits, not bytes; the rest of it is zero. Kept readable, as
DistributedLog does."""
_NUMBER = r"(-?\d{1,19})"
_PRINTED = re.compile(rf"DLSN\{{logSegmentSequenceNo={_NUMBER}, entryId={_NUMBER}, slotId={_NUMBER}\}}")
_SHORT = re.compile(r"(\d{1,19})/(\d{1,19})/(\d{1,19})")
_NUMBERS = range(-(2**63), 2**63)


class _Place(NamedTuple):
    segment: int
    entry: int
    slot: int


class DLSN(_Place):
    """(segment, entry, slot), ordered. Segments count from 1, entries and slots from 0."""

    __slots__ = ()
    INITIAL: ClassVar[DLSN]
    """The first record that a log can have."""
    INVALID: ClassVar[DLSN]
    """Of a record that has no place, or none yet."""
    NON_INCLUSIVE_LOWER_BOUND: ClassVar[DLSN]
    """Less than every record's: what comes after it is everything."""

    def next_record(self) -> DLSN:
        """The next slot of the same entry, whether or not a record stands there."""
        return DLSN(self.segment, self.entry, self.slot + 1)

    def next_segment(self) -> DLSN:
        """The first slot of the next segment."""
        return DLSN(self.segment + 1, 0, 0)

    def to_bytes(self, version: Literal[0, 1] = 1) -> bytes:
        """The version, then three big-endian int64: the 25 bytes of version 1, or the 200 of version 0."""
        packed = _V1.pack(version, *self)
        return packed if version else packed.ljust(_V0_BYTES, b"\0")

    @classmethod
    def from_bytes(cls, data: bytes, *, version: Literal[0, 1] | None = None) -> DLSN:
        """Read what `to_bytes` wrote, of this `version` only or (None) of either. Raises LogError."""
        found = data[0] if data else -1
        known = {1: _V1.size, 0: _V0_BYTES}
        if known.get(found) != len(data) or version not in (None, found):
            wanted = 1 if version is None else version
            raise LogError(
                f"{len(data)} bytes of version {found} are no DLSN: expected {known[wanted]} bytes of version {wanted}"
            )
        return cls(*_V1.unpack_from(data)[1:])

    def to_base64(self, version: Literal[0, 1] = 1) -> str:
        """The form in which clients keep a position."""
        return base64.b64encode(self.to_bytes(version)).decode()

    @classmethod
    def parse(cls, text: str) -> DLSN:
        """Read what `to_base64` or `str` printed, or `segment/entry/slot`. Raises LogError."""
        if printed := _PRINTED.fullmatch(text) or _SHORT.fullmatch(text):
            found = cls(*(int(number) for number in printed.groups()))
            if all(number in _NUMBERS for number in found):
                return found
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
DLSN.NON_INCLUSIVE_LOWER_BOUND = DLSN(1, 0, -1)


@dataclass(frozen=True, slots=True)
class DlsnRange:
    """The records from `first` to `last`, both included. They may lie in several entries, and so in several
    segments."""

    first: DLSN
    last: DLSN
