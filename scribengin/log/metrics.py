"""What the store tells Prometheus: counters and histograms of every log that this process has open.

They are on the client's default registry, so whatever serves that registry over HTTP shows them. A log's series are
there while a writer or a reader of it is open in this process, and go with the last one, so a process that opens many
logs, one after the other, does not grow. They cost a few microseconds a group of records, never anything a record.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate
from typing import Self

from prometheus_client import REGISTRY, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from scribengin.errors import ScribenginError

_LABELS = ("namespace", "log")
_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class _Numbered(IntEnum):
    """Where a number of a log is among all of its kind, and what it means."""

    meaning: str

    def __new__(cls, meaning: str) -> Self:
        self = int.__new__(cls, len(cls.__members__))
        self._value_ = len(cls.__members__)
        self.meaning = meaning
        return self


class _Counted(_Numbered):
    RECORDS_WRITTEN = "Records that are durable and visible."
    BYTES_WRITTEN = "Bytes of the bodies of their entries, as stored."
    GROUPS_WRITTEN = "Groups of entries: one fsync each."
    ROLLS = "Segments completed because they were large or old enough."
    ROLLS_POSTPONED = "Rolls that failed: the old segment is used on."
    WRITERS_FAILED = "Writers that an error has ended."
    MAINTENANCE_FAILED = "Purges beside a writer that failed."
    OVER_CAPACITY = "Records over the limit of unacknowledged ones."
    RECORDS_READ = "Records that readers were given."
    BYTES_READ = "Bytes of the records that readers were given."
    COLD_RECORDS_READ = "Records read that came from cold storage."
    COLD_BYTES_READ = "Bytes read that came from cold storage."
    COLD_COPIES = "Segments copied to cold storage, and compared."
    COLD_BYTES_COPIED = "Bytes of the copies in cold storage."
    COLD_DROPPED = "Segments that are read from cold storage alone now."
    COLD_FAILED = "Times that copying to cold storage, or dropping what is there, failed."


class _Timed(_Numbered):
    APPEND = "Encoding, writing and syncing a group."
    FSYNC = "Making a group durable."


_BOUNDS = (*(str(bound) for bound in _SECONDS), "+Inf")

_TIERS = (*_LABELS, "tier")
_SEGMENTS = Gauge(
    "scribengin_log_segments", "Completed segments of a log with cold storage: in the store (hot), and cold.", _TIERS
)
_SEGMENTS_BYTES = Gauge(
    "scribengin_log_segments_bytes", "Bytes of the completed segments of a log with cold storage, hot and cold.", _TIERS
)
_COLD_WAITING = Gauge(
    "scribengin_log_cold_waiting_seconds", "Age of the oldest segment that is still to be copied; 0: none is.", _LABELS
)

_counting = threading.Lock()
"""Of the numbers of all logs: it is held for a microsecond."""
_open_lock = threading.Lock()
_open: dict[tuple[str, str], _LogSeries] = {}
"""Of logs that have a writer or a reader open, by (namespace, log)."""
_placed: dict[tuple[str, str], LogMetrics] = {}
"""Who said last where the segments of a log are."""


@dataclass(frozen=True, slots=True)
class SegmentsPlaced:
    """Where the completed segments of a log are. One that was copied, and not dropped, is in both places."""

    hot_segments: int
    hot_bytes: int
    cold_segments: int
    cold_bytes: int
    waiting_since_ms: int | None
    """When the oldest one was completed that is still to be copied; None: none is."""


class _LogSeries:
    """The numbers of one log. Thread-safe. Half a kilobyte: those of Prometheus' client are twenty for each log, and a
    process may have ten thousand open."""

    __slots__ = ("_buckets", "_counts", "_sums_s", "users")

    def __init__(self) -> None:
        self.users = 0
        """Writers and readers of the log that are open."""
        self._counts = array("d", bytes(8 * len(_Counted)))
        self._buckets = array("q", bytes(8 * len(_Timed) * len(_BOUNDS)))
        self._sums_s = array("d", bytes(8 * len(_Timed)))

    def add(self, counter: _Counted, number: float = 1) -> None:
        with _counting:
            self._counts[counter] += number

    def observe(self, histogram: _Timed, took_s: float) -> None:
        with _counting:
            self._buckets[histogram * len(_BOUNDS) + bisect_left(_SECONDS, took_s)] += 1
            self._sums_s[histogram] += took_s

    def count(self, counter: _Counted) -> float:
        with _counting:
            return self._counts[counter]

    def observed(self, histogram: _Timed) -> tuple[list[tuple[str, float]], float]:
        """How many were within each bound, and the sum of all."""
        with _counting:
            first = histogram * len(_BOUNDS)
            within = accumulate(self._buckets[first : first + len(_BOUNDS)])
            return list(zip(_BOUNDS, within, strict=True)), self._sums_s[histogram]


class _LogsCollector(Collector):
    """What Prometheus is told of the logs that are open."""

    def describe(self) -> Iterator[Metric]:
        """The names, without a number."""
        return self._families({})

    def collect(self) -> Iterator[Metric]:
        with _open_lock:
            found = dict(_open)
        return self._families(found)

    def _families(self, logs: Mapping[tuple[str, str], _LogSeries]) -> Iterator[Metric]:
        for counter in _Counted:
            counts = CounterMetricFamily(f"scribengin_log_{counter.name.lower()}", counter.meaning, labels=_LABELS)
            for labels, series in logs.items():
                counts.add_metric(labels, series.count(counter))
            yield counts
        for histogram in _Timed:
            name = f"scribengin_log_{histogram.name.lower()}_seconds"
            times = HistogramMetricFamily(name, histogram.meaning, labels=_LABELS)
            for labels, series in logs.items():
                times.add_metric(labels, *series.observed(histogram))
            yield times


REGISTRY.register(_LogsCollector())


class LogMetrics:
    """The series of one log, for one writer or reader. Thread-safe."""

    def __init__(self, namespace: str, log: str) -> None:
        self._labels = (namespace, log)
        self._closed = False
        with _open_lock:
            self._series = _open.setdefault(self._labels, _LogSeries())
            self._series.users += 1

    def appended(self, *, records: int, body_bytes: int, took_s: float) -> None:
        """A group was written, made durable, and shown."""
        self._series.add(_Counted.RECORDS_WRITTEN, records)
        self._series.add(_Counted.BYTES_WRITTEN, body_bytes)
        self._series.add(_Counted.GROUPS_WRITTEN)
        self._series.observe(_Timed.APPEND, took_s)

    def synced(self, took_s: float) -> None:
        """A group was made durable."""
        self._series.observe(_Timed.FSYNC, took_s)

    def read(self, *, records: int, record_bytes: int, cold: bool = False) -> None:
        """A reader was given that much; out of `cold` storage, or the store."""
        self._series.add(_Counted.RECORDS_READ, records)
        self._series.add(_Counted.BYTES_READ, record_bytes)
        if cold:
            self._series.add(_Counted.COLD_RECORDS_READ, records)
            self._series.add(_Counted.COLD_BYTES_READ, record_bytes)

    def rolled(self) -> None:
        """A segment was completed, and the next one begun."""
        self._series.add(_Counted.ROLLS)

    def roll_postponed(self) -> None:
        """That failed, and the old segment is used on."""
        self._series.add(_Counted.ROLLS_POSTPONED)

    def writer_failed(self) -> None:
        """An error has ended a writer."""
        self._series.add(_Counted.WRITERS_FAILED)

    def maintenance_failed(self) -> None:
        """A purge beside the writer failed. It is tried again after the next segment."""
        self._series.add(_Counted.MAINTENANCE_FAILED)

    def copied_to_cold(self, copied_bytes: int) -> None:
        """A segment has a copy in cold storage."""
        self._series.add(_Counted.COLD_COPIES)
        self._series.add(_Counted.COLD_BYTES_COPIED, copied_bytes)

    def dropped_from_hot(self) -> None:
        """A segment is read from there alone from now on."""
        self._series.add(_Counted.COLD_DROPPED)

    def cold_failed(self) -> None:
        """One of the two did not happen. It is tried again after the next segment."""
        self._series.add(_Counted.COLD_FAILED)

    def placed(self, found: SegmentsPlaced, now_ms: Callable[[], int]) -> None:
        """Where the log's segments are. It is shown until the next call, or until this one is closed. What waits grows
        older meanwhile, by the clock `now_ms`."""

        def waiting_s() -> float:
            return 0.0 if found.waiting_since_ms is None else max(0, now_ms() - found.waiting_since_ms) / 1000

        tiers = {"hot": (found.hot_segments, found.hot_bytes), "cold": (found.cold_segments, found.cold_bytes)}
        with _open_lock:
            if self._closed:
                return
            for tier, (segments, size) in tiers.items():
                _SEGMENTS.labels(*self._labels, tier).set(segments)
                _SEGMENTS_BYTES.labels(*self._labels, tier).set(size)
            _COLD_WAITING.labels(*self._labels).set_function(waiting_s)
            _placed[self._labels] = self

    def over_capacity(self, records: int) -> None:
        """That many records were over the limit of unacknowledged ones."""
        self._series.add(_Counted.OVER_CAPACITY, records)

    def close(self) -> None:
        """Whoever counted here is gone; with the last of them, the log's series are. Idempotent."""
        with _open_lock:
            if self._closed:
                return
            self._closed = True
            self._forget_places()
            self._series.users -= 1
            if not self._series.users:
                del _open[self._labels]

    def _forget_places(self) -> None:
        """Nobody else keeps them true."""
        if _placed.get(self._labels) is not self:
            return
        del _placed[self._labels]
        _COLD_WAITING.remove(*self._labels)
        for tier in ("hot", "cold"):
            _SEGMENTS.remove(*self._labels, tier)
            _SEGMENTS_BYTES.remove(*self._labels, tier)


@dataclass(frozen=True, slots=True)
class ReaderLag:
    """How many records lie before a registered reader."""

    log: str
    reader: str
    records: int


class ReaderLagCollector(Collector):
    """Shows the lag of a namespace's registered readers as `scribengin_log_reader_lag_records`, until `close`.

    `lags` is asked at every scrape, on the scraper's thread. When it raises an error of ours (the registry is away),
    that scrape is without them, and has everything else.
    """

    def __init__(self, namespace: str, lags: Callable[[], Iterable[ReaderLag]]) -> None:
        self._namespace = namespace
        self._lags = lags
        REGISTRY.register(self)

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Nothing: then nobody asks for the lags just to learn the name."""
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            "scribengin_log_reader_lag_records",
            "Visible records at and behind the position of a registered reader.",
            labels=("namespace", "log", "reader"),
        )
        try:
            lags = list(self._lags())
        except ScribenginError:
            return
        for lag in lags:
            family.add_metric((self._namespace, lag.log, lag.reader), lag.records)
        yield family

    def close(self) -> None:
        """Stop showing them."""
        REGISTRY.unregister(self)


def exposition() -> bytes:
    """Everything on the default registry, in Prometheus' text format."""
    return bytes(generate_latest(REGISTRY))
