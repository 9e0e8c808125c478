"""Which stream a record belongs to, by its key. Whole columns at a time.

A partitioner takes a column of keys (binary, without nulls) and the number of streams n, and returns a column of int32
in [0, n). The same key must always get the same stream, in every process: so Python's own `hash`, which is salted, is
no partitioner. Records without a key have no place of their own: whoever splits deals them out in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from scribengin.errors import ConfigInvalid, LogError

Partitioner = Callable[[pa.Array, int], pa.Array]
"""From the keys of a batch, and how many partitions there are, to the partition of each record."""

_Words = npt.NDArray[np.uint32]
_Places = npt.NDArray[np.int64]
_SEED, _MULTIPLIER, _ROTATION = 0x9747B28C, 0x5BD1E995, 24
_WORD = 0xFFFFFFFF
_FEW = 16
"""So few keys are hashed one by one: that is faster."""
_LONG_BYTES = 256
"""Keys that are longer are hashed one by one: a column of keys takes as many steps as its longest one has words."""


def hash_partitioner(keys: pa.Array, streams: int) -> pa.Array:
    """Murmur2, as the default partitioner of Kafka's Java client: keys go where they went there."""
    hashes = murmur2(keys) & np.uint32(0x7FFFFFFF)
    return pa.array((hashes % np.uint32(streams)).astype(np.int32))


def int_partitioner(keys: pa.Array, streams: int) -> pa.Array:
    """Keys are whole numbers written as text; number k goes to stream k mod n, as in DistributedLog's messaging
    tutorial (IntPartitioner). Raises LogError for a key that is no number of 64 bits."""
    try:
        numbers = keys.cast(pa.string()).cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise LogError(f"a key is no whole number: {error}; use hash_partitioner for keys of any form") from None
    return pa.array(np.mod(numbers.to_numpy(zero_copy_only=False), streams).astype(np.int32))


def murmur2(keys: pa.Array) -> _Words:
    """The 32-bit murmur2 hash of every key, seeded as Kafka's clients do it."""
    if len(keys) <= _FEW:
        return np.array([_murmur2_of(key) for key in keys.to_pylist()], np.uint32)
    lengths = pc.binary_length(keys).to_numpy(zero_copy_only=False).astype(np.int64)
    hashes = np.empty(len(keys), np.uint32)
    for row in np.flatnonzero(lengths > _LONG_BYTES):
        hashes[row] = _murmur2_of(keys[int(row)].as_py())
    short = np.flatnonzero(lengths <= _LONG_BYTES)
    hashes[short] = _murmur2_column(*_bytes_of(keys), short, lengths[short])
    return hashes


def split_rows(
    keys: pa.Array, streams: int, partitioner: Partitioner, next_stream: int
) -> tuple[npt.NDArray[np.int32], int]:
    """The stream of every row, and the stream that the next row without a key gets.

    Rows with a null key are dealt out in turn, beginning at `next_stream`. Raises LogError when the partitioner does
    not do what it should.
    """
    missing = int(keys.null_count)
    if not missing:
        return _checked(partitioner(keys, streams), len(keys), streams), next_stream
    chosen = np.empty(len(keys), np.int32)
    without = pc.is_null(keys).to_numpy(zero_copy_only=False)
    chosen[without] = (next_stream + np.arange(missing)) % streams
    if missing < len(keys):
        given = keys.drop_null()
        chosen[~without] = _checked(partitioner(given, streams), len(given), streams)
    return chosen, (next_stream + missing) % streams


def split_batch(batch: pa.RecordBatch, chosen: npt.NDArray[np.int32]) -> dict[int, pa.RecordBatch]:
    """The rows of each stream, in the order they had, for the streams that have any."""
    first = int(chosen[0])
    if (chosen == first).all():
        return {first: batch}
    order = np.argsort(chosen, kind="stable")
    sorted_batch = batch.take(pa.array(order))
    present, starts = np.unique(chosen[order], return_index=True)
    ends = [*starts[1:], len(chosen)]
    parts = zip(present, starts, ends, strict=True)
    return {int(stream): sorted_batch.slice(int(start), int(end - start)) for stream, start, end in parts}


