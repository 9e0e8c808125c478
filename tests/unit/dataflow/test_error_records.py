"""What the error route gets of a bad record: it says where it was and why, and always fits."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scribengin.dataflow.round.error_records import BYTES_MAX, error_record, fair_share

ALL_BYTES = bytes(range(256))


def told(payload: bytes, *, bytes_max: int = BYTES_MAX, **more: Any) -> bytes:
    row = pa.table({"key": pa.array([b"k"], pa.binary()), "payload": pa.array([payload], pa.binary())})
    about = {"source": "in", "stream": "0", "after": {"at": 7}, "index": 2, "place": "a:3", "reason": "no", "row": row}
    return error_record(bytes_max=bytes_max, **{**about, **more})


def test_a_record_that_fits_is_told_whole() -> None:
    assert json.loads(told("Grüße, 世界".encode())) == {
        "source": "in",
        "stream": "0",
        "place": "a:3",
        "after": {"at": 7},
        "index": 2,
        "reason": "no",
        "key": "k",
        "payload": "Grüße, 世界",
    }


@pytest.mark.parametrize("payload", [b"x" * 10_000, "Grüße".encode() * 2_000, ALL_BYTES * 40, b"\x00\n" * 5_000])
def test_a_record_that_is_too_large_is_cut_and_its_length_and_checksum_are_told(payload: bytes) -> None:
    document = json.loads(told(payload, bytes_max=2_000))
    assert document["cut"] == {"payload": {"bytes": len(payload), "sha256": hashlib.sha256(payload).hexdigest()}}
    assert (document["index"], document["reason"], document["key"]) == (2, "no", "k")
    shown = document["payload"]
    assert len(shown) > 100
    if not shown.startswith("base64:"):
        assert payload.startswith(shown.encode())


def test_a_reason_that_is_too_long_is_cut_too() -> None:
    document = json.loads(told(b"short", bytes_max=1_000, reason="ValueError: " + "ü" * 5_000))
    assert document["reason"].startswith("ValueError: üü")
    assert list(document["cut"]) == ["reason"]
    assert document["payload"] == "short"


def test_a_row_of_a_table_that_is_too_large_is_cut_as_json() -> None:
    row = pa.table({"source": ["theirs"], "tags": [["a" * 3_000]]})
    document = json.loads(told(b"", row=row, bytes_max=1_000))
    assert document["record"].startswith('{"source": "theirs", "tags": ["aaaa')
    assert list(document["cut"]) == ["record"]


def test_what_is_no_text_of_any_kind_is_told_as_well() -> None:
    wrong_text = pa.array([b"\xff\xfe"], pa.binary()).cast(pa.string(), safe=False)
    late = pa.array([253402300800], pa.timestamp("s"))  # the year 10000, which Python does not have
    document = json.loads(told(b"", stream="a file\udcff", row=pa.table({"name": wrong_text, "at": late})))
    assert document["stream"] == "a file\udcff"
    assert document["record"]["name"] == "base64://4="
    assert document["record"]["at"].startswith("10000-")


@given(st.binary(max_size=3_000), st.text(max_size=300), st.integers(1, 3_000))
def test_it_is_never_longer_than_it_may_be(payload: bytes, reason: str, bytes_max: int) -> None:
    record = told(payload, bytes_max=bytes_max, reason=reason)
    assert len(record) <= bytes_max
    if bytes_max >= 1_000:
        assert json.loads(record)["index"] == 2


def test_many_error_records_share_what_one_batch_holds() -> None:
    assert fair_share(1_000, 1) == 1_000
    assert fair_share(None, 1) == BYTES_MAX
    assert fair_share(None, 10_000) * 10_000 <= 1 << 30
