"""What a query wants of a log, as far as a plan can use it: half-open ranges that leave out segments and entries, and
what leaves out rows in the Python worker, before they travel to the JVM.

Spark applies every filter again to what it gets. So a filter that is not understood here costs time, never an answer,
and rows may be left out here only if Spark would leave them out, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from scribengin.log.read.batches import in_channels

NUMBERS = ("txid", "segment", "sequence_id")
"""Columns whose filters become ranges."""


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers from `first` (None: all) to before `end` (None: all)."""

    first: int | None = None
    end: int | None = None

    def __and__(self, other: Range) -> Range:
        firsts = [n for n in (self.first, other.first) if n is not None]
        ends = [n for n in (self.end, other.end) if n is not None]
        return Range(max(firsts, default=None), min(ends, default=None))

    @property
    def everything(self) -> bool:
        """Whether it leaves out nothing."""
        return self.first is None and self.end is None

    def mask(self, column: pa.Array) -> list[pa.Array]:
        """What holds of the rows that lie in it."""
        masks = [] if self.first is None else [pc.greater_equal(column, self.first)]
        return masks if self.end is None else [*masks, pc.less(column, self.end)]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be read of every log. Picklable. `keys`, `channels` and `logs`: None means any."""

    txid: Range = Range()
    segment: Range = Range()
    sequence_id: Range = Range()
    channel_prefixes: tuple[str, ...] = ()
    channels: frozenset[str] | None = None
    keys: frozenset[bytes] | None = None
    logs: frozenset[str] | None = None
    log_prefix: str = ""

    def takes(self, log: str) -> bool:
        """Whether anything of that log is wanted."""
        return log.startswith(self.log_prefix) and (self.logs is None or log in self.logs)

    def and_filter(self, given: Filter) -> Wanted:
        """The same and what `given` says, as far as it is understood."""
        column = ".".join(getattr(given, "attribute", ()))
        if column in NUMBERS:
            return replace(self, **{column: getattr(self, column) & _range(given)})
        if isinstance(given, StringStartsWith):
            return self._and_prefix(column, given.value)
        values = _values(given)
        if values is None:
            return self
        if column == "log":
            return replace(self, logs=_both(self.logs, values))
        if column == "channel":
            return replace(self, channels=_both(self.channels, values))
        return replace(self, keys=_both(self.keys, values)) if column == "key" else self

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch of BODY_SCHEMA or READ_SCHEMA that are wanted."""
        masks = self.txid.mask(batch.column("txid"))
        if "sequence_id" in batch.schema.names:
            masks += self.sequence_id.mask(batch.column("sequence_id"))
        if self.channels is not None:
            masks.append(pc.is_in(batch.column("channel"), pa.array(sorted(self.channels), pa.string())))
        if self.channel_prefixes:
            masks.append(in_channels(batch, self.channel_prefixes))
        if self.keys is not None:
            masks.append(pc.is_in(batch.column("key"), pa.array(sorted(self.keys), pa.binary())))
        return batch.filter(reduce(pc.and_, masks)) if masks else batch

    def _and_prefix(self, column: str, prefix: str) -> Wanted:
        """Of several prefixes one is enough: Spark looks at the others."""
        if column == "log":
            return replace(self, log_prefix=max(self.log_prefix, prefix, key=len))
        if column == "channel" and not self.channel_prefixes:
            return replace(self, channel_prefixes=(prefix,))
        return self


def pushed(filters: Iterable[Filter], before: Wanted) -> Wanted:
    """`before`, and all that `filters` say."""
    for given in filters:
        before = before.and_filter(given)
    return before


def _range(given: Filter) -> Range:
    value = getattr(given, "value", None)
    if isinstance(given, In):
        numbers = [number for number in given.value if isinstance(number, int)]
        return Range(min(numbers), max(numbers) + 1) if numbers else Range()
    make = _RANGES.get(type(given))
    return make(value) if make is not None and isinstance(value, int) else Range()


_RANGES: dict[type[Filter], Callable[[int], Range]] = {
    EqualTo: lambda value: Range(value, value + 1),
    GreaterThan: lambda value: Range(value + 1, None),
    GreaterThanOrEqual: lambda value: Range(value, None),
    LessThan: lambda value: Range(None, value),
    LessThanOrEqual: lambda value: Range(None, value + 1),
}


def _values(given: Filter) -> frozenset[Any] | None:
    if isinstance(given, EqualTo):
        return frozenset([given.value])
    return frozenset(value for value in given.value if value is not None) if isinstance(given, In) else None


def _both(before: frozenset[Any] | None, values: frozenset[Any]) -> frozenset[Any]:
    return values if before is None else before & values
