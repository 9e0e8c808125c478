"""Making files: how batches become the bytes of a file, and how files that were made so become one.

A sink makes many small files (segments) and merges them. So a format must say what of several files is one file again:
lines and frames one behind the other are, compressed or not, and Parquet files are rewritten row group by row group.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scribengin.connectors.files.formats.frames import FRAME_BYTES_MAX, HEAD_BYTES, decode_frames, frame_ends
from scribengin.connectors.files.formats.lines import LINE_BYTES_MAX, batches, encode, joined, line_payloads, payloads
from scribengin.errors import DataflowError, RecordTooLarge

Write = Callable[[bytes | memoryview], None]
Content = Any
"""What a format makes of a batch, for its own encoders: a memoryview of bytes, or (Parquet) a batch."""
_FRAME_LENGTH = np.dtype(">u4")


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that was made before: where it is, for who has to mend it, and what it holds from its beginning on."""

    path: str
    blocks: Iterator[bytes]


class FileEncoder(ABC):
    """Makes one file: everything goes to the `write` that it was made with, in order."""

    waiting_bytes: int = 0
    """About how much was appended and not written yet."""

    def takes(self, content: Content) -> bool:
        """Whether `content` can go into this file, or needs another one."""
        return True

    @abstractmethod
    def append(self, content: Content) -> None:
        """Append what the format's `content` made. May keep it back."""

    @abstractmethod
    def finish(self) -> None:
        """Write what makes the file complete."""

    @abstractmethod
    def abandon(self) -> None:
        """Write nothing more, now or when this is collected. Idempotent; fine after `finish`, too."""


class FileWriting(ABC):
    """One kind of file. Stateless."""

    suffix: str
    """What the names of its files end with, without the first dot."""
    payload_bytes_max: int | None = None
    """The largest payload that a file takes; None: there is no such limit."""

    @abstractmethod
    def check(self, batch: pa.RecordBatch, *, what: str) -> None:
        """Find what `content` would find wrong, making nothing. Raises as it does."""

    @abstractmethod
    def content(self, batch: pa.RecordBatch, *, what: str) -> Content:
        """What an encoder of this format appends. Whatever is wrong with the batch is found here.

        Raises DataflowError, RecordRefused, RecordTooLarge; ConfigInvalid when it has not the columns for this format.
        """

    @abstractmethod
    def encoder(self, first: Content, write: Write) -> FileEncoder:
        """Begin a file whose first content will be `first`."""

    @abstractmethod
    def join(self, files: Sequence[WrittenFile], write: Write) -> int:
        """Write one file that holds as many of `files` as fit together, from the first on: how many.

        There is at least one. Raises what reading them raises, DataflowError for damage, and has written something
        then. Formats whose files are put one behind the other do not look into them.
        """

    @abstractmethod
    def batches(self, file: WrittenFile) -> Iterator[pa.RecordBatch]:
        """The records of a file. Raises what reading it raises, DataflowError for damage."""


class PlainWriting(FileWriting):
    """Files of bytes that can be put one behind the other."""

    def encoder(self, first: Content, write: Write) -> FileEncoder:
        return _PlainEncoder(write)

    def join(self, files: Sequence[WrittenFile], write: Write) -> int:
        for file in files:
            for block in file.blocks:
                write(block)
        return len(files)


class LinesWriting(PlainWriting):
    """A record a line."""

    payload_bytes_max = LINE_BYTES_MAX

    def __init__(self, suffix: str) -> None:
        self.suffix = suffix

    def check(self, batch: pa.RecordBatch, *, what: str) -> None:
        line_payloads(batch, what=what)

    def content(self, batch: pa.RecordBatch, *, what: str) -> memoryview:
        return encode(batch, what=what)

    def batches(self, file: WrittenFile) -> Iterator[pa.RecordBatch]:
        return batches(file.blocks)


class FramesWriting(PlainWriting):
    """A record a frame: the length of its payload (4 bytes, the highest first), then the payload."""

    suffix = "bin"
    payload_bytes_max = FRAME_BYTES_MAX

    def check(self, batch: pa.RecordBatch, *, what: str) -> None:
        _refuse_large(pc.binary_length(payloads(batch, what=what)).to_numpy(), what)

    def content(self, batch: pa.RecordBatch, *, what: str) -> memoryview:
        payload = payloads(batch, what=what)
        sizes = pc.binary_length(payload).to_numpy()
        _refuse_large(sizes, what)
        lengths = pa.py_buffer(sizes.astype(_FRAME_LENGTH).tobytes())
        heads = pa.Array.from_buffers(pa.binary(HEAD_BYTES), len(sizes), [None, lengths])
        empty = pa.scalar(b"", pa.large_binary())
        return joined(pc.binary_join_element_wise(heads.cast(pa.large_binary()), payload, empty))

    def batches(self, file: WrittenFile) -> Iterator[pa.RecordBatch]:
        rest, at = b"", 0
        for block in file.blocks:
            rest += block
            if ends := frame_ends(rest, at=at, what=file.path):
                yield decode_frames(rest[: ends[-1]], ends)
                rest, at = rest[ends[-1] :], at + ends[-1]
        if rest:
            raise DataflowError(
                f"{file.path} ends in the middle of a frame: {len(rest)} bytes are left; restore the file"
            )


def _refuse_large(sizes: Any, what: str) -> None:
    if sizes.max(initial=0) > FRAME_BYTES_MAX:
        raise RecordTooLarge(f"{what}: a payload has {sizes.max():,} bytes, and a frame {FRAME_BYTES_MAX:,} at most")


class _PlainEncoder(FileEncoder):
    def __init__(self, write: Write) -> None:
        self._write = write

    def append(self, content: Content) -> None:
        self._write(content)

    def finish(self) -> None:
        """Nothing is held back."""

    def abandon(self) -> None:
        """Nothing is held back."""