def partition_logs(prefix: str, count: int) -> list[str]:
    """The names of a stream's partitions: `prefix/0` to `prefix/<count - 1>`."""
    return [f"{prefix}/{number}" for number in range(count)]


def check_logs(logs: Sequence[str]) -> list[str]:
    """The logs of a client. Raises ConfigInvalid unless it is a list of at least one, and each once."""
    if isinstance(logs, str):
        raise ConfigInvalid(f"the logs are a list of names: write [{logs!r}], and not {logs!r}")
    if not logs or len(set(logs)) != len(logs):
        raise ConfigInvalid(f"the logs {list(logs)!r}: name at least one log, and each only once")
    return list(logs)


def _checked(streams_of_rows: pa.Array, rows: int, streams: int) -> npt.NDArray[np.int32]:
    chosen = np.asarray(streams_of_rows)
    whole = np.issubdtype(chosen.dtype, np.integer)  # a null would have made them floating point numbers
    if chosen.shape != (rows,) or not whole or (rows and not (chosen.min() >= 0 and chosen.max() < streams)):
        raise LogError(f"the partitioner must return {rows} whole numbers from 0 to {streams - 1}; correct it")
    return chosen.astype(np.int32, copy=False)


def _bytes_of(keys: pa.Array) -> tuple[_Places, npt.NDArray[np.uint8]]:
    """Where each key begins, and the bytes of all."""
    _validity, offsets, data = keys.buffers()
    starts = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys)].astype(np.int64)
    return starts, np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)


def _murmur2_of(key: bytes) -> int:
    value = _SEED ^ len(key)
    words_end = len(key) & ~3
    for at in range(0, words_end, 4):
        word = int.from_bytes(key[at : at + 4], "little") * _MULTIPLIER & _WORD
        word ^= word >> _ROTATION
        value = (value * _MULTIPLIER & _WORD) ^ (word * _MULTIPLIER & _WORD)
    if words_end < len(key):
        value = (value ^ int.from_bytes(key[words_end:], "little")) * _MULTIPLIER & _WORD
    value = (value ^ value >> 13) * _MULTIPLIER & _WORD
    return value ^ value >> 15


def _murmur2_column(
    starts: npt.NDArray[np.int64],
    data: npt.NDArray[np.uint8],
    rows: npt.NDArray[np.intp],
    lengths: npt.NDArray[np.int64],
) -> npt.NDArray[np.uint32]:
    """The same for `rows`, a word of all of them at a time. Numbers of 32 bits wrap, as they should."""
    starts = starts[rows]
    values = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    multiplier, active, at = np.uint32(_MULTIPLIER), np.flatnonzero(lengths >= 4), 0
    while len(active):
        words = _little_endian(data, starts[active] + at, np.full(len(active), 4)) * multiplier
        words ^= words >> np.uint32(_ROTATION)
        values[active] = (values[active] * multiplier) ^ (words * multiplier)
        at += 4
        active = active[lengths[active] >= at + 4]
    rest = np.flatnonzero(lengths % 4)
    ends = lengths[rest] // 4 * 4
    values[rest] = (values[rest] ^ _little_endian(data, starts[rest] + ends, lengths[rest] - ends)) * multiplier
    values = (values ^ values >> np.uint32(13)) * multiplier
    return values ^ values >> np.uint32(15)


def _little_endian(data: npt.NDArray[np.uint8], starts: _Places, sizes: _Places) -> _Words:
    """The number in the `sizes` (1 to 4) bytes that begin at each of `starts`."""
    words = np.zeros(len(starts), np.uint32)
    for at in range(4):
        there = np.flatnonzero(sizes > at)
        words[there] |= data[starts[there] + at].astype(np.uint32) << np.uint32(8 * at)
    return words
