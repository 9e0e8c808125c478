"""Answers: a byte that says which one, then what it says.

| | answer | what follows |
|---|---|---|
| W | the records are in the log, durable | how many runs (4 bytes); of each: segment, entry, slot, records |
| M | another proxy owns the log | its address |
| A | not now: ask again, there or elsewhere | JSON: why, and whether records may have been written |
| R | no: the client raises it | JSON: the error |
| D | done | JSON: what was asked for; bytes of segments follow as a message of their own |
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from scribengin.base.model import JsonObject
from scribengin.errors import MessageInvalid, ScribenginError
from scribengin.log.format.dlsn import DLSN
from scribengin.log.write.results import SlotRange
from scribengin.proxy.wire.told_errors import heard, told

_COUNT = struct.Struct("<I")
_RUN = struct.Struct("<qqii")


@dataclass(frozen=True, slots=True)
class Written:
    """Where the records of the request stand, in order."""

    runs: tuple[SlotRange, ...]


@dataclass(frozen=True, slots=True)
class MovedTo:
    """The log is another proxy's."""

    address: str


@dataclass(frozen=True, slots=True)
class TryAgain:
    """What is in the way passes. With `maybe_written` records of the request may be in the log all the same, or what is
    asked for may be done."""

    why: ScribenginError
    maybe_written: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """It is not done, and asking again would not help. Nothing of the request was written by this attempt."""

    error: ScribenginError


@dataclass(frozen=True, slots=True)
class AskDone:
    """What was asked for. `data` are bytes of a segment, as they are on disk."""

    said: JsonObject = field(default_factory=dict)
    data: pa.Buffer | None = None


Answer = Written | MovedTo | TryAgain | Refused | AskDone


def encode_answer(answer: Answer) -> list[bytes | pa.Buffer]:
    """The messages of an answer: one, or two where data follow."""
    match answer:
        case Written(runs):
            rows = (_RUN.pack(*run.first, run.records) for run in runs)
            return [b"".join((b"W", _COUNT.pack(len(runs)), *rows))]
        case MovedTo(address):
            return [b"M" + address.encode()]
        case TryAgain(why, maybe_written):
            return [b"A" + _json({**told(why), "maybe_written": maybe_written})]
        case Refused(error):
            return [b"R" + _json(told(error))]
        case AskDone(said, data):
            return [b"D" + _json(said), *([] if data is None else [data])]


def decode_answer(messages: list[pa.Buffer]) -> Answer:
    """Raises MessageInvalid."""
    if not messages:
        raise MessageInvalid("a proxy has answered with nothing; use one of this version")
    first = bytes(messages[0])
    try:
        return _ANSWERS[first[:1]](first[1:], messages[1:])
    except (KeyError, ValueError, TypeError, AttributeError, struct.error) as error:
        raise MessageInvalid(f"what came is no answer of a proxy: {error!r}; use one of this version") from None


def _written(rest: bytes, _more: list[pa.Buffer]) -> Written:
    (count,) = _COUNT.unpack_from(rest)
    rows = list(_RUN.iter_unpack(rest[_COUNT.size :]))
    if len(rows) != count:
        raise ValueError(f"{len(rows)} of {count} places")
    return Written(tuple(SlotRange(DLSN(segment, entry, slot), records) for segment, entry, slot, records in rows))


def _again(rest: bytes, _more: list[pa.Buffer]) -> TryAgain:
    said = json.loads(rest)
    return TryAgain(heard(said), bool(said["maybe_written"]))


def _json(said: JsonObject) -> bytes:
    return json.dumps(said, ensure_ascii=False).encode()


_ANSWERS: dict[bytes, Callable[[bytes, list[pa.Buffer]], Answer]] = {
    b"W": _written,
    b"M": lambda rest, _more: MovedTo(rest.decode()),
    b"A": _again,
    b"R": lambda rest, _more: Refused(heard(json.loads(rest))),
    b"D": lambda rest, more: AskDone(json.loads(rest), more[0] if more else None),
}
