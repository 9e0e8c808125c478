"""What Prometheus scrapes: counters and histograms of open logs, in its text format."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from scribengin.errors import DamagedEntry, LogWriteFailed, OverCapacity
from scribengin.log import LogConfig, LogNamespace, LogWriter, ReadAhead, metrics
from scribengin.log.metrics import LogMetrics, ReaderLag, ReaderLagCollector, exposition
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import bound_namespace, fill_log, payload_batch, payloads_left
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry
from scribengin_registry.errors import RegistryUnreachable
from tests.servers import cold
from tests.servers.cold import GRACE_S, HOUR_S, ColdLog

LOG = 'flights/"0"'


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    config = LogConfig(segment_bytes_max=4096, outstanding_writes_max=100, outstanding_dark_mode=False)
    return bound_namespace(registry, tmp_path / "store", LOG, config=config)


def scraped(log: str = LOG) -> dict[str, float]:
    """The value of every series of a log, by its name and, after a colon, what tells it from others of that name."""
    return {
        ":".join([sample.name, *(v for k, v in sample.labels.items() if k not in ("namespace", "log"))]): sample.value
        for family in text_string_to_metric_families(exposition().decode())
        for sample in family.samples
        if (sample.labels.get("namespace"), sample.labels.get("log")) == ("/logs", log)
        if not sample.name.endswith("_created")
    }


def test_a_writer_counts_what_it_does(namespace: LogNamespace) -> None:
    with namespace.open_writer(LOG) as writer:
        writer.write(bytes(5000)).result(120)
        writer.write_bulk(payload_batch([b"1", b"2"])).result(120)
        with pytest.raises(OverCapacity):
            writer.write_bulk(payload_batch([b"x"] * 101))
        wait_until(lambda: scraped()["scribengin_log_append_seconds_count"] == 2, what="the second group's last count")
        found = scraped()
    assert found["scribengin_log_records_written_total"] == 3
    assert found["scribengin_log_bytes_written_total"] > 5000
    assert found["scribengin_log_rolls_total"] == 1
    assert found["scribengin_log_rolls_postponed_total"] == 0
    assert found["scribengin_log_over_capacity_total"] == 101
    assert found["scribengin_log_writers_failed_total"] == 0
    for histogram in ("scribengin_log_append_seconds", "scribengin_log_fsync_seconds"):
        assert found[f"{histogram}_count"] == 2
        assert found[f"{histogram}_bucket:+Inf"] == 2
    assert found["scribengin_log_append_seconds_sum"] >= found["scribengin_log_fsync_seconds_sum"] > 0


def test_a_writer_that_failed_is_counted_once(namespace: LogNamespace) -> None:
    def refuse(_stop: str) -> None:
        raise OSError(5, "Input/output error")

    writer = namespace.open_writer(LOG)
    with at_failpoint("log.segment_sync:before", refuse), pytest.raises(LogWriteFailed):
        writer.write(b"0").result(120)
    for _ in range(3):
        with pytest.raises(LogWriteFailed):
            writer.write(b"1")
    found = scraped()
    assert (found["scribengin_log_writers_failed_total"], found["scribengin_log_records_written_total"]) == (1, 0)
    writer.abort()


def test_a_logs_series_go_with_the_last_that_has_it_open(namespace: LogNamespace) -> None:
    assert scraped() == {}
    other = LogMetrics("/logs", LOG)
    with namespace.open_writer(LOG) as writer:
        writer.write(b"0").result(120)
    assert scraped()["scribengin_log_records_written_total"] == 1
    other.close()
    other.close()
    assert scraped() == {}
    with namespace.open_writer(LOG):
        assert scraped()["scribengin_log_records_written_total"] == 0


def test_two_threads_that_close_the_same_count_it_down_once(monkeypatch: pytest.MonkeyPatch) -> None:
    other, closed = LogMetrics("/logs", LOG), LogMetrics("/logs", LOG)
    both = threading.Barrier(2)

    class MeetBefore:
        """Neither closes before both have called `close`."""

        def __init__(self, lock: AbstractContextManager[bool]) -> None:
            self._lock = lock

        def __enter__(self) -> None:
            both.wait(60)
            self._lock.__enter__()

        def __exit__(self, *_why: object) -> None:
            self._lock.__exit__(None, None, None)

    with monkeypatch.context() as met:
        met.setattr(metrics, "_open_lock", MeetBefore(metrics._open_lock))
        threads = [threading.Thread(target=closed.close) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
    other.read(records=3, record_bytes=300)
    assert scraped()["scribengin_log_records_read_total"] == 3
    other.close()
    assert scraped() == {}


def test_reading_is_counted(namespace: LogNamespace) -> None:
    with namespace.open_writer(LOG) as writer:
        writer.write_bulk(payload_batch([b"1", b"2", b"3"])).result(120)
        with namespace.open_reader(LOG) as reader:
            assert len(reader.read(2)) == 2
            assert scraped()["scribengin_log_records_read_total"] == 2


def test_readers_count_what_they_were_given() -> None:
    metrics = LogMetrics("/logs", LOG)
    metrics.read(records=3, record_bytes=300)
    metrics.read(records=1, record_bytes=1)
    found = scraped()
    metrics.close()
    assert (found["scribengin_log_records_read_total"], found["scribengin_log_bytes_read_total"]) == (4, 301)


def test_the_lag_of_registered_readers_is_asked_for_at_each_scrape() -> None:
    lags = {"audit": 7}

    def current() -> Iterator[ReaderLag]:
        if "away" in lags:
            raise RegistryUnreachable("no server")
        return (ReaderLag(LOG, reader, records) for reader, records in lags.items())

    collector = ReaderLagCollector("/logs", current)
    try:
        assert scraped() == {"scribengin_log_reader_lag_records:audit": 7}
        lags["audit"] = 8
        assert list(scraped().values()) == [8]
        lags["away"] = 0  # the registry is: the rest of the scrape is there all the same
        assert scraped() == {}
        assert b"scribengin_log_records_written" in exposition()
    finally:
        collector.close()
    assert scraped() == {}


def cold_series() -> dict[str, float]:
    """What is scraped of the log in cold storage, about its segments and what becomes of them, by short names."""
    begun = ("scribengin_log_segments", "scribengin_log_cold_")
    found = {name: value for name, value in scraped(cold.LOG).items() if name.startswith(begun)}
    return {name.removeprefix("scribengin_log_"): value for name, value in found.items() if "_read_" not in name}


def complete_segment(writer: LogWriter) -> None:
    """One more segment of the log is completed, and its writer has begun the next one, as empty as this was."""
    first = writer.write(bytes(5000)).result(120)
    assert writer.write(b"").result(120).segment == first.segment + 1


def test_a_writer_tells_where_the_segments_of_a_log_with_cold_storage_are(cold_log: ColdLog) -> None:
    fill_log(cold_log.namespace, cold.LOG, 6)
    with cold_log.namespace.open_writer(cold.LOG):
        assert not [name for name in cold_series() if name.startswith("segments")], "it has none"
    cold_log.namespace.configure(cold.LOG, cold_log.config())
    kept = sum(segment.bytes for segment in cold_log.namespace.segments(cold.LOG))
    with cold_log.namespace.open_writer(cold.LOG) as writer:
        expected = {
            "segments:hot": 2,
            "segments:cold": 2,
            "segments_bytes:hot": kept,
            "segments_bytes:cold": kept,
            "cold_copies_total": 2,
            "cold_bytes_copied_total": kept,
            "cold_dropped_total": 0,
            "cold_failed_total": 0,
            "cold_waiting_seconds": 0,
        }
        wait_until(lambda: cold_series() == expected, what=f"{expected} after the copies of what was there")
        cold_log.clock.advance_s(2 * HOUR_S)
        complete_segment(writer)
        wait_until(lambda: cold_series()["segments:cold"] == 3, what="the copy of what it completed")
        assert cold_series()["segments:hot"] == 1
        assert cold_series()["cold_dropped_total"] == 2
    assert cold_series() == {}, "nobody keeps them true"


def test_what_cold_storage_has_still_to_be_given_grows_older_while_it_is_away(cold_log: ColdLog) -> None:
    cold_log.namespace.configure(cold.LOG, cold_log.config())
    cold_log.files.away = True
    with cold_log.namespace.open_writer(cold.LOG) as writer:
        complete_segment(writer)
        wait_until(lambda: cold_series().get("segments:hot") == 1, what="the segment")
        cold_log.clock.advance_s(600)
        complete_segment(writer)
        wait_until(lambda: cold_series()["segments:hot"] == 2, what="another one")
        cold_log.clock.advance_s(30)
        found = cold_series()
        assert (found["cold_waiting_seconds"], found["segments:cold"], found["cold_copies_total"]) == (630, 0, 0)
        assert found["cold_failed_total"] >= 2
        cold_log.files.away = False
        complete_segment(writer)
        wait_until(lambda: cold_series()["segments:cold"] == 3, what="the copies after it is back")
        wait_until(lambda: cold_series()["cold_waiting_seconds"] == 0, what="nothing to wait, which is told last")
        assert cold_series()["cold_failed_total"] == found["cold_failed_total"]


def test_a_copy_that_does_not_hold_is_counted_as_a_failure(cold_log: ColdLog) -> None:
    cold_log.offloaded()
    cold_log.damage(1, 100)
    cold_log.clock.advance_s(2 * HOUR_S)
    with cold_log.namespace.open_writer(cold.LOG) as writer:
        wait_until(lambda: cold_series().get("cold_failed_total") == 1, what="the copy that does not hold")
        wait_until(lambda: cold_series().get("cold_dropped_total") == 2, what="the others to be dropped")
        wait_until(lambda: isinstance(writer.maintenance_failure, DamagedEntry), what="the end of that run")


@pytest.mark.parametrize("read_ahead", [None, ReadAhead()])
def test_what_comes_out_of_cold_storage_is_counted_apart(cold_log: ColdLog, read_ahead: ReadAhead | None) -> None:
    payloads = cold_log.offloaded()
    cold_log.drop_hot()
    cold_log.clock.advance_s(GRACE_S)
    payloads += cold_log.more(1)
    with cold_log.namespace.open_reader(cold.LOG, read_ahead=read_ahead) as reader:
        assert payloads_left(reader) == payloads
        found = scraped(cold.LOG)
    assert found["scribengin_log_records_read_total"] == len(payloads)
    assert found["scribengin_log_cold_records_read_total"] == len(payloads) - 1
    beside = found["scribengin_log_bytes_read_total"] - found["scribengin_log_cold_bytes_read_total"]
    assert 5000 < beside < 10_000
