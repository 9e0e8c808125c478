"""Tracking records say who made them and which one in a row they are, so that what comes out of a dataflow can be held
against what went in. Pure.

    {"generator": "3f9a12c4", "chunk": "in/0", "sequence": 17}

A generator numbers the records of each of its chunks from 0 on, in the order in which it writes them to one stream. So
all numbers up to the highest one that is seen anywhere, going in or coming out, were written. Memory: at most two bits
a record for each output and for the sources.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from scribengin.base.model import Part

Chunk = tuple[str, str]
"""A generator, and one of its chunks."""
SEQUENCE_MAX = 10**10
"""A number beyond it is no tracking record's: it would only take memory."""


def tracking_payload(generator: str, chunk: str, sequence: int) -> bytes:
    """A tracking record."""
    return json.dumps({"generator": generator, "chunk": chunk, "sequence": sequence}).encode()


def tracked(payload: bytes | None) -> tuple[Chunk, int] | None:
    """What a payload says, if it is a tracking record's: a JSON object with these keys, and perhaps with others."""
    if payload is None or b'"sequence"' not in payload:
        return None
    try:
        value = json.loads(payload)
        chunk, sequence = (value["generator"], value["chunk"]), value["sequence"]
    except (ValueError, KeyError, TypeError):
        return None
    if not all(isinstance(part, str) for part in chunk) or not isinstance(sequence, int) or isinstance(sequence, bool):
        return None
    return (chunk, sequence) if 0 <= sequence < SEQUENCE_MAX else None


class Bits:
    """A growing row of bits."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self.count = 0
        """How many are set."""
        self.highest = -1

    def add(self, number: int) -> bool:
        """Set a bit, and say whether it was not set before."""
        at, bit = number >> 3, 1 << (number & 7)
        if at >= len(self._bytes):
            self._bytes.extend(bytes(max(at + 1 - len(self._bytes), len(self._bytes))))
        if self._bytes[at] & bit:
            return False
        self._bytes[at] |= bit
        self.count += 1
        self.highest = max(self.highest, number)
        return True

    def merge(self, other: Bits) -> None:
        """Set all bits that are set in the other."""
        size = max(len(self._bytes), len(other._bytes))
        both = int.from_bytes(self._bytes, "little") | int.from_bytes(other._bytes, "little")
        self._bytes = bytearray(both.to_bytes(size, "little"))
        self.count = both.bit_count()
        self.highest = max(self.highest, other.highest)


@dataclass
class ChunkRecords:
    """What one output holds of one chunk."""

    bits: Bits = field(default_factory=Bits)
    duplicated: int = 0
    out_of_order: int = 0


class SinkRecords:
    """What comes out of one sink, stream by stream."""

    def __init__(self) -> None:
        self.chunks: dict[Chunk, ChunkRecords] = {}
        self.others = 0
        """Records that are no tracking records."""
        self.unreachable = 0
        """Records that are not lost, and that nobody can read just now."""
        self.known: dict[Chunk, Bits] = {}
        """Those of them of which it is known which they are."""
        self._last: dict[tuple[str, Chunk], int] = {}

    def add(self, stream: str, payloads: Iterable[bytes | None]) -> None:
        """The next records of a stream, in order."""
        for payload in payloads:
            found = tracked(payload)
            if found is None:
                self.others += 1
            else:
                self._add(stream, *found)

    def add_unreachable(self, payloads: Iterable[bytes | None]) -> None:
        """Records that were committed, and that nobody can read just now; None: of which only that is known."""
        for payload in payloads:
            self.unreachable += 1
            if (found := tracked(payload)) is not None:
                self.known.setdefault(found[0], Bits()).add(found[1])

    def highest(self) -> dict[Chunk, int]:
        """The highest number of each chunk."""
        found = {chunk: bits.highest for chunk, bits in self.known.items()}
        for (_, chunk), last in self._last.items():
            found[chunk] = max(last, found.get(chunk, -1))
        return found

    def _add(self, stream: str, chunk: Chunk, sequence: int) -> None:
        seen = self.chunks.setdefault(chunk, ChunkRecords())
        if not seen.bits.add(sequence):
            seen.duplicated += 1
            return
        last = self._last.get((stream, chunk), -1)
        if sequence < last:
            seen.out_of_order += 1
        self._last[(stream, chunk)] = max(last, sequence)


class ChunkVerdict(Part):
    """What became of one chunk, which is what one generator wrote to one stream. `arrived` counts each record once."""

    generator: str
    stream: str
    sent: int
    arrived: int
    lost: int
    duplicated: int
    out_of_order: int
    unreachable: int = 0
    """Of those that have not arrived: it is known that they are there, and nobody sends them just now."""


class Verdict(Part):
    """What became of all tracking records. `others` were no tracking records, and nothing is said of them."""

    chunks: tuple[ChunkVerdict, ...]
    others: int
    unreachable: int = 0
    """Records that were committed, and that nobody sends just now; of some it may not be known which they are."""

    @property
    def good(self) -> bool:
        """Whether everything arrived, once, in order."""
        return self.complete and not any(chunk.duplicated or chunk.out_of_order for chunk in self.chunks)

    @property
    def complete(self) -> bool:
        """Whether nothing is missing."""
        return not self.unreachable and not any(chunk.lost for chunk in self.chunks)


def verdict(sources: SinkRecords, outputs: Iterable[SinkRecords]) -> Verdict:
    """Hold what is in the sources against what is in the outputs.

    A record is lost that is in none of the outputs; it is duplicated if one of them holds it more than once, so a
    dataflow that writes to several sinks may write each record to any, or to all, of them.
    """
    outputs = list(outputs)
    highest = sources.highest()
    for output in outputs:
        for chunk, number in output.highest().items():
            highest[chunk] = max(number, highest.get(chunk, -1))
    found = [_of_chunk(chunk, number + 1, outputs) for chunk, number in sorted(highest.items())]
    others, unreachable = (sum(getattr(output, of) for output in outputs) for of in ("others", "unreachable"))
    return Verdict(chunks=tuple(found), others=others, unreachable=unreachable)


def _of_chunk(chunk: Chunk, sent: int, outputs: list[SinkRecords]) -> ChunkVerdict:
    arrived, there, duplicated, out_of_order = Bits(), Bits(), 0, 0
    for output in outputs:
        if (known := output.known.get(chunk)) is not None:
            there.merge(known)
        if (seen := output.chunks.get(chunk)) is not None:
            arrived.merge(seen.bits)
            duplicated += seen.duplicated
            out_of_order += seen.out_of_order
    there.merge(arrived)
    return ChunkVerdict(
        generator=chunk[0],
        stream=chunk[1],
        sent=sent,
        arrived=arrived.count,
        lost=sent - there.count,
        unreachable=there.count - arrived.count,
        duplicated=duplicated,
        out_of_order=out_of_order,
    )
