"""What a test reads of a source, without Spark: its streams, its ranges, its records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from scribengin.connectors.contract import PlannedRange, RoundLimits, Source, SourceStreamReader
from scribengin.connectors.kafka.source.reading import KafkaSplit

ALL = RoundLimits(10**6, 10**9)


def names(opened: Source) -> list[str]:
    """Its streams."""
    return [stream.name for stream in opened.streams()]


def reader(opened: Source, name: str | None = None) -> SourceStreamReader:
    """A reader of the first stream, or of that one."""
    return opened.open_reader(next(s for s in opened.streams() if name in (None, s.name)))


def rows(plan: PlannedRange | None) -> list[dict[str, Any]]:
    """Every record of a range, by column."""
    assert plan is not None, "there is nothing to read"
    return [row for split in plan.splits for batch in split.read() for row in batch.to_pylist()]


def payloads(plan: PlannedRange | None) -> list[bytes | None]:
    """The payloads of a range."""
    return [row["payload"] for row in rows(plan)]


def everything(opened: SourceStreamReader, limits: RoundLimits = ALL) -> list[bytes | None]:
    """All that can be read from the first position on."""
    found: list[bytes | None] = []
    position = opened.initial_position()
    while (plan := opened.plan(position, limits)) is not None:
        found += payloads(plan)
        position = plan.end
    return found


def elsewhere(plan: PlannedRange | None) -> PlannedRange:
    """The range as another process has it: nothing of it was fetched before."""
    assert plan is not None
    splits = tuple(replace(cast(KafkaSplit, split), topic_id="elsewhere") for split in plan.splits)
    return replace(plan, splits=splits)


def numbered(first: int, end: int) -> list[bytes]:
    """Numbers as payloads."""
    return [b"%d" % n for n in range(first, end)]
