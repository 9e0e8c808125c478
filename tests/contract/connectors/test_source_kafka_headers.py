"""Records of Kafka whose headers cannot be read: a header's name is whatever bytes its writer has sent.

With the real client, on the broker that it has within.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from scribengin.connectors.contract import PlannedRange
from scribengin.connectors.kafka.source.columns import SCHEMA
from scribengin.connectors.kafka.source.config import KafkaSourceConfig
from scribengin.connectors.kafka.source.reading import KafkaSplit, Reading, close_idle
from scribengin.connectors.odd_records import MarkingSplit
from scribengin.dataflow.round.bad_records import Piece
from scribengin.dataflow.round.long_records import BoundedSplit, splits_without
from scribengin.errors import TransformationFailed
from tests.servers.kafka_mock import Header, mock_broker, send_as_c_does

NOT_UTF_8 = b"\xff\xfe"
SENT: Sequence[tuple[bytes | None, list[Header]]] = (
    (b"good", [(b"k", b"1")]),
    (b"odd", [(b"ok", b"1"), (NOT_UTF_8, b"2"), (b"ok", b"3")]),
    (None, [(NOT_UTF_8, b"1")]),
    (b"none", []),
    (b"odd too", [(NOT_UTF_8, b"")]),
    (b"last", [(b"k", b""), (b"k", b"2")]),
)
"""Payloads and headers. The second, the third and the fifth cannot be read."""


@pytest.fixture
def bootstrap() -> Iterator[str]:
    """Where a topic `t` has what was sent."""
    with mock_broker() as address:
        send_as_c_does(address, "t", SENT)
        yield address
        close_idle()


def split_of(bootstrap: str, **settings: Any) -> KafkaSplit:
    """All of it."""
    value = {"kind": "kafka", "topics": ["t"], "bootstrap": bootstrap, **settings}
    reading = Reading.of(KafkaSourceConfig.parse(value, source="a test"))
    return KafkaSplit(reading, "t", "", 0, 0, len(SENT), len(SENT), 1000)


def table_of(split: KafkaSplit) -> pa.Table:
    return pa.Table.from_batches(split.read(), schema=SCHEMA)


def test_a_name_that_is_not_utf_8_costs_its_record_the_headers_and_no_other_record_anything(bootstrap: str) -> None:
    rows = table_of(split_of(bootstrap)).to_pylist()
    assert [row["payload"] for row in rows] == [value for value, _ in SENT]
    assert [row["offset"] for row in rows] == [0, 1, 2, 3, 4, 5]
    assert [row["headers"] for row in rows] == [
        [{"key": "k", "value": b"1"}],
        None,
        None,
        [],
        None,
        [{"key": "k", "value": b""}, {"key": "k", "value": b"2"}],
    ]


def test_that_is_so_however_often_there_are_such_records() -> None:
    """Python calls what it has called often on a shorter way, on which it does not see that the client has raised."""
    sent = [(b"%d" % n, [(NOT_UTF_8 if n % 3 else b"k", b"1")]) for n in range(3000)]
    with mock_broker() as address:
        send_as_c_does(address, "t", sent)
        rows = table_of(replace(split_of(address), end=len(sent), records=len(sent))).to_pylist()
        close_idle()
    assert [row["payload"] for row in rows] == [value for value, _ in sent]
    assert [row["headers"] for row in rows] == [None if n % 3 else [{"key": "k", "value": b"1"}] for n in range(3000)]


def test_such_records_are_bad_ones_which_say_where_they_stand_and_what_there_is_to_do(bootstrap: str) -> None:
    split = split_of(bootstrap)
    assert isinstance(split, MarkingSplit)
    piece = Piece.read("in", "t/0", PlannedRange({"offset": 0}, {"offset": 6}, 6, (split,)), SCHEMA, 1_000_000)
    assert list(piece.unfit) == [1, 2, 4]
    for why in piece.unfit.values():
        assert "the name of one is not UTF-8" in why
        assert "headers: drop" in why
    assert piece.places([1]) == ["topic t, partition 0, offset 1"]


def test_a_transformation_gets_to_see_none_of_them(bootstrap: str) -> None:
    split = split_of(bootstrap)
    with pytest.raises(TransformationFailed, match="the name of one is not UTF-8"):
        list(BoundedSplit(split, None).read())
    [without] = splits_without([split], {1, 2, 4})
    kept = [value for batch in without.read() for value in batch.column("payload").to_pylist()]
    assert kept == [b"good", b"none", b"last"]


def test_tombstones_that_are_dropped_are_no_bad_records(bootstrap: str) -> None:
    split = split_of(bootstrap, tombstones="drop")
    table = table_of(split)
    assert table.column("offset").to_pylist() == [0, 1, 3, 4, 5]
    assert list(split.unreadable(table)) == [1, 3]


def test_a_topic_can_be_read_without_its_headers(bootstrap: str) -> None:
    split = split_of(bootstrap, headers="drop")
    table = table_of(split)
    assert table.column("payload").to_pylist() == [value for value, _ in SENT]
    assert table.column("headers").to_pylist() == [None] * len(SENT)
    assert split.unreadable(table) == {}
    assert [batch.num_rows for batch in BoundedSplit(split, None).read()] == [len(SENT)]
