"""From one log to another, exactly once, in one process; `tests/crash` kills real ones."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from scribengin.errors import (
    EndOfStream,
    Fenced,
    InconsistentLog,
    LogError,
    OverCapacity,
    RecordTooLarge,
    ScribenginError,
)
from scribengin.log import DLSN, PAYLOAD, LogConfig, LogNamespace
from scribengin.log.clients import Transformer, source_position, without_envelope
from scribengin.log.clients.transformer import ENVELOPE_BYTES
from scribengin.testing.failpoints import at_failpoint, record_stops
from scribengin.testing.log_samples import bound_namespace, fill_log, payload_batch, payloads_of, payloads_read
from scribengin_registry.contract import Registry
from scribengin_registry.opening import connect

SOURCE, TARGET = "numbers", "doubled"


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    return bound_namespace(registry, tmp_path / "store", SOURCE, TARGET, config=LogConfig(segment_bytes_max=4096))


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Each record twice, under keys that say which of the two it is."""
    rows = pa.array([row for row in range(batch.num_rows) for _ in range(2)])
    return pa.record_batch({PAYLOAD: batch.column(PAYLOAD).take(rows), "key": pa.array([b"a", b"b"] * batch.num_rows)})


def odd_only(batch: pa.RecordBatch) -> pa.RecordBatch:
    digits = pc.cast(pc.cast(pc.binary_slice(batch.column(PAYLOAD), 0, 6), pa.string()), pa.int64())
    return batch.select([PAYLOAD]).filter(pc.equal(pc.bit_wise_and(digits, 1), 1))


