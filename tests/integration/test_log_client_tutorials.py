"""DistributedLog's tutorials, each as a small program over our clients.

Basic: ConsoleWriter, ConsoleProxyMultiWriter, AtomicWriter, TailReader, MultiReader, RecordGenerator, StreamRewinder.
Messaging: ConsoleProxyPartitionedMultiWriter, ConsoleProxyRRMultiWriter, ReaderWithOffsets, StreamTransformer. Kafka:
KafkaDistributedLogProducer. The consoles' input is a list of lines here.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from scribengin.errors import EndOfStream
from scribengin.log import PAYLOAD, LogNamespace
from scribengin.log.clients import (
    BalancedWriter,
    FileOffsetStore,
    LogProducer,
    MultiReader,
    PartitionedWriter,
    StoredReader,
    Transformer,
    int_partitioner,
    partition_logs,
    rewind,
    without_envelope,
)
from scribengin.testing.clocks import ManualClock
from scribengin.testing.log_samples import bound_namespace, payload_batch, payloads_left, payloads_of, payloads_read
from scribengin_registry.contract import Registry

LOG = "messages"
LOGS = partition_logs("streams", 3)
LINES = [f"line {n}" for n in range(20)]


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    return bound_namespace(registry, tmp_path / "store", LOG, *LOGS)


def test_basic_console_writer(namespace: LogNamespace) -> None:
    with namespace.open_writer(LOG) as writer:
        for line in LINES:
            assert writer.write(line.encode()).result(120).segment == 1
    assert payloads_read(namespace, LOG) == [line.encode() for line in LINES]


def test_basic_multi_writer_writes_each_line_to_some_log(namespace: LogNamespace) -> None:
    with BalancedWriter(namespace, LOGS) as writer:
        for line in LINES:
            assert writer.write(line.encode()).result(120).log in LOGS
    found = [payload for log in LOGS for payload in payloads_read(namespace, log)]
    assert sorted(found) == sorted(line.encode() for line in LINES)


def test_basic_atomic_writer_shows_a_set_of_records_at_once(namespace: LogNamespace) -> None:
    messages = [line.encode() for line in LINES]
    with namespace.open_reader(LOG) as reader, namespace.open_writer(LOG) as writer:
        placed = writer.write_atomic(payload_batch(messages)).result(120)
        assert placed.last == placed.first._replace(slot=len(messages) - 1)  # one entry
        batch = reader.read_batch(timeout_s=120)
        assert batch is not None
        assert payloads_of(batch) == messages


def test_basic_tail_reader_sees_what_comes_from_now_on(namespace: LogNamespace) -> None:
    with namespace.open_writer(LOG) as writer:
        writer.write(b"before").result(120)
        with namespace.open_reader(LOG, namespace.end_dlsn(LOG)) as reader:
            writer.write(b"after")
            assert [record.payload for record in reader.read(1, timeout_s=120)] == [b"after"]


def test_basic_multi_reader_reads_several_streams_as_one(namespace: LogNamespace) -> None:
    for part, log in enumerate(LOGS):
        with namespace.open_writer(log) as writer:
            for n in range(part, 30, 3):
                writer.write(b"%02d" % n, txid=n)
            writer.mark_end_of_stream()
    with MultiReader(namespace, LOGS) as reader:
        seen = [payload for batch in _until_the_end(reader) for payload in payloads_of(batch)]
    assert seen == [b"%02d" % n for n in range(30)]


def test_basic_record_generator_writes_at_a_rate(namespace: LogNamespace) -> None:
    """It writes what is due at each tick, and what it missed while it was late."""
    clock = ManualClock()

    def due(records_per_s: int) -> Iterator[int]:
        generated = 0
        while True:
            wanted = int(clock.monotonic_s() * records_per_s)
            yield wanted - generated
            generated = wanted

    with namespace.open_writer(LOG) as writer:
        generator = due(100)
        for tick_s in (0.0, 0.25, 0.5, 1.0):
            clock.advance_s(tick_s)
            batch = payload_batch([b"generated"] * next(generator))
            if batch.num_rows:
                writer.write_bulk(batch)
        writer.flush()
        assert namespace.count(LOG) == 175


def test_basic_stream_rewinder_reads_the_last_seconds_again(namespace: LogNamespace, registry: Registry) -> None:
    clock = ManualClock()
    dated = LogNamespace.open(namespace.path, registry=registry, clock=clock)
    with dated.open_writer(LOG) as writer:
        for wait_s in (50, 40, 9, 1):
            writer.write(b"%d s before the next" % wait_s).result(120)
            clock.advance_s(wait_s)
    with rewind(dated, LOG, 30, clock=clock) as reader:
        assert payloads_left(reader) == [b"9 s before the next", b"1 s before the next"]


def test_messaging_partitioned_writer_takes_key_and_value(namespace: LogNamespace) -> None:
    lines = ["0:zero", "1:one", "2:two", "3:three", "4:four"]
    with PartitionedWriter(namespace, LOGS, partitioner=int_partitioner) as writer:
        for line in lines:
            key, _colon, value = line.encode().partition(b":")
            writer.write(key, value)
    assert [payloads_read(namespace, log) for log in LOGS] == [[b"zero", b"three"], [b"one", b"four"], [b"two"]]


def test_messaging_round_robin_writer_takes_the_streams_in_turn(namespace: LogNamespace) -> None:
    with BalancedWriter(namespace, LOGS, policy="round_robin") as writer:
        for n in range(6):
            writer.write(b"%d" % n)
    assert [payloads_read(namespace, log) for log in LOGS] == [[b"0", b"3"], [b"1", b"4"], [b"2", b"5"]]


def test_messaging_reader_with_offsets_goes_on_after_a_crash(namespace: LogNamespace, tmp_path: Path) -> None:
    with namespace.open_writer(LOG) as writer:
        for line in LINES:
            writer.write(line.encode()).result(120)
    store, clock = FileOffsetStore(tmp_path / "offsets"), ManualClock()
    printed: list[bytes] = []
    reader = StoredReader(namespace, [LOG], "printer", store, commit_s=10, clock=clock)
    for _ in range(5):
        printed += _payloads(reader.read_batch())
        clock.advance_s(4)
    reader.abort()  # the program dies: the last commit was at the fourth call, when three had been printed
    with StoredReader(namespace, [LOG], "printer", store) as reader:
        while (batch := reader.read_batch()) is not None:
            printed += _payloads(batch)
    lines = [line.encode() for line in LINES]
    assert printed == lines[:5] + lines[3:]


def test_messaging_stream_transformer_replicates_a_stream(namespace: LogNamespace) -> None:
    def louder(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({PAYLOAD: pc.ascii_upper(batch.column(PAYLOAD).cast(pa.string())).cast(pa.binary())})

    with namespace.open_writer(LOG) as writer:
        for line in LINES:
            writer.write(line.encode()).result(120)
        writer.mark_end_of_stream()
    with Transformer(namespace, LOG, LOGS[0], louder, records_max=3) as transformer:
        transformer.run_once()  # and it stops
    with Transformer(namespace, LOG, LOGS[0], louder) as transformer:
        transformer.run(threading.Event())
    with namespace.open_reader(LOGS[0]) as reader:
        seen: list[bytes] = []
        while (batch := reader.read_batch()) is not None:
            seen += payloads_of(without_envelope(batch))
    assert seen == [line.upper().encode() for line in LINES]


def test_kafka_producer_sends_to_a_topic(namespace: LogNamespace) -> None:
    with LogProducer(namespace) as producer:
        sent = [producer.send("streams", line.encode(), key=line.encode()) for line in LINES]
    assert {future.result().partition for future in sent} == {0, 1, 2}
    found = [payload for log in LOGS for payload in payloads_read(namespace, log)]
    assert sorted(found) == sorted(line.encode() for line in LINES)


def _payloads(batch: pa.RecordBatch | None) -> list[bytes]:
    return [] if batch is None else payloads_of(batch)


def _until_the_end(reader: MultiReader) -> Iterator[pa.RecordBatch]:
    try:
        while (batch := reader.read_batch(timeout_s=120)) is not None:
            yield batch
    except EndOfStream:
        return
