"""Partitioners: keys to streams, whole columns at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scribengin.errors import ConfigInvalid, LogError
from scribengin.log.clients.partitioners import (
    check_logs,
    hash_partitioner,
    int_partitioner,
    murmur2,
    partition_logs,
    split_batch,
    split_rows,
)

# The vectors that Kafka's own tests of its hash use (its UtilsTest.testMurmur2), as signed numbers.
KAFKAS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def keys_of(*keys: bytes | None) -> pa.Array:
    return pa.array(keys, pa.binary())


def signed(keys: pa.Array) -> list[int]:
    return [int(number) for number in murmur2(keys).view(np.int32)]


@pytest.mark.parametrize("times", [1, 10], ids=["few", "many"])
def test_the_hash_is_that_of_kafkas_clients(times: int) -> None:
    assert signed(keys_of(*list(KAFKAS) * times)) == list(KAFKAS.values()) * times


@given(st.lists(st.binary(max_size=300), min_size=17, max_size=60), st.integers(0, 16))
def test_a_column_hashes_as_its_keys_one_by_one_wherever_it_was_cut_from(keys: list[bytes], start: int) -> None:
    column = keys_of(*keys).slice(start)
    assert signed(column) == [signed(keys_of(key))[0] for key in keys[start:]]


def test_a_key_has_one_stream_and_many_keys_use_them_all_alike() -> None:
    keys = keys_of(*(b"flight-%d" % n for n in range(10_000)))
    streams = hash_partitioner(keys, 8)
    assert streams.type == pa.int32()
    assert streams == hash_partitioner(keys, 8)
    assert hash_partitioner(keys.slice(5000, 3), 8) == streams.slice(5000, 3)
    counts = np.bincount(streams.to_numpy(), minlength=8)
    assert counts.min() > 1000
    assert hash_partitioner(keys, 1).to_pylist() == [0] * 10_000


def test_numbers_go_to_the_stream_of_their_remainder() -> None:
    assert int_partitioner(keys_of(b"0", b"7", b"8", b"-1"), 4).to_pylist() == [0, 3, 0, 3]
    with pytest.raises(LogError, match="no whole number"):
        int_partitioner(keys_of(b"7", b"seven"), 4)


def test_rows_without_a_key_are_dealt_out_in_turn() -> None:
    chosen, following = split_rows(keys_of(None, b"5", None, None), 3, int_partitioner, 2)
    assert (chosen.tolist(), following) == ([2, 2, 0, 1], 2)
    chosen, following = split_rows(keys_of(None, None), 3, int_partitioner, following)
    assert (chosen.tolist(), following) == ([2, 0], 1)


@pytest.mark.parametrize("wrong", [[0], [0, 3], [0, -1], [0, None], ["a", "b"]])
def test_a_partitioner_that_returns_something_else_is_refused(wrong: list[object]) -> None:
    with pytest.raises(LogError, match="must return 2 whole numbers from 0 to 2"):
        split_rows(keys_of(b"a", b"b"), 3, lambda _keys, _streams: pa.array(wrong), 0)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=50))
def test_a_batch_is_split_without_losing_a_row_or_its_order(chosen: list[int]) -> None:
    batch = pa.record_batch({"payload": pa.array([b"%d" % n for n in range(len(chosen))])})
    parts = split_batch(batch, np.array(chosen, np.int32))
    for stream, part in parts.items():
        assert part.column(0).to_pylist() == [b"%d" % n for n, of in enumerate(chosen) if of == stream]
    assert sum(part.num_rows for part in parts.values()) == len(chosen)


def test_logs_are_named_once_and_partitions_are_numbered() -> None:
    assert partition_logs("clicks", 3) == ["clicks/0", "clicks/1", "clicks/2"]
    assert check_logs(("a", "b")) == ["a", "b"]
    for logs in ([], ["a", "a"]):
        with pytest.raises(ConfigInvalid, match="at least one log, and each only once"):
            check_logs(logs)
