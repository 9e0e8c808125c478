"""What stands for a source that has no records: a time, and no record, for its watermark to go on.

Of the watermarks of several sources Spark goes by the earliest. A source that is silent holds the others back, so that
no window ends. A *beat* is a row with a time and nothing else, of a source beside the silent one: it passes the
watermark, which then is as far as the row says, and goes no further. Which beats a batch has, its offsets say, as they
say which records: so a batch that is run again has the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from scribengin.spark.stateful.offers import BoundRange, Offset

BEATS = pa.schema([pa.field("at", pa.timestamp("us", "UTC"))])
"""The columns of a source of beats."""
_SUFFIX = "/beats"  # no source of a user's has a slash in its name
_US_PER_MS = 1000


@dataclass(frozen=True, slots=True)
class BeatSplit:
    """One beat."""

    at_ms: int

    @property
    def records(self) -> int:
        return 1

    @property
    def size_bytes(self) -> int:
        return 0

    def read(self) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array([self.at_ms * _US_PER_MS], pa.timestamp("us", "UTC"))], schema=BEATS)

    def places(self, indices: Sequence[int], rows: pa.Table) -> list[str]:
        """Nobody's place: a beat is no record."""
        return ["no record" for _ in indices]


def beats_of(source: str) -> str:
    """The name of the source that has the beats of this one."""
    return f"{source}{_SUFFIX}"


def is_beats(source: str) -> bool:
    """Whether that is the name of a source of beats."""
    return source.endswith(_SUFFIX)


def beat_offset(source: str, at_ms: int | None) -> Offset:
    """Where the beats of a source end: at the time of the last one. None: there was none."""
    return {"source": beats_of(source), "at_ms": at_ms}


def bound_beat(start: Offset, end: Offset) -> BoundRange:
    """What a range of beats reads."""
    return BoundRange(start, end, [BeatSplit(int(end["at_ms"]))])
