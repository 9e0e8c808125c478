"""What the `log` commands do with a namespace: lines in, lines out."""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, BinaryIO

import pyarrow as pa

from scribengin.errors import ConfigInvalid, EndOfStream, LogError, LogExists, ResourceTaken
from scribengin.log import DLSN, LogConfig, LogNamespace, LogReader
from scribengin_tools.render import print_json_line

_CHUNK_BYTES = 1 << 20
_ROWS_READ = 4096
_WAIT_S = 1.0


def create_all(namespace: LogNamespace, names: Sequence[str], config: LogConfig) -> None:
    """Create all of the logs or none. Raises InvalidLogName, LogExists."""
    for name in names:
        if namespace.exists(name):
            raise LogExists(f"log '{name}' exists already in {namespace.path}: nothing was created")
    created: list[str] = []
    try:
        for name in dict.fromkeys(names):
            namespace.create(name, config)
            created.append(name)
    except BaseException:
        for name in created:
            namespace.delete(name)
        raise


def delete_all(namespace: LogNamespace, names: Sequence[str], *, force: bool) -> None:
    """Delete all of the logs, or none when one is not there or (without `force`) has a writer.

    Raises LogNotFound, ResourceTaken.
    """
    for name in names:
        writer = namespace.info(name).writer
        if writer is not None and not force:
            raise ResourceTaken(f"log '{name}' is being written by {writer}: end that first, or delete it with --force")
    for name in dict.fromkeys(names):
        namespace.delete(name)


def batches_of_lines(lines: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """One batch of records with these payloads."""
    yield _batch([line.encode("utf-8", "surrogateescape") for line in lines])


def batches_of_stream(stream: BinaryIO) -> Iterator[pa.RecordBatch]:
    """The lines of a stream, without their newlines, in a batch for whatever could be read at once.

    So what a person types is written line by line, and a file megabyte by megabyte.
    """
    rest: list[bytes] = []
    while chunk := stream.read1(_CHUNK_BYTES):  # type: ignore[attr-defined]  # stdin's buffer is a BufferedReader
        *lines, last = chunk.split(b"\n")
        if lines:
            yield _batch([b"".join([*rest, lines[0]]), *lines[1:]])
            rest = []
        rest.append(last)
    if any(rest):
        yield _batch([b"".join(rest)])


def records_now(namespace: LogNamespace, log: str, start: str, count: int | None) -> Iterator[pa.RecordBatch]:
    """The records from `start` to the end that the log has now, at most `count`. Raises LogNotFound, ConfigInvalid."""
    with closing(_open_reader(namespace, log, start)) as reader:
        end = reader.end_position()
        left = count
        while reader.position < end and left != 0:
            batch = reader.read_batch(_rows(left))
            if batch is None:
                return
            yield batch
            left = None if left is None else left - batch.num_rows


def records_followed(namespace: LogNamespace, log: str, start: str, count: int | None) -> Iterator[pa.RecordBatch]:
    """The records from `start` on as they come, at most `count`, until the log is sealed. Raises as `records_now`."""
    with closing(_open_reader(namespace, log, start)) as reader:
        left = count
        while left != 0:
            try:
                batch = reader.read_batch(_rows(left), _WAIT_S)
            except EndOfStream:
                return
            if batch is not None:
                yield batch
                left = None if left is None else left - batch.num_rows


def print_records(batches: Iterable[pa.RecordBatch], *, as_json: bool) -> None:
    """Payloads as they are, a line each; or a line of JSON each, with everything there is to say about a record."""
    for batch in batches:
        if as_json:
            for row in batch.to_pylist():
                print_json_line(_record_json(row))
            sys.stdout.flush()
        else:
            sys.stdout.buffer.write(b"".join(payload + b"\n" for payload in batch.column("payload").to_pylist()))
            sys.stdout.buffer.flush()


def _batch(lines: list[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(lines, pa.binary())], names=["payload"])


def _rows(left: int | None) -> int:
    return _ROWS_READ if left is None else min(left, _ROWS_READ)


def _open_reader(namespace: LogNamespace, log: str, start: str) -> LogReader:
    if start == "earliest":
        return namespace.open_reader(log)
    if start == "latest":
        return namespace.open_reader(log, namespace.end_dlsn(log))
    try:
        return namespace.open_reader(log, DLSN.parse(start))
    except LogError as error:
        raise ConfigInvalid(f"--from {start}: {error}") from None


def _record_json(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "dlsn": f"{row['segment']}/{row['entry']}/{row['slot']}",
        "sequence_id": row["sequence_id"],
        "txid": row["txid"],
        **_bytes_json("key", row["key"]),
        "channel": row["channel"],
        **_bytes_json("payload", row["payload"]),
    }


def _bytes_json(name: str, value: bytes | None) -> dict[str, Any]:
    """Bytes under their name if they are text, else under `<name>_base64`."""
    try:
        return {name: None if value is None else value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value or b"").decode()}
