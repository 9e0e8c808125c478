"""A group is handed to the system in parts: all of it, in order, and never too much at once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from scribengin.log.store import file as file_store

MAX_BYTES = 10


@pytest.mark.parametrize("sizes", [[3], [10], [25], [0, 4, 6, 1], [7, 7, 7], [9, 31, 2], [1] * 40, []])
@pytest.mark.parametrize("taken_max", [MAX_BYTES, 4])
def test_a_group_is_written_whole_in_parts_that_are_not_too_large(
    sizes: list[int], taken_max: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []

    def writev(file: int, buffers: Sequence[memoryview]) -> int:
        data = b"".join(buffers)
        given.append(len(data))
        return os.write(file, data[:taken_max])

    monkeypatch.setattr(os, "writev", writev)
    monkeypatch.setattr(file_store, "_CALL_BYTES_MAX", MAX_BYTES)
    monkeypatch.setattr(file_store, "_BUFFERS_A_CALL", 8)
    whole = bytes(number % 251 for number in range(sum(sizes)))
    ends = [sum(sizes[: at + 1]) for at in range(len(sizes))]
    pieces = [memoryview(whole[end - size : end]) for size, end in zip(sizes, ends, strict=True)]
    path = tmp_path / "segment"
    with path.open("wb") as file:
        file_store._write_all(file.fileno(), [piece for piece in pieces if piece])
    assert path.read_bytes() == whole
    assert max(given, default=0) <= MAX_BYTES
