"""Several logs read as one, in the order of transaction ids."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from itertools import islice, pairwise
from pathlib import Path

import pyarrow as pa
import pytest

import scribengin.log.clients.multi as multi
from scribengin.errors import ConfigInvalid, DamagedEntry, EndOfStream, LogClosed, LogNotFound
from scribengin.log import DLSN, LogConfig, LogNamespace, LogWriter, Start, TransactionId
from scribengin.log.clients import MULTI_SCHEMA, MultiReader, partition_logs
from scribengin.testing.clocks import ManualClock
from scribengin.testing.log_samples import bound_namespace, damage_segment, payload_batch
from scribengin_registry.contract import Registry

LOGS = partition_logs("clicks", 3)
Row = tuple[int, str, bytes]


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    return bound_namespace(registry, tmp_path / "store", *LOGS, config=LogConfig(segment_bytes_max=4096))


def write(writer: LogWriter, txids: Sequence[int]) -> None:
    """A batch with these transaction ids; each payload is its own id."""
    batch = payload_batch([b"%d" % txid for txid in txids])
    writer.write_bulk(batch.append_column("txid", pa.array(txids, pa.int64()))).result(120)


def fill(namespace: LogNamespace, log: str, *batches: Sequence[int], seal: bool = True) -> None:
    with namespace.open_writer(log) as writer:
        for txids in batches:
            write(writer, txids)
        if seal:
            writer.mark_end_of_stream()


def rows_of(batch: pa.RecordBatch | None) -> list[Row]:
    if batch is None:
        return []
    assert batch.schema == MULTI_SCHEMA
    columns = (batch.column(name).to_pylist() for name in ("txid", "log", "payload"))
    return list(zip(*columns, strict=True))


def all_rows(reader: MultiReader, records_max: int = 65_536) -> list[Row]:
    """Everything up to the end of all logs."""
    rows: list[Row] = []
    while True:
        try:
            batch = reader.read_batch(records_max, 10)
        except EndOfStream:
            return rows
        assert batch is not None
        assert batch.num_rows <= records_max
        rows += rows_of(batch)


@pytest.mark.parametrize("merge_bytes_max", [0, 1 << 20], ids=["in runs", "merged"])
@pytest.mark.parametrize("records_max", [1, 7, 65_536])
def test_records_come_in_the_order_of_their_ids_and_equal_ones_in_that_of_the_logs(
    namespace: LogNamespace, monkeypatch: pytest.MonkeyPatch, merge_bytes_max: int, records_max: int
) -> None:
    monkeypatch.setattr(multi, "_MERGE_BYTES_MAX", merge_bytes_max)
    rng = random.Random(4)
    wanted = []
    for place, log in enumerate(LOGS):
        txids = sorted(rng.choices(range(60), k=80))
        cuts = [0, *sorted(rng.sample(range(1, 80), 9)), 80]
        fill(namespace, log, *(txids[start:end] for start, end in pairwise(cuts)))
        wanted += [(txid, place) for txid in txids]
    with MultiReader(namespace, LOGS, wait_s=None) as reader:
        rows = all_rows(reader, records_max)
        with pytest.raises(EndOfStream):  # every time
            reader.read_batch()
    assert [(txid, LOGS.index(log)) for txid, log, _ in rows] == sorted(wanted)
    assert all(payload == b"%d" % txid for txid, _log, payload in rows)


def test_a_reader_that_starts_at_the_positions_of_another_goes_on_where_that_stood(namespace: LogNamespace) -> None:
    fill(namespace, LOGS[0], [1, 4, 7], [10])
    fill(namespace, LOGS[1], [2, 5, 8, 11, 14])
    fill(namespace, LOGS[2], [3], [6, 9])
    with MultiReader(namespace, LOGS, wait_s=None) as reader:
        whole = all_rows(reader)
    positions: dict[str, DLSN] = {}
    rows: list[Row] = []
    while len(rows) < len(whole):
        with MultiReader(namespace, LOGS, start=positions, wait_s=None) as reader:
            rows += rows_of(reader.read_batch(1, 10))
            positions = reader.positions
    assert rows == whole
    with MultiReader(namespace, LOGS, start=positions) as reader, pytest.raises(EndOfStream):
        reader.read_batch()
    start: dict[str, Start] = {LOGS[0]: TransactionId(7), LOGS[1]: DLSN(1, 0, 3)}
    with MultiReader(namespace, LOGS, start=start, wait_s=None) as reader:
        assert [txid for txid, _, _ in all_rows(reader)] == [3, 6, 7, 9, 10, 11, 14]


def test_a_log_that_may_still_bring_what_comes_first_is_waited_for(namespace: LogNamespace) -> None:
    fill(namespace, LOGS[0], [1, 2, 5], seal=False)
    clock = ManualClock()
    with namespace.open_writer(LOGS[1]) as writer, MultiReader(namespace, LOGS[:2], wait_s=10, clock=clock) as reader:
        assert reader.read_batch() is None
        write(writer, [2, 4])
        assert [txid for txid, _, _ in rows_of(reader.read_batch())] == [1, 2, 2, 4]
        assert reader.read_batch() is None  # 5 is there, but the other log may have a 4 yet
        clock.advance_s(10)
        assert [txid for txid, _, _ in rows_of(reader.read_batch())] == [5]
        write(writer, [4])  # late, and not lost; now the first log is waited for
        assert reader.read_batch() is None
        clock.advance_s(10)
        assert [txid for txid, _, _ in rows_of(reader.read_batch())] == [4]
        writer.mark_end_of_stream()


def test_a_log_found_idle_once_does_not_hold_up_every_batch(namespace: LogNamespace) -> None:
    clock = ManualClock()
    with namespace.open_writer(LOGS[0]) as writer, MultiReader(namespace, LOGS[:2], wait_s=5, clock=clock) as reader:
        assert reader.read_batch() is None
        clock.advance_s(5)
        for txid in range(5):
            write(writer, [txid])
            assert [row[0] for row in rows_of(reader.read_batch())] == [txid]


def test_sealed_logs_drop_out_and_the_rest_goes_on_at_once(namespace: LogNamespace) -> None:
    fill(namespace, LOGS[0], [1])
    fill(namespace, LOGS[1])
    with namespace.open_writer(LOGS[2]) as writer, MultiReader(namespace, LOGS, wait_s=None) as reader:
        write(writer, [5, 6])
        assert [row[0] for row in rows_of(reader.read_batch(timeout_s=120))] == [1]
        assert [row[0] for row in rows_of(reader.read_batch(timeout_s=120))] == [5, 6]
        assert reader.read_batch() is None
        writer.mark_end_of_stream()
        with pytest.raises(EndOfStream):
            reader.read_batch()


def test_a_log_keeps_its_own_order_where_its_ids_decrease(namespace: LogNamespace) -> None:
    namespace.create("unchecked", LogConfig(check_txids=False))
    fill(namespace, "unchecked", [1, 9, 3], [4, 20])
    fill(namespace, LOGS[0], [2, 5, 10])
    with MultiReader(namespace, [LOGS[0], "unchecked"], wait_s=None) as reader:
        assert [txid for txid, _, _ in all_rows(reader)] == [1, 2, 5, 9, 3, 4, 10, 20]


def test_two_writers_at_work_are_read_in_order_while_they_write(namespace: LogNamespace) -> None:
    numbers = iter(range(2000))
    turn = threading.Lock()

    def work(log: str) -> None:
        with namespace.open_writer(log) as writer:
            while True:
                with turn:  # so that the ids grow over both logs, as times do
                    txids = list(islice(numbers, 10))
                    futures = [writer.write(b"%d" % txid, txid=txid) for txid in txids]
                if not futures:
                    break
            writer.mark_end_of_stream()

    threads = [threading.Thread(target=work, args=(log,)) for log in LOGS[:2]]
    with MultiReader(namespace, LOGS[:2], wait_s=None) as reader:
        for thread in threads:
            thread.start()
        rows = all_rows(reader)
    for thread in threads:
        thread.join(120)
    seen = [txid for txid, _, _ in rows]
    assert seen == list(range(2000))


def test_damage_in_one_log_is_met_at_its_place_and_every_time(namespace: LogNamespace) -> None:
    fill(namespace, LOGS[0], [1], [3], [5])
    fill(namespace, LOGS[1], [2], [4], [6])
    data = namespace.segments(LOGS[1])[0]
    damage_segment(namespace, LOGS[1], 1, data.bytes // 2)  # in the second of its three entries
    with MultiReader(namespace, LOGS[:2], wait_s=None) as reader:
        assert rows_of(reader.read_batch()) == [(1, LOGS[0], b"1")]
        assert rows_of(reader.read_batch()) == [(2, LOGS[1], b"2")]
        for _ in range(2):
            with pytest.raises(DamagedEntry):
                reader.read_batch()
        assert reader.positions == {LOGS[0]: DLSN(1, 1, 0), LOGS[1]: DLSN(1, 1, 0)}
    with MultiReader(namespace, LOGS[:2], wait_s=None, skip_damaged=True) as reader:
        assert [txid for txid, _, _ in all_rows(reader)] == [1, 2, 3, 5, 6]


def test_closing_ends_a_read_that_waits_in_another_thread(namespace: LogNamespace) -> None:
    reader = MultiReader(namespace, LOGS)
    errors: list[BaseException] = []
    started = threading.Event()

    def read() -> None:
        started.set()
        try:
            reader.read_batch(timeout_s=60)
        except LogClosed as error:
            errors.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    assert started.wait(120)
    reader.close()
    thread.join(120)
    assert not thread.is_alive()
    assert len(errors) == 1


def test_what_cannot_be_opened_is_refused_and_nothing_stays_open(namespace: LogNamespace) -> None:
    with pytest.raises(LogNotFound):
        MultiReader(namespace, [*LOGS, "absent"])
    with pytest.raises(ConfigInvalid):
        MultiReader(namespace, [])
    reader = MultiReader(namespace, LOGS)
    reader.close()
    reader.close()
    with pytest.raises(LogClosed):
        reader.read_batch()
