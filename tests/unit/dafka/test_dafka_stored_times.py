"""Which stored record was the first at a time: in logs as a store writes them, and as it did before it knew times."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from scribengin.dafka.state import DafkaPartition
from scribengin.dafka.store.logs import StoredPartitions
from scribengin.dafka.store.times import find_time, keys_of
from scribengin.dafka.wire import KnownOfTime
from scribengin.log import LogNamespace
from scribengin.testing.log_samples import bound_namespace
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryRegistry
from scribengin.testing.memory.segments import MEMORY_STORE

FLIGHTS = DafkaPartition("flights", "BB" * 16)
BEGINS, WHERE = KnownOfTime.BEGINS, KnownOfTime.WHERE


@pytest.fixture
def logs(memory_registry: MemoryRegistry) -> Iterator[LogNamespace]:
    disk = MemoryDisk("times")
    with bound_namespace(memory_registry, disk.name, store=MEMORY_STORE) as namespace:
        yield namespace


def write(logs: LogNamespace, *appends: tuple[int, int | None]) -> StoredPartitions:
    """So many records with that time, or none, each at once and all in one segment."""
    stored = StoredPartitions(logs, "dafka", None, take_over=True, batches=True)
    writer, first = stored.open_writer(FLIGHTS)
    with writer:
        for records, at_ms in appends:
            txids = pa.array(range(first, first + records), pa.int64())
            payloads = pa.array([b"x"] * records, pa.binary())
            columns = [txids, keys_of(records, at_ms), payloads]
            writer.write_bulk(pa.RecordBatch.from_arrays(columns, ["txid", "key", "payload"])).result(60)
            first += records
    return stored


def found(stored: StoredPartitions, end: int, at_ms: int) -> tuple[KnownOfTime, int]:
    return tuple(find_time(stored, stored.name(FLIGHTS), end, at_ms))  # type: ignore[return-value]


def test_the_first_record_of_an_append_is_found_by_its_time_wherever_it_stands(logs: LogNamespace) -> None:
    sizes = [1, 7, 1, 1, 30, 2, 1, 64, 3]
    stored = write(logs, *((size, 1000 + 10 * n) for n, size in enumerate(sizes)))
    end, firsts = sum(sizes), [sum(sizes[:n]) for n in range(len(sizes))]
    for n, first in enumerate(firsts):
        assert found(stored, end, 1000 + 10 * n) == (WHERE, first)
        assert found(stored, end, 1000 + 10 * n - 9) == (WHERE, first)
    assert found(stored, end, 1000 + 10 * len(sizes)) == (WHERE, end)
    assert found(stored, end, 0) == (WHERE, 0)
    assert found(stored, end, 2**64 - 1) == (WHERE, end)


def test_records_that_came_within_the_same_millisecond_have_one_time(logs: LogNamespace) -> None:
    stored = write(logs, (5, 1000), (5, None), (5, 1010), (5, None))
    assert found(stored, 20, 1000) == (WHERE, 0)
    assert found(stored, 20, 1001) == (WHERE, 10)
    assert found(stored, 20, 1011) == (WHERE, 20)


def test_what_was_stored_without_times_is_given_too_early_rather_than_left_out(logs: LogNamespace) -> None:
    stored = write(logs, (50, None), (50, None))
    assert found(stored, 100, 1000) == (WHERE, 0)
    write(logs, (5, 1000), (5, 1010))  # another life of the store: another segment
    assert found(stored, 110, 1000) == (WHERE, 0)
    assert found(stored, 110, 1001) == (WHERE, 105)


def test_segments_say_what_was_completed_before(logs: LogNamespace) -> None:
    stored = write(logs, (50, None))
    [segment] = logs.segments(stored.name(FLIGHTS))
    assert segment.completed_ms is not None
    write(logs, (50, None))
    assert found(stored, 100, segment.completed_ms) == (WHERE, 0)
    later_ms = logs.segments(stored.name(FLIGHTS))[1].completed_ms
    assert later_ms is not None
    assert found(stored, 100, later_ms + 1) == (WHERE, 100)


def test_a_log_whose_beginning_has_gone_says_so(logs: LogNamespace) -> None:
    stored = write(logs, (10, 1000), (10, 1010), (10, 1020))
    name = stored.name(FLIGHTS)
    with logs.open_reader(name) as reader:
        at = reader.read(30)[15].dlsn
    logs.truncate(name, at)
    assert found(stored, 30, 1005) == (BEGINS, 15)
    assert found(stored, 30, 1015) == (BEGINS, 15)
    assert found(stored, 30, 1025) == (WHERE, 30)
    with logs.open_reader(name) as reader:
        last = reader.read(15)[-1].dlsn
    logs.truncate(name, last)
    assert found(stored, 30, 1025) == (BEGINS, 29)
