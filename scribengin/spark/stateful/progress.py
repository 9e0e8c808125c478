"""What a running query says of its state: how much there is, how far its watermark is, and which source it waits for.

Spark keeps a watermark for each place in the plan that has one, and goes by the earliest (`WatermarkTracker`, of its
developer API). A place that has had no record since the query was started has none yet, and holds the others back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import DataFrame

from scribengin.spark.stateful.beats import is_beats
from scribengin.spark.stateful.operators import operator_names
from scribengin.spark.stateful.plan import each, kind, nodes, sources_below
from scribengin.spark.transform.spec import StateReport

_ON_DISK = "rocksdbSstFileSize"


class QueryProgress:
    """Counts what one query has told. Used by one thread."""

    def __init__(self, frame: DataFrame, query: Any) -> None:
        """`query` is Spark's, over `frame`."""
        self._query = query
        self._sources = dict(_watermarks(frame._jdf.queryExecution().analyzed()))
        self._counted = -1
        """The last batch whose late rows are counted."""
        self._late = 0

    def report(self) -> StateReport:
        """As of the last batch that is done."""
        last = None
        for progress in reversed(self._query.recentProgress()):  # of a hundred in the JVM only those that are new
            last = last or progress
            if progress.batchId() <= self._counted:
                break
            self._late += sum(one.numRowsDroppedByWatermark() for one in progress.stateOperators())
        if last is None:
            return StateReport(late=self._late)
        self._counted = max(self._counted, last.batchId())
        operators = list(last.stateOperators())
        names = operator_names([str(one.operatorName()) for one in operators])
        watermark_ms, held_back_by = self._watermark()
        return StateReport(
            rows={name: one.numRowsTotal() for name, one in zip(names, operators, strict=True)},
            bytes=sum(_bytes(one) for one in operators),
            watermark_ms=watermark_ms,
            held_back_by=held_back_by,
            late=self._late,
        )

    def watermark(self) -> int:
        """How far the earliest is, in milliseconds, by which Spark drops what is late; 0: there is none yet."""
        tracker = self._query.streamingQuery().watermarkTracker()
        return 0 if tracker is None else int(tracker.currentWatermark())

    def watermarks(self) -> Mapping[str, int | None]:
        """How far the watermark of each source is, in milliseconds; None: it has none yet. Of several places the
        earliest counts. Empty before the first batch."""
        tracker = self._query.streamingQuery().watermarkTracker()
        places = {} if tracker is None else self._places(tracker)
        return {source: None if at_ms < 0 else at_ms for source, at_ms in places.items()}

    def _watermark(self) -> tuple[int | None, str | None]:
        tracker = self._query.streamingQuery().watermarkTracker()
        if tracker is None or not self._sources:
            return None, None
        places = self._places(tracker)
        return tracker.currentWatermark() or None, min(places, key=lambda one: places[one], default=None)

    def _places(self, tracker: Any) -> dict[str, int]:
        """By source; -1: none yet."""
        places: dict[str, int] = {}
        for pair in each(tracker.watermarkMap().toSeq()):
            source, at = self._sources.get(str(pair._1().toString())), pair._2()
            if source is not None:
                at_ms = int(at.get()) if at.isDefined() else -1
                places[source] = min(places.get(source, at_ms), at_ms)
        return places


def _bytes(operator: Any) -> int:
    found: Mapping[str, int] = operator.customMetrics()
    return int(found.get(_ON_DISK) or 0) + int(operator.memoryUsedBytes())


def _watermarks(node: Any) -> Iterator[tuple[str, str]]:
    """Of each place with a watermark: its number, and the sources below it."""
    for place in nodes(node):
        if kind(place) == "EventTimeWatermark":
            below = dict.fromkeys(source for source in sources_below(place) if not is_beats(source))
            yield str(place.nodeId().toString()), ", ".join(below)
