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

from prometheus_client import REGISTRY, Counter, Histogram, generate_latest
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
)
_HISTOGRAMS = (_APPEND_SECONDS, _FSYNC_SECONDS)

_open_lock = threading.Lock()
_open: Multiset[tuple[str, str]] = Multiset()
"""How many writers and readers of a log are open, by (namespace, log)."""


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

    def read(self, *, records: int, record_bytes: int) -> None:
        """A reader was given that much."""
        self._counters[_RECORDS_READ].inc(records)
        self._counters[_BYTES_READ].inc(record_bytes)

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

    def over_capacity(self, records: int) -> None:
        """That many records were over the limit of unacknowledged ones."""
        self._counters[_OVER_CAPACITY].inc(records)

    def close(self) -> None:
        """Whoever counted here is gone; with the last of them, the log's series are. Idempotent."""
        if self._closed:
            return
        self._closed = True
        with _open_lock:
            _open[self._labels] -= 1
            if _open[self._labels] > 0:
                return
            del _open[self._labels]
            for metric in (*_COUNTERS, *_HISTOGRAMS):
                metric.remove(*self._labels)


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
