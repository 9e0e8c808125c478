"""Whole files behind a codec: a file is one member (gzip) or frame, or several of them one behind the other."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from scribengin.connectors.files.formats.writing import Content, FileEncoder, PlainWriting, Write

SUFFIXES = {"gzip": "gz", "bz2": "bz2", "zstd": "zst", "lz4": "lz4"}


class CompressedWriting(PlainWriting):
    """Files of `inner`, compressed."""

    def __init__(self, inner: PlainWriting, codec: str) -> None:
        """`codec` is one of SUFFIXES."""
        self._inner = inner
        self._codec = codec
        self.suffix = f"{inner.suffix}.{SUFFIXES[codec]}"
        self.payload_bytes_max = inner.payload_bytes_max

    def check(self, batch: pa.RecordBatch, *, what: str) -> None:
        self._inner.check(batch, what=what)

    def content(self, batch: pa.RecordBatch, *, what: str) -> Content:
        return self._inner.content(batch, what=what)

    def encoder(self, first: Content, write: Write) -> FileEncoder:
        return _CompressingEncoder(self._codec, write)

    def batches(self, blocks: Iterator[bytes]) -> Iterator[pa.RecordBatch]:
        with pa.CompressedInputStream(pa.PythonFile(_Blocks(blocks), "r"), self._codec) as stream:
            yield from self._inner.batches(iter(lambda: bytes(stream.read(io.DEFAULT_BUFFER_SIZE * 128)), b""))


class Outlet(io.RawIOBase):
    """What pyarrow writes a file to: it passes everything on, until it is shut, and swallows what comes then.

    pyarrow's writers complete their files when they are collected, and a file that was given up must not be written.
    """

    def __init__(self, write: Write) -> None:
        self._write: Write | None = write

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data)
        if self._write is not None:
            self._write(view)
        return len(view)

    def shut(self) -> None:
        """Pass nothing on any more."""
        self._write = None


class _CompressingEncoder(FileEncoder):
    def __init__(self, codec: str, write: Write) -> None:
        self._outlet = Outlet(write)
        self._stream = pa.CompressedOutputStream(pa.PythonFile(self._outlet, "w"), codec)

    def append(self, content: Content) -> None:
        self._stream.write(content)

    def finish(self) -> None:
        self._stream.close()

    def abandon(self) -> None:
        self._outlet.shut()


class _Blocks(io.RawIOBase):
    """Blocks as a file that is read from its beginning to its end."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        into = memoryview(buffer)
        while not self._rest and (block := next(self._blocks, None)) is not None:
            self._rest = memoryview(block)
        count = min(len(into), len(self._rest))
        into[:count], self._rest = self._rest[:count], self._rest[count:]
        return count
