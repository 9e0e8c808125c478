"""A batch of which each row counts by itself: which rows are refused and why, and where the others stand."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from scribengin.errors import LogError, LogWriteFailed, RecordTooLarge, TransactionIdOutOfOrder
from scribengin.log import DLSN, LogConfig
from scribengin.log.write.results import BulkResult, PartialAck, RefusedRow, SlotRange, refused_alone, split_refused

SMALL = LogConfig(record_bytes_max=10)


def split(
    columns: dict[str, Any], config: LogConfig = SMALL, last_txid: int = 10
) -> tuple[list[bytes], dict[int, str]]:
    """The payloads that are taken, and the kind of error of each row that is not."""
    batch = pa.RecordBatch.from_pydict(columns)
    taken, refused = split_refused("a-log", batch, config, last_txid=last_txid)
    return taken.column("payload").to_pylist(), {row.row: type(row.error).__name__ for row in refused}


def test_each_row_is_refused_for_itself_and_the_others_are_taken() -> None:
    columns = {
        "payload": [b"0", None, b"x" * 11, b"3", b"4", b"5"],
        "key": [None, b"k", None, b"k" * 11, b"k" * 10, b""],
        "txid": pa.array([11, 12, 13, 14, 9, 15], pa.int64()),
    }
    assert split(columns) == (
        [b"0", b"5"],
        {1: "LogError", 2: "RecordTooLarge", 3: "RecordTooLarge", 4: "TransactionIdOutOfOrder"},
    )


def test_nothing_is_refused_of_a_batch_that_is_right() -> None:
    assert split({"payload": [b"x" * 10, b""]}) == ([b"x" * 10, b""], {})


def test_a_refused_row_does_not_push_the_transaction_ids_of_those_behind_it() -> None:
    columns = {
        "payload": [b"0", b"x" * 11, b"2", b"3", b"4"],
        "txid": pa.array([11, 99, 12, 2**63 - 1, 12], pa.int64()),
    }
    assert split(columns) == ([b"0", b"2", b"4"], {1: "RecordTooLarge", 3: "TransactionIdOutOfOrder"})


def test_a_row_without_transaction_id_is_never_out_of_order() -> None:
    columns = {"payload": [b"0", b"1", b"2", b"3"], "txid": pa.array([None, 20, None, 19], pa.int64())}
    assert split(columns) == ([b"0", b"1", b"2"], {3: "TransactionIdOutOfOrder"})


def test_a_log_that_does_not_check_takes_every_order() -> None:
    columns = {"payload": [b"0", b"1"], "txid": pa.array([5, 4], pa.int64())}
    assert split(columns, LogConfig(check_txids=False)) == ([b"0", b"1"], {})


def test_a_channel_that_is_too_large_is_refused_as_a_key_is() -> None:
    columns = {"payload": [b"0", b"1"], "channel": ["c" * 11, "c" * 10]}
    assert split(columns) == ([b"1"], {0: "RecordTooLarge"})


def test_a_row_alone_is_refused_for_what_it_is_and_not_for_those_beside_it() -> None:
    txids = pa.array([99, None, 12, 9, -1, 2**63 - 1], pa.int64())
    batch = pa.RecordBatch.from_pydict({"payload": [b"0", b"1", b"x" * 11, b"3", b"4", b"5"], "txid": txids})
    refused = refused_alone("a-log", batch, SMALL, last_txid=10)
    assert {row.row: type(row.error).__name__ for row in refused} == {
        2: "RecordTooLarge",
        3: "TransactionIdOutOfOrder",
        4: "TransactionIdOutOfOrder",
        5: "TransactionIdOutOfOrder",
    }
    assert refused_alone("a-log", batch.slice(0, 2), SMALL, last_txid=10) == ()


def test_errors_say_what_is_wrong_with_which_record() -> None:
    batch = pa.RecordBatch.from_pydict({"payload": [b"x" * 12, None, b"2"], "txid": pa.array([11, 11, 3], pa.int64())})
    _, (large, missing, early) = split_refused("a-log", batch, SMALL, last_txid=10)
    assert isinstance(large.error, RecordTooLarge)
    assert "payload of 12 bytes" in str(large.error)
    assert "null is not" in str(missing.error)
    assert isinstance(early.error, TransactionIdOutOfOrder)
    assert "id 3 after 10" in str(early.error)


def test_a_column_of_a_wrong_type_refuses_the_batch() -> None:
    with pytest.raises(LogError, match="column 'txid'"):
        split({"payload": [b"0"], "txid": ["soon"]})
    with pytest.raises(LogError, match="column 'payload'"):
        split({"payload": [1]})


REFUSED = (RefusedRow(1, LogError("one")), RefusedRow(4, LogError("four")))


def test_every_row_has_a_position_or_an_error() -> None:
    result = BulkResult(7, REFUSED, (SlotRange(DLSN(3, 5, 0), 2), SlotRange(DLSN(3, 6, 0), 3)))
    nothing = {"segment": None, "entry": None, "slot": None}
    assert result.dlsns().to_pylist() == [
        {"segment": 3, "entry": 5, "slot": 0},
        nothing,
        {"segment": 3, "entry": 5, "slot": 1},
        {"segment": 3, "entry": 6, "slot": 0},
        nothing,
        {"segment": 3, "entry": 6, "slot": 1},
        {"segment": 3, "entry": 6, "slot": 2},
    ]
    assert [str(result.error(row) or "") for row in range(7)] == ["", "one", "", "", "four", "", ""]
    assert result.records_written == 5


def test_what_was_not_acknowledged_carries_the_failure() -> None:
    ack = PartialAck(6, REFUSED)
    ack.written([SlotRange(DLSN(1, 0, 0), 2)], last=False)
    failure = LogWriteFailed("no disk")
    ack.fail(failure)
    result = ack.future.result(0)
    assert [result.error(row) for row in (0, 2, 3, 5)] == [None, None, failure, failure]
    assert result.dlsns().column("segment").to_pylist() == [1, None, 1, None, None, None]


def test_without_durable_writes_positions_are_invalid() -> None:
    ack = PartialAck(3, REFUSED[:1])
    ack.queued(2)
    invalid = dict(zip(("segment", "entry", "slot"), DLSN.INVALID, strict=True))
    assert [row for row in ack.future.result(0).dlsns().to_pylist() if row["segment"] is not None] == [invalid] * 2
    ack.fail(LogWriteFailed("too late: it was promised to nobody"))
    assert ack.future.result(0).failure is None


def test_a_batch_that_is_refused_as_a_whole_has_no_positions() -> None:
    ack = PartialAck(1, (RefusedRow(0, LogError("no")),))
    ack.nothing_taken()
    assert ack.future.result(0).dlsns().column("slot").to_pylist() == [None]