def as_they_are(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select([PAYLOAD])


def target_payloads(namespace: LogNamespace) -> list[bytes]:
    payloads = []
    with namespace.open_reader(TARGET) as reader:
        while (batch := reader.read_batch()) is not None:
            payloads += payloads_of(without_envelope(batch))
    return payloads


def run_to_the_end(transformer: Transformer) -> None:
    while transformer.run_once():
        pass


def test_every_target_record_says_how_far_its_source_was_read(namespace: LogNamespace) -> None:
    written = fill_log(namespace, SOURCE, 5, rows=2)
    with Transformer(namespace, SOURCE, TARGET, doubled, records_max=2) as transformer:
        assert [transformer.run_once() for _ in range(6)] == [2, 2, 2, 2, 2, 0]
        assert transformer.position == namespace.end_dlsn(SOURCE)
    assert target_payloads(namespace) == [payload for payload in written for _ in range(2)]
    with namespace.open_reader(TARGET) as reader, namespace.open_reader(SOURCE) as source:
        while (batch := reader.read_batch()) is not None:
            assert batch.num_rows == 4  # what one batch became is one entry
            assert batch.column("key").to_pylist() == [b"a", b"b"] * 2
            assert source.read_batch(2) is not None
            assert {source_position(payload) for payload in payloads_of(batch)} == {source.position}
        assert batch is None
    last = namespace.last_record(TARGET)
    assert last is not None
    assert len(last.payload) == ENVELOPE_BYTES + len(written[-1])


def test_the_next_one_goes_on_where_the_target_says(namespace: LogNamespace) -> None:
    written = fill_log(namespace, SOURCE, 7)
    for _ in range(8):
        with Transformer(namespace, SOURCE, TARGET, as_they_are, records_max=1) as transformer:
            transformer.run_once()
    assert target_payloads(namespace) == written


def test_whatever_stops_it_and_however_often_each_record_is_transformed_once(
    namespace: LogNamespace, registry: Registry, tmp_path: Path
) -> None:
    """Each external effect of an undisturbed run is made to fail, before and after it took place."""
    written = fill_log(namespace, SOURCE, 8)
    with record_stops() as passed, Transformer(namespace, SOURCE, TARGET, as_they_are, records_max=1) as transformer:
        run_to_the_end(transformer)
    stops = [(stop, nth) for stop, count in Counter(passed).items() for nth in sorted({1, (count + 1) // 2, count})]
    assert len(stops) >= 20
    wrong = []
    for stop, nth in stops:
        namespace.delete(TARGET)
        namespace.create(TARGET)
        with at_failpoint(stop, _stop_working, occurrence=nth):
            _run_and_crash(namespace)
        with Transformer(namespace, SOURCE, TARGET, as_they_are, records_max=3, steal=True) as transformer:
            run_to_the_end(transformer)
        if target_payloads(namespace) != written:
            wrong.append((stop, nth))
    assert wrong == []


def test_a_stale_transformer_cannot_write_after_another_took_over(namespace: LogNamespace, registry_hosts: str) -> None:
    written = fill_log(namespace, SOURCE, 6)
    stale = Transformer(namespace, SOURCE, TARGET, as_they_are, records_max=1)
    stale.run_once()
    stale.flush()
    stale.run_once()  # under way when the other takes over
    with connect(registry_hosts, session_timeout_s=100) as session:
        elsewhere = LogNamespace.open(namespace.path, registry=session)
        with Transformer(elsewhere, SOURCE, TARGET, as_they_are, records_max=1, steal=True) as owner:
            owner.run_once()
            with pytest.raises(Fenced):
                _run_until_it_fails(stale)
            run_to_the_end(owner)
    stale.abort()
    assert target_payloads(namespace) == written


def test_records_that_become_nothing_are_read_again_and_nothing_comes_of_them(namespace: LogNamespace) -> None:
    written = fill_log(namespace, SOURCE, 7)
    for _ in range(2):
        with Transformer(namespace, SOURCE, TARGET, odd_only, records_max=1) as transformer:
            run_to_the_end(transformer)
    assert target_payloads(namespace) == written[1::2]
    with Transformer(namespace, SOURCE, TARGET, odd_only, records_max=1) as transformer:
        assert transformer.run_once() == 1  # the last one, which left no trace


def test_what_is_too_much_for_one_entry_is_made_of_fewer_records(registry: Registry, tmp_path: Path) -> None:
    config = LogConfig(entry_bytes_max=4096)
    namespace = bound_namespace(registry, tmp_path / "store", SOURCE, TARGET, config=config)
    with namespace.open_writer(SOURCE) as writer:
        written = [b"%02d" % n + bytes(100) for n in range(30)]
        writer.write_bulk(payload_batch(written)).result(120)
    for _ in range(2):
        with Transformer(namespace, SOURCE, TARGET, doubled) as transformer:
            run_to_the_end(transformer)
    assert target_payloads(namespace) == [payload for payload in written for _ in range(2)]
    with namespace.open_reader(TARGET) as reader:
        assert source_position(reader.read(1)[0].payload).slot > 0  # in the middle of the source's entry
    namespace.create("grown", config)
    with Transformer(namespace, SOURCE, "grown", lambda batch: payload_batch([bytes(5000)]), records_max=1) as large:
        assert large.run_once() == 1  # a single record may be larger than an entry
    with pytest.raises(RecordTooLarge):
        _run_and_close(Transformer(namespace, SOURCE, "grown", lambda batch: payload_batch([bytes(3000)] * 2)))


def test_a_target_that_was_not_made_from_this_source_is_refused(namespace: LogNamespace) -> None:
    fill_log(namespace, SOURCE, 3)
    with Transformer(namespace, SOURCE, TARGET, as_they_are) as transformer:
        run_to_the_end(transformer)
    namespace.create("others")
    fill_log(namespace, "others", 3)
    with pytest.raises(LogError, match="was not made from log 'others'"):
        Transformer(namespace, "others", TARGET, as_they_are)
    with pytest.raises(LogError, match="was not made from log 'numbers'"):
        Transformer(namespace, SOURCE, "others", as_they_are)
    namespace.delete(SOURCE)
    namespace.create(SOURCE)
    with pytest.raises(LogError, match="was created again"):
        Transformer(namespace, SOURCE, TARGET, as_they_are)
    assert namespace.info(TARGET).writer is None


def test_a_target_that_lost_its_position_is_refused(namespace: LogNamespace) -> None:
    fill_log(namespace, SOURCE, 3)
    with Transformer(namespace, SOURCE, TARGET, as_they_are) as transformer:
        run_to_the_end(transformer)
    namespace.truncate(TARGET, namespace.end_dlsn(TARGET))
    with pytest.raises(InconsistentLog, match="truncated to nothing"):
        Transformer(namespace, SOURCE, TARGET, as_they_are)


def test_the_first_one_begins_where_it_is_told_and_later_ones_where_they_were(namespace: LogNamespace) -> None:
    written = fill_log(namespace, SOURCE, 6)
    with Transformer(namespace, SOURCE, TARGET, as_they_are, start=DLSN(1, 2, 0), records_max=1) as transformer:
        transformer.run_once()
    with Transformer(namespace, SOURCE, TARGET, as_they_are, start=DLSN(1, 2, 0)) as transformer:
        run_to_the_end(transformer)
    assert target_payloads(namespace) == written[2:]


def test_it_follows_its_source_until_that_is_sealed(namespace: LogNamespace) -> None:
    transformer = Transformer(namespace, SOURCE, TARGET, as_they_are)
    thread = threading.Thread(target=transformer.run, args=(threading.Event(),))
    thread.start()
    with namespace.open_writer(SOURCE) as writer:
        for n in range(50):
            writer.write(b"%d" % n)
        writer.mark_end_of_stream()
    thread.join(120)
    assert not thread.is_alive()
    with pytest.raises(EndOfStream):
        transformer.run_once()
    transformer.mark_end_of_stream()
    with namespace.open_reader(TARGET) as reader:
        assert len(reader.read(100)) == 50
        with pytest.raises(EndOfStream):
            reader.read(1)
    with pytest.raises(EndOfStream):
        Transformer(namespace, SOURCE, TARGET, as_they_are)


def test_a_batch_that_failed_is_not_passed_over(registry: Registry, tmp_path: Path) -> None:
    namespace = bound_namespace(registry, tmp_path / "store", SOURCE)
    written = fill_log(namespace, SOURCE, 4)
    namespace.create(TARGET, LogConfig(outstanding_writes_max=0, outstanding_dark_mode=False))
    with Transformer(namespace, SOURCE, TARGET, as_they_are, records_max=1) as transformer:
        for _ in range(2):
            with pytest.raises(OverCapacity):
                transformer.run_once()
    namespace.configure(TARGET, LogConfig())
    with Transformer(namespace, SOURCE, TARGET, as_they_are) as transformer:
        run_to_the_end(transformer)
    assert target_payloads(namespace) == written


def test_a_transformation_that_raises_leaves_nothing_of_its_batch(namespace: LogNamespace) -> None:
    written = fill_log(namespace, SOURCE, 4)
    fails = iter([False, False, True])

    def failing(batch: pa.RecordBatch) -> pa.RecordBatch:
        if next(fails):
            raise ZeroDivisionError
        return as_they_are(batch)

    with pytest.raises(ZeroDivisionError):
        _run_and_close(Transformer(namespace, SOURCE, TARGET, failing, records_max=1))
    with pytest.raises(LogError, match="without a column 'payload'"):
        _run_and_close(Transformer(namespace, SOURCE, TARGET, lambda batch: batch.select(["txid"])))
    with Transformer(namespace, SOURCE, TARGET, as_they_are) as transformer:
        run_to_the_end(transformer)
    assert target_payloads(namespace) == written
    assert payloads_read(namespace, SOURCE) == written


class _Stopped(ScribenginError):
    """Stands for whatever ended the process there."""


def _stop_working(_stop: str) -> None:
    raise _Stopped


def _run_and_crash(namespace: LogNamespace) -> None:
    """Run until the failpoint; then leave everything as it is, as a process does that dies."""
    try:
        transformer = Transformer(namespace, SOURCE, TARGET, as_they_are, records_max=1)
        run_to_the_end(transformer)
        transformer.close()
    except _Stopped:
        return


def _run_until_it_fails(transformer: Transformer) -> None:
    run_to_the_end(transformer)
    transformer.flush()


def _run_and_close(transformer: Transformer) -> None:
    with transformer:
        run_to_the_end(transformer)
