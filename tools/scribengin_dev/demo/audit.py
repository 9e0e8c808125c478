"""Reads outputs back: logs with the log's own reader, files as plain files. Nothing here asks the engine for counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd
import pyarrow as pa
from pyarrow import json as arrow_json

from scribengin.filesystems.paths import file_system
from scribengin.log import LogNamespace

_BATCH_RECORDS = 65_536
_TIMES = ("time_hour", "hour", "begins", "ends")  # they would become timestamps
_PARSE = arrow_json.ParseOptions(explicit_schema=pa.schema({name: pa.string() for name in _TIMES}))


def read_logs(namespace: LogNamespace, prefix: str) -> pd.DataFrame:
    """Every visible record of the logs below `prefix`, its JSON payload taken apart into columns."""
    payloads = [payload for name in namespace.names(prefix) for payload in _payloads(namespace, name)]
    return _table(payloads)


def read_files(directory: str) -> pd.DataFrame:
    """Every line of the final JSON-lines files in a directory (a path or URL), as anybody would read them."""
    files, root = file_system(directory)
    final = [info for info in files.find(root, depth_max=1) if info.name.endswith(".jsonl")]
    return _table([files.read(f"{root}/{info.name}", 0, info.size_bytes) for info in final])


def _payloads(namespace: LogNamespace, name: str) -> Iterator[bytes]:
    with namespace.open_reader(name) as reader:
        end = reader.end_position()
        while reader.position < end and (batch := reader.read_batch(_BATCH_RECORDS)) is not None:
            yield _lines(batch)


def _lines(batch: pa.RecordBatch) -> bytes:
    return b"".join(payload + b"\n" for payload in batch.column("payload").to_pylist())


def _table(pieces: Sequence[bytes]) -> pd.DataFrame:
    text = b"".join(pieces)
    if not text:
        return pd.DataFrame()
    return arrow_json.read_json(pa.BufferReader(text), parse_options=_PARSE).to_pandas()
