"""Which files a sink writes: from its configuration to a suffix, and from a file's suffix to what made it."""

from __future__ import annotations

from scribengin.connectors.files.formats.compression import CODEC_OF_SUFFIX, SUFFIXES, CompressedWriting
from scribengin.connectors.files.formats.parquet import ParquetWriting
from scribengin.connectors.files.formats.writing import FileWriting, FramesWriting, LinesWriting, PlainWriting
from scribengin.errors import DataflowError

NOUN = "files"
"""What a sink or a source of files is called."""
LINES = {"json": "jsonl", "raw": "txt"}
"""The suffix of files of lines, by what a line holds."""
_PLAIN: dict[str, PlainWriting] = {suffix: LinesWriting(suffix) for suffix in LINES.values()} | {"bin": FramesWriting()}


def suffix_of(file_format: str, record_format: str, codec: str) -> str:
    """The suffix of the files of a sink with that configuration, without the first dot."""
    if file_format == "parquet":
        return "parquet"
    plain = "bin" if file_format == "binary" else LINES[record_format]
    return plain if codec == "none" else f"{plain}.{SUFFIXES[codec]}"


def writing_of(suffix: str, parquet_codec: str = "snappy") -> FileWriting:
    """What makes and reads the files of that suffix. `parquet_codec` is for new Parquet files only.

    Raises DataflowError for a suffix that no sink of ours has.
    """
    plain, _, compressed = suffix.partition(".")
    if suffix == "parquet":
        return ParquetWriting(parquet_codec)
    codec = CODEC_OF_SUFFIX.get(compressed)
    if plain not in _PLAIN or (compressed and codec is None):
        raise DataflowError(f"'.{suffix}' is no file of a sink; move what is so named out of its directories")
    return _PLAIN[plain] if codec is None else CompressedWriting(_PLAIN[plain], codec)
