"""What the error route gets of a bad record: one JSON object that always fits. Pure.

A record may be bad because it is too large, or of bytes that no text can hold; its error record must not be refused in
turn. So what cannot be shown as it is, is shown as text or base64, and what does not fit is cut. `cut` then says how
long each cut value is as a whole, and its SHA-256, by which the record can be found where it came from.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from scribengin.base.model import Position
from scribengin.connectors.contract import PAYLOAD
from scribengin.connectors.odd_records import LongRecord

BYTES_MAX = 16 * 1024 * 1024
"""An error record is no larger, whatever its sink takes: it is there to be looked at."""
_TOGETHER_BYTES_MAX = 1024 * 1024 * 1024
"""What one column of a batch holds with room to spare."""


def fair_share(sink_bytes_max: int | None, records: int) -> int:
    """How large each of so many error records may be for a sink that takes payloads up to `sink_bytes_max`."""
    of_all = min(BYTES_MAX, _TOGETHER_BYTES_MAX // max(records, 1))
    return of_all if sink_bytes_max is None else min(of_all, sink_bytes_max)


def error_record(
    *,
    source: str,
    stream: str,
    after: Position,
    index: int,
    place: str,
    reason: str,
    row: pa.Table,
    whole: LongRecord | None = None,
    bytes_max: int = BYTES_MAX,
) -> bytes:
    """The error record of the one record in `row`, at most `bytes_max` long. `place` says to people where it stands;
    `whole` what is known of the payload, where `row` has its beginning only."""
    values = {name: _value(row.column(name)) for name in row.column_names}
    record: dict[str, object] = {
        "source": source,
        "stream": stream,
        "place": place,
        "after": after,
        "index": index,
        "reason": reason,
        # A record's columns are known; those of a table may be called like ours.
        **(values if PAYLOAD in values else {"record": values}),
    }
    dumped = _dumped({name: _shown(value) for name, value in record.items()})
    return dumped if whole is None and len(dumped) <= bytes_max else _cut(record, bytes_max, whole)


def _cut(record: Mapping[str, object], bytes_max: int, whole: LongRecord | None) -> bytes:
    """Every value cut to the same number of bytes, as many as fit after a few halvings."""
    values = {name: _bytes(value) for name, value in record.items()}
    notes = {name: {"bytes": len(of), "sha256": hashlib.sha256(of).hexdigest()} for name, of in values.items()}
    if whole is not None:
        notes[PAYLOAD] = {"bytes": whole.size_bytes, "sha256": whole.sha256}
    keep = bytes_max
    while True:
        long = [name for name, of in values.items() if len(of) > keep or (whole and name == PAYLOAD)]
        cut: dict[str, object] = {
            name: _first(values[name], keep) if name in long else _shown(value) for name, value in record.items()
        }
        fitted = _dumped({**cut, "cut": {name: notes[name] for name in long}})
        if len(fitted) <= bytes_max:
            return fitted
        if not keep:
            return fitted[:bytes_max]  # a sink that takes next to nothing: the beginning says at least where it was
        keep //= 2


def _value(column: pa.ChunkedArray) -> object:
    """The only value of a column; what Python has no value for (a year 10000, a text of wrong bytes) as text."""
    try:
        return column[0].as_py()
    except (ValueError, OverflowError):
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            return column.cast(pa.binary(), safe=False)[0].as_py()
    try:
        return column.cast(pa.string())[0].as_py()
    except pa.ArrowException:
        return f"a value of {column.type} that cannot be shown"


def _bytes(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    return _encoded(value) if isinstance(value, str) else _dumped(_shown(value))


def _first(value: bytes, count: int) -> str:
    try:
        value.decode()
    except UnicodeDecodeError:
        return _text(value[: count * 3 // 4])
    return value[:count].decode(errors="ignore")  # not in the middle of a character


def _shown(value: object) -> Any:
    """A value as JSON has it; what JSON has nothing for, as text."""
    if isinstance(value, bytes):
        return _text(value)
    if isinstance(value, Mapping):
        return {str(_shown(key)): _shown(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, int | float | str | bool | None) else str(value)


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(value).decode()


def _dumped(value: object) -> bytes:
    return _encoded(json.dumps(value, ensure_ascii=False))


def _encoded(text: str) -> bytes:
    """A lone surrogate, as in the name of a file that is no text, becomes the escape that JSON has for it."""
    return text.encode(errors="backslashreplace")
