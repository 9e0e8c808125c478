"""What the `log` commands do with a namespace: lines in, lines out."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import groupby
from operator import itemgetter
from typing import Any, BinaryIO

import pyarrow as pa

from scribengin.base.text.counting import many
from scribengin.errors import ConfigInvalid, EndOfStream, InconsistentLog, LogBusy, LogExists, PositionTruncated
from scribengin.log import DLSN, LogConfig, LogNamespace, LogReader
from scribengin.log.clients.multi import MultiReader
from scribengin_tools.logs.positions import start_of
from scribengin_tools.rendering.text import print_json_line
from scribengin_tools.terminal import check_read, visible_bytes_on, visible_on

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
    """Delete all of the logs, or none when one is not there or (without `force`) has a writer, or a dataflow that
    reads it.

    Raises LogNotFound, LogBusy.
    """
    for name in names:
        writer = namespace.inspect(name).metadata_check.writer
        if force:
            continue
        if writer is not None:
            raise LogBusy(f"log '{name}' is being written by {writer}: end that first, or delete it with --force")
        for hold in namespace.retention_holds(name):
            raise LogBusy(
                f"log '{name}' is read by dataflow '{hold.dataflow}': `scribengin delete {hold.dataflow}` first, or "
                "delete the log with --force"
            )
    for name in dict.fromkeys(names):
        namespace.delete(name, force=force)


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


def labelled(batches: Iterator[pa.RecordBatch], key: str | None, channel: str | None) -> Iterator[pa.RecordBatch]:
    """The same records, all with this key and this channel. Raises ConfigInvalid (the channel is no text)."""
    labels: dict[str, pa.Scalar] = {}
    if key is not None:
        labels["key"] = pa.scalar(os.fsencode(key), pa.binary())
    if channel is not None:
        labels["channel"] = _text_scalar(channel)
    return (_with_columns(batch, labels) for batch in batches)


def _with_columns(batch: pa.RecordBatch, labels: dict[str, pa.Scalar]) -> pa.RecordBatch:
    for name, value in labels.items():
        batch = batch.append_column(name, pa.repeat(value, batch.num_rows))
    return batch


def records_now(
    namespace: LogNamespace, log: str, start: str, count: int | None, channels: Sequence[str] = ()
) -> Iterator[pa.RecordBatch]:
    """The records from `start` to the end that the log has now, at most `count`. Raises LogNotFound, ConfigInvalid."""
    with closing(open_from(namespace, log, start, channels)) as reader:
        end = reader.end_position()
        left = count
        while reader.position < end and left != 0:
            batch = read_now(reader, _rows(left))
            if batch is None:
                return
            yield batch
            left = None if left is None else left - batch.num_rows


def records_followed(
    namespace: LogNamespace, logs: Sequence[str], start: str, count: int | None, channels: Sequence[str] = ()
) -> Iterator[pa.RecordBatch]:
    """The records from `start` on as they come, at most `count`, until all logs are sealed. Of several logs each has
    the column `log`, as MULTI_SCHEMA. Raises as `records_now`, and BrokenPipeError where nobody reads stdout any more.
    """
    with closing(_open_all(namespace, logs, start, channels)) as reader:
        left = count
        while left != 0:
            try:
                batch = reader.read_batch(_rows(left), _WAIT_S)
            except EndOfStream:
                return
            if batch is None:
                check_read(sys.stdout)
            else:
                yield batch
                left = None if left is None else left - batch.num_rows


def read_now(reader: LogReader, records_max: int) -> pa.RecordBatch | None:
    """What can be read without waiting; None: nothing more, for now or for ever. Raises as `read_batch`."""
    try:
        return reader.read_batch(records_max)
    except EndOfStream:  # what was left belongs to other channels
        return None


def print_records(batches: Iterable[pa.RecordBatch], *, as_json: bool) -> None:
    """Payloads as they are, a line each; or a line of JSON each, with everything there is to say about a record. Where
    they are of several logs, a line before them names the log, as `tail` of files does."""
    shown: str | None = None
    for batch in batches:
        if as_json:
            for row in batch.to_pylist():
                print_json_line(record_json(row))
            sys.stdout.flush()
            continue
        for log, payloads in _by_log(batch):
            if log != shown:
                print("" if shown is None else "\n", visible_on(sys.stdout, f"==> {log} <=="), sep="", flush=True)
                shown = log
            print_payloads(payloads)


def _by_log(batch: pa.RecordBatch) -> Iterator[tuple[str | None, list[bytes]]]:
    """The payloads, a list for each run of records of one log; None: all are of the one that was asked for."""
    payloads = batch.column("payload").to_pylist()
    if "log" not in batch.schema.names:
        yield None, payloads
        return
    for log, run in groupby(zip(batch.column("log").to_pylist(), payloads, strict=True), itemgetter(0)):
        yield log, [payload for _, payload in run]


def print_payloads(payloads: Iterable[bytes]) -> None:
    """As they are, a line each."""
    lines = b"".join(payload + b"\n" for payload in payloads)
    sys.stdout.buffer.write(visible_bytes_on(sys.stdout, lines))
    sys.stdout.buffer.flush()


def counted(namespace: LogNamespace, log: str, start: DLSN | None, end: DLSN | None) -> int:
    """How many records stand in [start, end). Raises LogNotFound, ConfigInvalid (no places of this log)."""
    try:
        return max(0, namespace.count(log, start, end))
    except (InconsistentLog, PositionTruncated) as error:
        if start is None and end is None:
            raise
        raise ConfigInvalid(f"--from, --to: {error}") from None


def _batch(lines: list[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(lines, pa.binary())], names=["payload"])


def _rows(left: int | None) -> int:
    return _ROWS_READ if left is None else min(left, _ROWS_READ)


def open_from(namespace: LogNamespace, log: str, start: str, channels: Sequence[str] = ()) -> LogReader:
    """A reader from `start`, as `--from` takes it, of the channels that begin with one of these, or of all.

    Raises LogNotFound, ConfigInvalid.
    """
    with _start_named(start):
        return namespace.open_reader(log, start_of(start), channels=_texts(channels))


def _open_all(
    namespace: LogNamespace, logs: Sequence[str], start: str, channels: Sequence[str]
) -> LogReader | MultiReader:
    """A reader of one log, or of several as their records come: none of them is waited for."""
    if len(logs) == 1:
        return open_from(namespace, logs[0], start, channels)
    begin = start_of(start)
    if isinstance(begin, DLSN):
        raise ConfigInvalid(f"--from {start}: that is a place in one log, and {many(len(logs), 'log')} are named")
    with _start_named(start):
        starts = dict.fromkeys(logs, begin)
        return MultiReader(namespace, logs, start=starts, wait_s=0.0, channels=_texts(channels))


def _texts(channels: Sequence[str]) -> tuple[str, ...]:
    """Words of a command line may be any bytes."""
    for channel in channels:
        _text_scalar(channel)
    return tuple(channels)


def _text_scalar(channel: str) -> pa.Scalar:
    try:
        return pa.scalar(channel, pa.string())
    except UnicodeEncodeError:
        raise ConfigInvalid(f"--channel {channel!r}: a channel is text in UTF-8") from None


@contextmanager
def _start_named(start: str) -> Iterator[None]:
    try:
        yield
    except (InconsistentLog, PositionTruncated) as error:
        raise ConfigInvalid(f"--from {start}: {error}") from None


def record_json(row: dict[str, Any]) -> dict[str, Any]:
    """A row of READ_SCHEMA or MULTI_SCHEMA, as `--json` prints it."""
    return {
        **({"log": row["log"]} if "log" in row else {}),
        "dlsn": f"{row['segment']}/{row['entry']}/{row['slot']}",
        "sequence_id": row["sequence_id"],
        "txid": row["txid"],
        "type": row["type"],
        **bytes_json("key", row["key"]),
        "channel": row["channel"],
        **bytes_json("payload", row["payload"]),
    }


def bytes_json(name: str, value: bytes | None) -> dict[str, Any]:
    """Bytes under their name if they are text, else under `<name>_base64`."""
    try:
        return {name: None if value is None else value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value or b"").decode()}
