"""Columns of Arrow, made of Python's objects: those of records that were written one by one.

Arrow's builder imports pandas when it is first called. That takes 0.3 s, and a process would be so late with its first
record. It also costs a few values twice as much as to lay them out here, and is the faster one from a thousand on.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Literal

import numpy as np
import pyarrow as pa

_FEW = 64


def numbers(values: Sequence[int], kind: pa.DataType, code: Literal["q", "H"]) -> pa.Array:
    """`code` is how `array.array` calls that kind of numbers."""
    if len(values) > _FEW:
        return pa.array(values, kind)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(array(code, values))])


def texts(values: Sequence[bytes | None] | Sequence[str | None], kind: pa.DataType) -> pa.Array:
    """Of `binary` or, as UTF-8, `string`. One value by itself is not copied."""
    missing = values.count(None)
    if missing == len(values):
        return pa.nulls(missing, kind)
    if len(values) > _FEW:
        return pa.array(values, kind)
    there = None if not missing else np.packbits([value is not None for value in values], bitorder="little")
    parts = [value.encode() if isinstance(value, str) else value or b"" for value in values]
    offsets = array("i", accumulate(map(len, parts), initial=0))
    data = parts[0] if len(parts) == 1 else b"".join(parts)
    buffers = [None if there is None else pa.py_buffer(there), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(values), buffers, missing)
