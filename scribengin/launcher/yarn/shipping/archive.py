"""A reproducible tar.gz, written quickly: the same entries make the same bytes, and all processors compress.

The stream is cut into blocks, each compressed by itself as one member of the gzip file; what is compressed already
(jars) is stored. Every gzip reads such a file, so does YARN.
"""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import zlib
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from scribengin.launcher.yarn.shipping.digests import KnownDigests, about_file

_BLOCK_BYTES = 8 << 20
_SAMPLE_BYTES = 64 << 10
_WORTH_IT = 0.9
_LEVEL_FAST = 1
_GZIP_WINDOW_BITS = 31
_CHUNK_BYTES = 1 << 20
_EXECUTABLE, _PLAIN = 0o755, 0o644


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of an archive: its name there, and the file, or the text, that it has its content from."""

    name: str
    content: Path | bytes
    executable: bool = False

    def size_bytes(self) -> int:
        """Raises OSError."""
        return len(self.content) if isinstance(self.content, bytes) else self.content.stat().st_size

    def open(self) -> BinaryIO:
        """Raises OSError."""
        return io.BytesIO(self.content) if isinstance(self.content, bytes) else self.content.open("rb")


def content_digest(entries: Sequence[Entry], known: KnownDigests | None = None) -> str:
    """A name for what these entries hold: 32 hexadecimal digits, the same for the same names, modes and contents.

    Only those are read that are not `known`. Raises OSError.
    """
    digest = hashlib.sha256()
    with ThreadPoolExecutor(_threads()) as pool:
        for entry, content in zip(entries, pool.map(lambda entry: _digest_of(entry, known), entries), strict=True):
            digest.update(f"{entry.name}\0{int(entry.executable)}\0{content}\0".encode())
    return digest.hexdigest()[:32]


def write_archive(entries: Iterable[Entry], target: BinaryIO) -> None:
    """Write a tar.gz of the entries, in their order. Owners and times are the same everywhere. Raises OSError."""
    with _Compressor(target) as compressor, tarfile.open(mode="w|", fileobj=compressor, bufsize=_CHUNK_BYTES) as tar:
        for entry in entries:
            info = tarfile.TarInfo(entry.name)
            info.mode = _EXECUTABLE if entry.executable else _PLAIN
            with entry.open() as content:
                info.size = entry.size_bytes()
                tar.addfile(info, content)


class _Compressor(io.RawIOBase):
    """Takes bytes, and writes blocks of them compressed, in order. A block is a member of the gzip file."""

    def __init__(self, target: BinaryIO) -> None:
        self._target = target
        self._block = bytearray()
        self._pool = ThreadPoolExecutor(_threads())
        self._waiting: deque[Future[bytes]] = deque()

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        view = memoryview(data)  # type: ignore[arg-type]  # whatever has a buffer
        self._block += view
        while len(self._block) >= _BLOCK_BYTES:
            self._submit(bytes(self._block[:_BLOCK_BYTES]))
            del self._block[:_BLOCK_BYTES]
        return view.nbytes

    def close(self) -> None:
        if self.closed:
            return
        try:
            if self._block:
                self._submit(bytes(self._block))
            while self._waiting:
                self._target.write(self._waiting.popleft().result())
        finally:
            self._pool.shutdown(cancel_futures=True)
            super().close()

    def _submit(self, block: bytes) -> None:
        self._waiting.append(self._pool.submit(_member, block))
        if len(self._waiting) > 2 * _threads():  # so that no more than that stands in memory
            self._target.write(self._waiting.popleft().result())


def _member(block: bytes) -> bytes:
    sample = block[len(block) // 2 :][:_SAMPLE_BYTES]
    worth_it = len(zlib.compress(sample, _LEVEL_FAST)) < _WORTH_IT * len(sample)
    packer = zlib.compressobj(_LEVEL_FAST if worth_it else zlib.Z_NO_COMPRESSION, wbits=_GZIP_WINDOW_BITS)
    return packer.compress(block) + packer.flush()


def _digest_of(entry: Entry, known: KnownDigests | None) -> str:
    if known is None or isinstance(entry.content, bytes):
        return _read_digest_of(entry)
    found = known.find(entry.content)
    if found is None:
        before = about_file(entry.content)
        found = _read_digest_of(entry)
        known.tell(entry.content, before, found)
    return found


def _read_digest_of(entry: Entry) -> str:
    digest = hashlib.sha256()
    with entry.open() as content:
        while chunk := content.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _threads() -> int:
    return os.cpu_count() or 1
