"""`log dump`: a part of a log in one of several formats, to stdout or to a file that is there whole or not at all."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from scribengin.base.process.private import replacing
from scribengin.errors import ConfigInvalid, SegmentsMoved
from scribengin.log import DLSN, READ_SCHEMA, LogNamespace
from scribengin_tools.logs.lines import open_from, read_now, record_json
from scribengin_tools.logs.positions import short
from scribengin_tools.rendering.text import json_line
from scribengin_tools.terminal import visible_bytes_on

_ROWS_READ = 65_536
_HEX_COLUMNS = 16


@dataclass(frozen=True, slots=True)
class LogPart:
    """Which records: from `start` (as `--from` takes it) to before `end`, of those the ones whose transaction id lies
    in [txid_from, txid_to] and whose channel begins with one of `channels`, and of those at most `count`."""

    start: str = "earliest"
    end: DLSN | None = None
    txid_from: int | None = None
    txid_to: int | None = None
    channels: Sequence[str] = ()
    count: int | None = None


def part_of(namespace: LogNamespace, log: str, part: LogPart) -> Iterator[pa.RecordBatch]:
    """The records that a log holds now of that part. Raises LogNotFound, ConfigInvalid, DamagedEntry."""
    ordered = namespace.info(log).log.config.check_txids
    start = part.start
    if start == "earliest" and ordered and part.txid_from is not None:
        start = f"txid:{part.txid_from}"
    left = part.count
    with closing(open_from(namespace, log, start, part.channels)) as reader:
        end = reader.end_position()
        if part.end is not None:
            end = min(end, _behind_the_segment_before(namespace, log, part.end))
        while reader.position < end and left != 0:
            batch = read_now(reader, _ROWS_READ)
            if batch is None:
                return
            past = ordered and part.txid_to is not None and batch.column("txid")[0].as_py() > part.txid_to
            chosen = _chosen(batch, end, part)
            chosen = chosen if left is None else chosen.slice(0, min(left, chosen.num_rows))
            if chosen.num_rows:
                yield chosen
            if past:
                return
            left = None if left is None else left - chosen.num_rows


def _behind_the_segment_before(namespace: LogNamespace, log: str, end: DLSN) -> DLSN:
    """The same place as `end`, but for a segment's beginning: then a reader need not look into that segment."""
    if end.entry or end.slot:
        return end
    info = namespace.info(log)
    at = end.segment - 1 - info.head.begin
    if not 0 <= at < len(info.segments):
        return end
    try:
        before = info.segments[at]
    except SegmentsMoved:
        return end  # it was purged meanwhile
    return end if before.in_progress else DLSN(before.segment, before.entries, 0)


def _chosen(batch: pa.RecordBatch, end: DLSN, part: LogPart) -> pa.RecordBatch:
    """All rows of a batch stand in one entry."""
    place = DLSN(*(batch.column(name)[0].as_py() for name in ("segment", "entry", "slot")))
    if (place.segment, place.entry) == (end.segment, end.entry):
        batch = batch.filter(pc.less(batch.column("slot"), end.slot))
    elif place > end:
        batch = batch.slice(0, 0)
    txids = batch.column("txid")
    if part.txid_from is not None:
        batch = batch.filter(pc.greater_equal(txids, part.txid_from))
        txids = batch.column("txid")
    return batch if part.txid_to is None else batch.filter(pc.less_equal(txids, part.txid_to))


def write_records(batches: Iterator[pa.RecordBatch], form: str, output: Path | None) -> int:
    """Write the records in the format `form`, and return how many. Raises as `replacing`, and ConfigInvalid (Arrow
    shall go to a terminal)."""
    if output is None and form == "arrow" and sys.stdout.isatty():
        raise ConfigInvalid("--format arrow is nothing for a terminal: add -o FILE, or send it to a program")
    with _opened(output) as file:
        return FORMATS[form](batches, file)


def _text(batches: Iterator[pa.RecordBatch], file: BinaryIO) -> int:
    def text(batch: pa.RecordBatch) -> bytes:
        return b"".join(payload + b"\n" for payload in batch.column("payload").to_pylist())

    return _written(batches, file, text)


def _json(batches: Iterator[pa.RecordBatch], file: BinaryIO) -> int:
    def lines(batch: pa.RecordBatch) -> bytes:
        return "".join(json_line(record_json(row)) + "\n" for row in batch.to_pylist()).encode()

    return _written(batches, file, lines)


def _hex(batches: Iterator[pa.RecordBatch], file: BinaryIO) -> int:
    def dumps(batch: pa.RecordBatch) -> bytes:
        return "".join(line + "\n" for row in batch.to_pylist() for line in _hex_lines(row)).encode()

    return _written(batches, file, dumps)


def _arrow(batches: Iterator[pa.RecordBatch], file: BinaryIO) -> int:
    written = 0
    with pa.ipc.new_stream(file, READ_SCHEMA) as writer:
        for batch in batches:
            writer.write_batch(batch)
            written += batch.num_rows
    return written


FORMATS: dict[str, Callable[[Iterator[pa.RecordBatch], BinaryIO], int]] = {
    "jsonl": _json,
    "text": _text,
    "hex": _hex,
    "arrow": _arrow,
}


def _written(batches: Iterator[pa.RecordBatch], file: BinaryIO, encoded: Callable[[pa.RecordBatch], bytes]) -> int:
    """Whole lines, batch by batch, of which a terminal obeys nothing."""
    written = 0
    for batch in batches:
        file.write(visible_bytes_on(file, encoded(batch)))
        file.flush()
        written += batch.num_rows
    return written


def _hex_lines(row: dict[str, object]) -> Iterator[str]:
    payload, key = row["payload"], row["key"]
    assert isinstance(payload, bytes), "every record has one"
    place = short((row["segment"], row["entry"], row["slot"]))  # type: ignore[arg-type]  # three integers of the schema
    of_key = f"  key {key.hex()}" if isinstance(key, bytes) else ""
    of_channel = "" if row["channel"] is None else f"  channel {row['channel']}"
    yield f"{place}  txid {row['txid']}{of_channel}{of_key}  {len(payload):,} B"
    for at in range(0, len(payload), _HEX_COLUMNS):
        part = payload[at : at + _HEX_COLUMNS]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        yield f"  {at:08x}  {part.hex(' '):<{3 * _HEX_COLUMNS - 1}}  {shown}"


@contextmanager
def _opened(output: Path | None) -> Iterator[BinaryIO]:
    """stdout, or a file that takes its name when it is complete."""
    if output is None:
        yield sys.stdout.buffer
        return
    with replacing(output) as file:
        yield file
