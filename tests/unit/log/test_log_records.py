"""What callers hand to a writer, and what becomes of it: checked as a whole, before anything of it is written."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from scribengin.errors import LogError, RecordTooLarge, TransactionIdOutOfOrder
from scribengin.log import LogConfig
from scribengin.log.format.entry import BODY_SCHEMA
from scribengin.log.format.records import Record, body_of_batch, check_record, encoded_entries

NOW_MS = 5000


def body(columns: dict[str, Any], *, last_txid: int = 10, config: LogConfig | None = None) -> pa.RecordBatch:
    batch = pa.RecordBatch.from_pydict(columns)
    return body_of_batch("a-log", batch, config or LogConfig(), last_txid=last_txid, now_ms=lambda: NOW_MS)


def txids(columns: dict[str, Any], **options: Any) -> list[int]:
    return list(body(columns, **options).column("txid").to_pylist())


def test_a_payload_is_enough() -> None:
    made = body({"payload": [b"x", b"y"]})
    assert made.schema == BODY_SCHEMA
    assert made.to_pydict() == {
        "txid": [NOW_MS, NOW_MS],
        "type": [0, 0],
        "channel": [None, None],
        "key": [None, None],
        "payload": [b"x", b"y"],
    }


def test_columns_come_in_any_order_and_others_are_ignored() -> None:
    made = body({"n": [1], "payload": ["text"], "channel": ["c"], "key": ["k"], "txid": pa.array([11], pa.int32())})
    assert made.to_pydict() == {"txid": [11], "type": [0], "channel": ["c"], "key": [b"k"], "payload": [b"text"]}


@pytest.mark.parametrize(
    "columns",
    [{"key": [b"k"]}, {"payload": [b"x", None]}, {"payload": [1]}, {"payload": [b"x"], "txid": ["no number"]}],
)
def test_what_is_no_record_is_refused(columns: dict[str, Any]) -> None:
    with pytest.raises(LogError, match="log 'a-log'"):
        body(columns)


def test_a_missing_transaction_id_is_the_time_but_never_less_than_the_last() -> None:
    assert txids({"payload": [b"x"]}) == [NOW_MS]
    assert txids({"payload": [b"x"]}, last_txid=NOW_MS + 1) == [NOW_MS + 1]
    assert txids({"payload": [b"x"], "txid": pa.nulls(1, pa.int64())}) == [NOW_MS]


def test_a_record_without_transaction_id_among_others_gets_its_neighbours() -> None:
    given = pa.array([None, 11, None, 12], pa.int64())
    assert txids({"payload": [b""] * 4, "txid": given}) == [11, 11, 11, 12]


@pytest.mark.parametrize("given", [[9], [-1], [11, 10], [11, 12, 11], [2**63 - 1]])
def test_transaction_ids_never_decrease(given: list[int]) -> None:
    with pytest.raises(TransactionIdOutOfOrder, match="log 'a-log'"):
        txids({"payload": [b""] * len(given), "txid": given})


@pytest.mark.parametrize("given", [[10], [11, 11], [2**63 - 2]])
def test_equal_and_far_ids_are_fine(given: list[int]) -> None:
    assert txids({"payload": [b""] * len(given), "txid": given}) == given


def test_unchecked_logs_take_any_ids() -> None:
    assert txids({"payload": [b""] * 2, "txid": [3, 2]}, config=LogConfig(check_txids=False)) == [3, 2]


@pytest.mark.parametrize("name", ["payload", "key"])
def test_a_record_that_is_too_large_is_refused(name: str) -> None:
    config = LogConfig(record_bytes_max=100)
    columns = {"payload": [b"x"], "key": [b"k"]}
    body(columns | {name: [b"x" * 100]}, config=config)
    with pytest.raises(RecordTooLarge, match=f"{name} of 101 bytes"):
        body(columns | {name: [b"x" * 101]}, config=config)


@pytest.mark.parametrize(
    "wrong",
    [{"payload": "text"}, {"payload": None}, {"key": "text"}, {"channel": b"c"}, {"channel": "\ud800"}, {"txid": "1"}],
)
def test_a_single_record_of_wrong_types_is_refused_before_it_meets_others(wrong: dict[str, Any]) -> None:
    fields: dict[str, Any] = {"txid": 10, "channel": "c", "key": b"k", "payload": b"x"}
    check_record("a-log", Record(**fields), LogConfig(), last_txid=10)
    with pytest.raises(LogError, match="log 'a-log'"):
        check_record("a-log", Record(**fields | wrong), LogConfig(), last_txid=10)


def test_unchecked_ids_still_have_to_be_numbers_of_64_bits() -> None:
    config = LogConfig(check_txids=False)
    check_record("a-log", Record(-5, None, None, b""), config, last_txid=10)
    with pytest.raises(TransactionIdOutOfOrder):
        check_record("a-log", Record(2**63, None, None, b""), config, last_txid=10)


def test_a_batch_may_be_larger_than_a_record() -> None:
    assert body({"payload": [b"x" * 90] * 10}, config=LogConfig(record_bytes_max=100)).num_rows == 10


def test_batches_are_cut_into_entries_of_about_the_configured_size() -> None:
    config = LogConfig(entry_bytes_max=2000)
    sizes = [1, 3000, 500, 500, 500, 500, 1, 1, 1900, 5000]
    made = body({"payload": [b"x" * size for size in sizes]}, config=config)
    entries = encoded_entries(made, config)
    assert [entry.records for entry in entries] == [1, 1, 3, 3, 1, 1]
    assert sum(entry.records for entry in entries) == len(sizes)


def test_a_slice_of_a_larger_batch_is_cut_like_a_batch() -> None:
    config = LogConfig(entry_bytes_max=2000)
    made = body({"payload": [b"y" * 700] * 20}, config=config)
    assert [entry.records for entry in encoded_entries(made.slice(3, 6), config)] == [2, 2, 2]
