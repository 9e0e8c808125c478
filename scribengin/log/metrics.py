"""What the store tells Prometheus: counters and histograms of every log that this process has open.

They are on the client's default registry, so whatever serves that registry over HTTP shows them. A log's series are
there while a writer or a reader of it is open in this process, and go with the last one, so a process that opens many
logs, one after the other, does not grow. They cost a few microseconds a group of records, never anything a record.
"""

from __future__ import annotations

import threading
from collections import Counter as Multiset
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import REGISTRY, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from scribengin.errors import ScribenginError

_LABELS = ("namespace", "log")
_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)

_RECORDS_WRITTEN = Counter("scribengin_log_records_written", "Records that are durable and visible.", _LABELS)
_BYTES_WRITTEN = Counter("scribengin_log_bytes_written", "Bytes of the bodies of their entries, as stored.", _LABELS)
_GROUPS_WRITTEN = Counter("scribengin_log_groups_written", "Groups of entries: one fsync each.", _LABELS)
_APPEND_SECONDS = Histogram(
    "scribengin_log_append_seconds", "Encoding, writing and syncing a group.", _LABELS, buckets=_SECONDS
)
_FSYNC_SECONDS = Histogram("scribengin_log_fsync_seconds", "Making a group durable.", _LABELS, buckets=_SECONDS)
_ROLLS = Counter("scribengin_log_rolls", "Segments completed because they were large or old enough.", _LABELS)
_ROLLS_POSTPONED = Counter("scribengin_log_rolls_postponed", "Rolls that failed: the old segment is used on.", _LABELS)
_WRITERS_FAILED = Counter("scribengin_log_writers_failed", "Writers that an error has ended.", _LABELS)
_MAINTENANCE_FAILED = Counter("scribengin_log_maintenance_failed", "Purges beside a writer that failed.", _LABELS)
_OVER_CAPACITY = Counter("scribengin_log_over_capacity", "Records over the limit of unacknowledged ones.", _LABELS)
_RECORDS_READ = Counter("scribengin_log_records_read", "Records that readers were given.", _LABELS)
_BYTES_READ = Counter("scribengin_log_bytes_read", "Bytes of the records that readers were given.", _LABELS)
_COLD_RECORDS_READ = Counter("scribengin_log_cold_records_read", "Records read that came from cold storage.", _LABELS)
_COLD_BYTES_READ = Counter("scribengin_log_cold_bytes_read", "Bytes read that came from cold storage.", _LABELS)
_COLD_COPIES = Counter("scribengin_log_cold_copies", "Segments copied to cold storage, and compared.", _LABELS)
_COLD_BYTES_COPIED = Counter("scribengin_log_cold_bytes_copied", "Bytes of the copies in cold storage.", _LABELS)
_COLD_DROPPED = Counter("scribengin_log_cold_dropped", "Segments that are read from cold storage alone now.", _LABELS)
_COLD_FAILED = Counter(
    "scribengin_log_cold_failed", "Times that copying to cold storage, or dropping what is there, failed.", _LABELS
)
_COUNTERS = (
    _RECORDS_WRITTEN,
    _BYTES_WRITTEN,
    _GROUPS_WRITTEN,
    _ROLLS,
    _ROLLS_POSTPONED,
    _WRITERS_FAILED,
    _MAINTENANCE_FAILED,
    _OVER_CAPACITY,
    _RECORDS_READ,
    _BYTES_READ,
    _COLD_RECORDS_READ,
    _COLD_BYTES_READ,
    _COLD_COPIES,
    _COLD_BYTES_COPIED,
    _COLD_DROPPED,
    _COLD_FAILED,
)
_HISTOGRAMS = (_APPEND_SECONDS, _FSYNC_SECONDS)

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

_open_lock = threading.Lock()
_open: Multiset[tuple[str, str]] = Multiset()
"""How many writers and readers of a log are open, by (namespace, log)."""
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


class LogMetrics:
    """The series of one log, for one writer or reader. Thread-safe."""

    def __init__(self, namespace: str, log: str) -> None:
        self._labels = (namespace, log)
        self._closed = False
        with _open_lock:
            _open[self._labels] += 1
            self._counters = {counter: counter.labels(*self._labels) for counter in _COUNTERS}
            self._histograms = {histogram: histogram.labels(*self._labels) for histogram in _HISTOGRAMS}

    def appended(self, *, records: int, body_bytes: int, took_s: float) -> None:
        """A group was written, made durable, and shown."""
        self._counters[_RECORDS_WRITTEN].inc(records)
        self._counters[_BYTES_WRITTEN].inc(body_bytes)
        self._counters[_GROUPS_WRITTEN].inc()
        self._histograms[_APPEND_SECONDS].observe(took_s)

    def synced(self, took_s: float) -> None:
        """A group was made durable."""
        self._histograms[_FSYNC_SECONDS].observe(took_s)

    def read(self, *, records: int, record_bytes: int, cold: bool = False) -> None:
        """A reader was given that much; out of `cold` storage, or the store."""
        self._counters[_RECORDS_READ].inc(records)
        self._counters[_BYTES_READ].inc(record_bytes)
        if cold:
            self._counters[_COLD_RECORDS_READ].inc(records)
            self._counters[_COLD_BYTES_READ].inc(record_bytes)

    def rolled(self) -> None:
        """A segment was completed, and the next one begun."""
        self._counters[_ROLLS].inc()

    def roll_postponed(self) -> None:
        """That failed, and the old segment is used on."""
        self._counters[_ROLLS_POSTPONED].inc()

    def writer_failed(self) -> None:
        """An error has ended a writer."""
        self._counters[_WRITERS_FAILED].inc()

    def maintenance_failed(self) -> None:
        """A purge beside the writer failed. It is tried again after the next segment."""
        self._counters[_MAINTENANCE_FAILED].inc()

    def copied_to_cold(self, copied_bytes: int) -> None:
        """A segment has a copy in cold storage."""
        self._counters[_COLD_COPIES].inc()
        self._counters[_COLD_BYTES_COPIED].inc(copied_bytes)

    def dropped_from_hot(self) -> None:
        """A segment is read from there alone from now on."""
        self._counters[_COLD_DROPPED].inc()

    def cold_failed(self) -> None:
        """One of the two did not happen. It is tried again after the next segment."""
        self._counters[_COLD_FAILED].inc()

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
        self._counters[_OVER_CAPACITY].inc(records)

    def close(self) -> None:
        """Whoever counted here is gone; with the last of them, the log's series are. Idempotent."""
        with _open_lock:
            if self._closed:
                return
            self._closed = True
            self._forget_places()
            _open[self._labels] -= 1
            if _open[self._labels] > 0:
                return
            del _open[self._labels]
            for metric in (*_COUNTERS, *_HISTOGRAMS):
                metric.remove(*self._labels)

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
