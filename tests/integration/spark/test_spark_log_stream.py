"""Following logs with Structured Streaming: `spark.readStream.format("scribengin-log")`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from scribengin.base.model import JsonObject
from scribengin.errors import ConfigInvalid, LogNotFound, PositionTruncated, ReaderBehind, SourceMissing
from scribengin.log import DLSN, LogConfig, LogNamespace
from scribengin.spark.log_format.format import LogDataSource
from scribengin.spark.log_format.plan import BYTES_UNLIMITED, LogPartition
from scribengin.spark.log_format.stream import LogMicroBatchReader, shares
from scribengin.testing.log_samples import bound_namespace, fill_log
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry

_LIMIT_S = 240
"""On a machine that is busy with everything else, a Spark query takes minutes to start."""
pytestmark = [pytest.mark.spark, pytest.mark.timeout(3 * _LIMIT_S)]
LOG = "flights/0"
ALL = ReadAllAvailable()
Source = Callable[..., LogMicroBatchReader]


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    return bound_namespace(registry, tmp_path / "store", LOG, config=LogConfig(segment_bytes_max=4096))


@pytest.fixture
def uri(registry_hosts: str) -> str:
    return f"distributedlog-file://{registry_hosts}/logs"


@pytest.fixture
def source(namespace: LogNamespace, uri: str) -> Iterator[Source]:
    """What plans a stream, as Spark makes one at every start."""
    made: list[LogMicroBatchReader] = []

    def make(log: str = LOG, **options: str) -> LogMicroBatchReader:
        source = LogDataSource({"namespace": uri, "log": log, **options})
        reader = source.streamReader(source.schema())
        assert isinstance(reader, LogMicroBatchReader)
        made.append(reader)
        return reader

    yield make
    for reader in made:
        reader.stop()


def write(namespace: LogNamespace, *payloads: bytes, log: str = LOG) -> None:
    with namespace.open_writer(log) as writer:
        for payload in payloads:
            writer.write(payload).result(120)


def read(reader: LogMicroBatchReader, start: JsonObject, end: JsonObject) -> list[bytes]:
    parts = [part for part in reader.partitions(start, end) if isinstance(part, LogPartition)]
    return [value for part in parts for batch in reader.read(part) for value in batch.column("payload").to_pylist()]


def after(reader: LogMicroBatchReader, at: JsonObject, records: int) -> JsonObject:
    """The offset of a micro-batch of so many records, as soon as the reader has heard of them."""
    end = at

    def heard() -> bool:
        nonlocal end
        end = reader.latestOffset(at, ALL)
        return len(read(reader, at, end)) >= records

    wait_until(heard, what=f"{records} records")
    return end


def refusal(call: Callable[[], object]) -> str:
    """What a call says that is refused, as soon as the reader has heard why."""
    said: list[str] = []

    def refused() -> bool:
        try:
            call()
        except (PositionTruncated, LogNotFound) as error:
            said.append(f"{type(error).__name__}: {error}")
        return bool(said)

    wait_until(refused, what="a refusal")
    return said[0]


def batches(reader: LogMicroBatchReader, limit: ReadLimit = ALL) -> list[list[bytes]]:
    """The payloads of micro-batch after micro-batch, until there is nothing more."""
    at, found = reader.initialOffset(), []
    while (end := reader.latestOffset(at, limit)) != at:
        found.append(read(reader, at, end))
        at = end
    return found


def test_micro_batches_follow_a_log_and_repeat_exactly(source: Source, namespace: LogNamespace) -> None:
    reader = source()
    at = reader.initialOffset()
    assert reader.latestOffset(at, ALL) == at
    payloads = fill_log(namespace, LOG, 5)
    first = after(reader, at, 5)
    assert read(reader, at, first) == payloads
    write(namespace, b"late", b"later")
    second = after(reader, first, 2)
    assert read(reader, first, second) == [b"late", b"later"]
    assert reader.latestOffset(second, ALL) == second
    again = source()  # after a restart, with nothing but the offsets
    assert read(again, at, first) == payloads
    assert read(again, first, second) == [b"late", b"later"]
    assert read(again, at, second) == [*payloads, b"late", b"later"]
    assert read(again, second, second) == []


@pytest.mark.parametrize(("start", "expected"), [("earliest", 0), ("txid:30", 3), ("2/1/0", 4), ("latest", 6)])
def test_a_stream_starts_where_it_is_told(source: Source, namespace: LogNamespace, start: str, expected: int) -> None:
    payloads = fill_log(namespace, LOG, 6)
    reader = source(start=start)
    assert [payload for batch in batches(reader) for payload in batch] == payloads[expected:]


def test_a_limit_of_records_cuts_batches_and_shares_them_among_logs(source: Source, namespace: LogNamespace) -> None:
    namespace.create("flights/1")
    long, short = fill_log(namespace, LOG, 12), fill_log(namespace, "flights/1", 3)
    reader = source("flights/*", maxRecordsPerTrigger="5")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(5)
    found = batches(reader, limit)
    assert sorted(payload for batch in found for payload in batch) == sorted(long + short)
    assert all(len(batch) <= 5 for batch in found)
    assert len(found) == 3
    assert set(found[0]) & set(short)


def test_a_limit_of_bytes_cuts_batches_and_always_moves(source: Source, namespace: LogNamespace) -> None:
    payloads = fill_log(namespace, LOG, 6)
    assert batches(source(), source(maxBytesPerTrigger="1").getDefaultReadLimit()) == [
        [payload] for payload in payloads
    ]
    assert [len(batch) for batch in batches(source(), ReadMaxBytes(4000))] == [2, 2, 2]


def test_every_log_gets_its_share_of_a_limit() -> None:
    assert shares({"a": 90, "b": 10}, ReadMaxRows(12)) == [("a", 10, BYTES_UNLIMITED), ("b", 2, BYTES_UNLIMITED)]
    assert [log for log, _, _ in shares({"a": 1, "b": 5, "c": 3}, ReadMaxRows(2))] == ["b", "c"]
    assert sum(records for _, records, _ in shares({"a": 7, "b": 7, "c": 7}, ReadMaxRows(20))) == 20
    assert [(log, size) for log, _, size in shares({"a": 30, "b": 10}, ReadMaxBytes(400))] == [("a", 300), ("b", 100)]
    assert shares({}, ReadMaxRows(1)) == []


def test_new_logs_of_a_pattern_are_read_from_their_beginning(source: Source, namespace: LogNamespace) -> None:
    write(namespace, b"old")
    reader = source("flights/*", start="latest")
    at = reader.initialOffset()
    namespace.create("flights/1")
    assert reader.latestOffset(at, ALL) == at
    write(namespace, b"new", log="flights/1")
    write(namespace, b"more")
    end = after(reader, at, 2)
    assert sorted(read(reader, at, end)) == [b"more", b"new"]
    assert sorted(read(source("flights/*"), at, end)) == [b"more", b"new"]
    write(namespace, b"newer", log="flights/1")
    assert read(reader, end, after(reader, end, 1)) == [b"newer"]


def test_available_now_ends_where_the_logs_ended_when_it_began(source: Source, namespace: LogNamespace) -> None:
    payloads = fill_log(namespace, LOG, 7)
    reader = source()
    at = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    write(namespace, b"too late")
    namespace.create("flights/1")
    found = batches(reader, ReadMaxRows(3))
    assert [len(batch) for batch in found] == [3, 3, 1]
    assert [payload for batch in found for payload in batch] == payloads
    assert reader.reportLatestOffset()[LOG] != at[LOG]


def test_a_truncated_position_stops_the_stream_or_is_passed_over(source: Source, namespace: LogNamespace) -> None:
    payloads = fill_log(namespace, LOG, 6)
    strict = source()
    at = strict.initialOffset()
    end = strict.latestOffset(at, ALL)
    namespace.truncate(LOG, DLSN(2, 1, 0))
    said = refusal(lambda: strict.latestOffset(at, ALL))
    assert "the first record kept is" in said
    assert "failOnDataLoss=false" in said
    assert "new checkpoint" in said
    with pytest.raises(PositionTruncated, match="failOnDataLoss=false"):
        source().partitions(at, end)
    lenient = source(failOnDataLoss="false")
    assert read(lenient, at, end) == payloads[4:]
    now = lenient.latestOffset(at, ALL)
    assert read(source(failOnDataLoss="false"), at, now) == payloads[4:]
    assert lenient.latestOffset(now, ALL) == now


def test_a_log_that_was_created_again_is_noticed(source: Source, namespace: LogNamespace) -> None:
    fill_log(namespace, LOG, 2)
    strict, lenient = source(), source(failOnDataLoss="false")
    at = strict.latestOffset(strict.initialOffset(), ALL)
    assert lenient.latestOffset(at, ALL) == at
    namespace.delete(LOG)
    said = refusal(lambda: strict.latestOffset(at, ALL))
    assert said.startswith("LogNotFound: log 'flights/0' is gone")
    assert "failOnDataLoss=false" in said
    assert lenient.latestOffset(at, ALL) == at
    namespace.create(LOG)
    payloads = fill_log(namespace, LOG, 5)
    assert "deleted and created again since it was read" in refusal(lambda: strict.latestOffset(at, ALL))
    end = after(lenient, at, 5)
    assert read(lenient, at, end) == payloads
    assert read(source(failOnDataLoss="false"), at, end) == payloads


def test_a_stream_with_a_name_is_waited_for_by_truncation(source: Source, namespace: LogNamespace) -> None:
    fill_log(namespace, LOG, 9)
    reader = source(readerId="reports", maxRecordsPerTrigger="4")
    at = reader.initialOffset()
    assert namespace.registered_readers(LOG) == {"reports": DLSN(1, 0, 0)}
    end = reader.latestOffset(at, ReadMaxRows(4))
    with pytest.raises(ReaderBehind, match="reports"):
        namespace.truncate(LOG, DLSN(2, 1, 0))
    reader.commit(end)
    assert namespace.registered_readers(LOG) == {"reports": DLSN(2, 1, 0)}
    namespace.truncate(LOG, DLSN(2, 1, 0))
    assert len(read(reader, end, reader.latestOffset(end, ALL))) == 5
    source().initialOffset()
    assert list(namespace.registered_readers(LOG)) == ["reports"]


def test_a_sealed_log_is_read_to_its_end(source: Source, namespace: LogNamespace) -> None:
    with namespace.open_writer(LOG) as writer:
        writer.write(b"last").result(120)
        writer.mark_end_of_stream()
    assert batches(source()) == [[b"last"]]


def test_options_that_are_not_for_streams_are_refused(source: Source) -> None:
    with pytest.raises(ConfigInvalid, match=r"option 'end' .* is for spark\.read; leave it out"):
        source(end="latest")
    with pytest.raises(ConfigInvalid, match="exclude each other"):
        source(maxRecordsPerTrigger="1", maxBytesPerTrigger="1")
    with pytest.raises(SourceMissing, match="there are: flights/0"):
        source("nothing/*").initialOffset()


def test_spark_follows_a_pattern_across_restarts(
    log_session: SparkSession, namespace: LogNamespace, uri: str, tmp_path: Path
) -> None:
    def frame() -> DataFrame:
        options = {"namespace": uri, "log": "flights/*", "maxRecordsPerTrigger": "2"}
        return log_session.readStream.format("scribengin-log").options(**options).load().select("payload")

    seen: list[bytes] = []
    checkpoint = tmp_path / "checkpoint"
    for turn in range(2):
        write(namespace, b"%d-a" % turn, b"%d-b" % turn, b"%d-c" % turn)
        query = frame().writeStream.foreachBatch(
            lambda batch, _n: seen.extend(bytes(row[0]) for row in batch.collect())
        )
        run = query.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        assert run.awaitTermination(_LIMIT_S)
    assert seen == [b"0-a", b"0-b", b"0-c", b"1-a", b"1-b", b"1-c"]


def test_spark_reads_what_is_appended_while_it_runs(
    log_session: SparkSession, namespace: LogNamespace, uri: str, tmp_path: Path
) -> None:
    options = {"namespace": uri, "log": "flights/*"}
    frame = (
        log_session.readStream.format("scribengin-log").options(**options).load().selectExpr("log", "string(payload)")
    )
    writer = frame.writeStream.format("memory").queryName("followed")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(processingTime="100 milliseconds").start()

    def come(records: int) -> bool:
        if (ended := query.exception()) is not None:
            raise ended
        return log_session.table("followed").count() == records

    try:
        write(namespace, b"one")
        wait_until(lambda: come(1), _LIMIT_S, "the first record")
        namespace.create("flights/1")
        write(namespace, b"two", log="flights/1")
        wait_until(lambda: come(2), _LIMIT_S, "the record of the new log")
    finally:
        query.stop()
    assert sorted(tuple(row) for row in log_session.table("followed").collect()) == [(LOG, "one"), ("flights/1", "two")]
