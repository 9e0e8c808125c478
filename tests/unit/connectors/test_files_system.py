"""What a file system is given to write, whatever the caller had."""

from __future__ import annotations

import pyarrow as pa
import pytest

from scribengin.connectors.files.formats.lines import encode
from scribengin.filesystems.contract import NewFile

EVERY = bytes(range(256))


class Particular(NewFile):
    """Takes unsigned bytes and nothing else, as the client of HDFS does."""

    def __init__(self) -> None:
        super().__init__("/a test")
        self.taken = bytearray()

    def _append(self, data: memoryview) -> None:
        assert (data.format, data.ndim, data.itemsize) == ("B", 1, 1)
        self.taken += data

    def _sync(self) -> None: ...

    def _close(self) -> None: ...


@pytest.mark.parametrize(
    "data",
    [
        EVERY,
        b"",
        memoryview(bytearray(EVERY)),
        memoryview(EVERY).cast("b"),
        memoryview(b"").cast("b"),
        memoryview(pa.py_buffer(EVERY)),
        encode(pa.record_batch({"payload": pa.array(["Grüße".encode(), b""], pa.binary())}), what="a test"),
    ],
)
def test_what_is_appended_reaches_the_system_as_unsigned_bytes(data: bytes | memoryview) -> None:
    file = Particular()
    file.append(data)
    assert bytes(file.taken) == bytes(data)
