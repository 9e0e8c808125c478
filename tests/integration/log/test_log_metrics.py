"""What Prometheus scrapes: counters and histograms of open logs, in its text format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from scribengin.errors import LogWriteFailed, OverCapacity
from scribengin.log import LogConfig, LogNamespace
from scribengin.log.metrics import LogMetrics, ReaderLag, ReaderLagCollector, exposition
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import bound_namespace, payload_batch
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry
from scribengin_registry.errors import RegistryUnreachable

LOG = 'flights/"0"'


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    config = LogConfig(segment_bytes_max=4096, outstanding_writes_max=100, outstanding_dark_mode=False)
    return bound_namespace(registry, tmp_path / "store", LOG, config=config)


def scraped() -> dict[str, float]:
    """The value of every series of our log, by its name and, after a colon, what tells it from others of that name."""
    return {
        ":".join([sample.name, *(v for k, v in sample.labels.items() if k not in ("namespace", "log"))]): sample.value
        for family in text_string_to_metric_families(exposition().decode())
        for sample in family.samples
        if (sample.labels.get("namespace"), sample.labels.get("log")) == ("/logs", LOG)
        if not sample.name.endswith("_created")
    }


def test_a_writer_counts_what_it_does(namespace: LogNamespace) -> None:
    with namespace.open_writer(LOG) as writer:
        writer.write(bytes(5000)).result(120)
        writer.write_bulk(payload_batch([b"1", b"2"])).result(120)
        with pytest.raises(OverCapacity):
            writer.write_bulk(payload_batch([b"x"] * 101))
        wait_until(lambda: scraped()["scribengin_log_groups_written_total"] == 2, what="the second group")
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
