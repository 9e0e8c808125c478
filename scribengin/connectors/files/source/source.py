"""Files as a source: a directory, a file or a glob, followed as it grows.

A file belongs to the stream crc32(name) % streams, where its name is its path below the directory: the stream's lock in
the registry is the lock of its files, and the position in its commit log says which of them are open. New files are
found whatever their names, by looking for them (HDFS tells only its administrators of changes).

| file_format | records                                                    | a file that is being written            |
|-------------|------------------------------------------------------------|-----------------------------------------|
| text        | lines (with `format: json`, a JSON object a line)          | is read on as it grows                  |
| binary      | frames: 4 bytes of length, the highest first, then payload | is read on as it grows                  |
| parquet     | rows; the files' columns are the source's                  | is read once its end is there           |
| any codec   | lines or frames                                            | is read once it is still for `settle_s` |

A last line without a newline waits for `settle_s`, too: somebody may be in the middle of it. Should it grow in mid-line
after that, it is an error, because half a line has been read as a record. What is read once may not change later; files
may be renamed, and others may take their names (matching.py).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Annotated, Literal, Self

import pyarrow as pa
from pydantic import Field, field_validator, model_validator

from scribengin.base.clock import Clock
from scribengin.base.model import NEVER, Position
from scribengin.connectors.contract import (
    RECORD_BYTES_MAX,
    RECORD_SCHEMA,
    Endpoint,
    Source,
    SourceConfig,
    SourceStreamDescriptor,
    SourceStreamReader,
    StartAt,
)
from scribengin.connectors.files.formats.compression import CODEC_OF_SUFFIX, Codec, CompressedReading
from scribengin.connectors.files.formats.growing import Framing, GrowingReading
from scribengin.connectors.files.formats.kinds import NOUN
from scribengin.connectors.files.formats.lines import LINE_BYTES_MAX
from scribengin.connectors.files.formats.parquet import ParquetReading, is_complete, read_footer
from scribengin.connectors.files.formats.reading import FileReading, FileToRead
from scribengin.connectors.files.source.finished import FinishedFiles
from scribengin.connectors.files.source.listing import Listing
from scribengin.connectors.files.source.position import FilePosition
from scribengin.connectors.files.source.stream import FileStreamReader
from scribengin.errors import SourceMissing
from scribengin.filesystems.contract import FileInfo, is_hidden
from scribengin.filesystems.paths import Pattern, absolute, any_of, file_system


class FileSourceConfig(SourceConfig):
    """Records in files. Files and directories whose names begin with `_` or `.` are not input."""

    kind: Literal["hdfs"]
    """Files: local paths, `hdfs://`, and what fsspec opens."""
    path: str
    """A directory (and all below it), a file, or a glob; a URL (hdfs://..., s3://...), or a local path, taken from the
    current directory when it is relative."""
    file_format: Literal["text", "binary", "parquet"] = "text"
    """`text`: a record a line. `binary`: each record behind its length in four bytes, the highest first. `parquet`: its
    columns are the source's."""
    codec: Literal["auto", "none", "gzip", "bz2", "zstd", "lz4"] = "auto"
    """How files of text or frames are compressed; `auto`: as their names end (.gz, .bz2, .zst, .lz4)."""
    schema_file: str | None = None
    """The Parquet file whose columns are the source's. Default: the first one that is there."""
    record_bytes_max: int = Field(default=RECORD_BYTES_MAX, ge=1, le=LINE_BYTES_MAX)
    """A longer line or frame, or row of Parquet (as it is in memory), is a bad record: of a file of 200 kB,
    decompressed, it could fill a worker's memory."""
    # Which stream a file is of, and so where it was read, depends on their number.
    streams: Annotated[int, NEVER] = Field(default=1, ge=1, le=10_000)
    """How many streams the files are spread over, by their names. It stays what it was at submission."""
    on_their_way: tuple[str, ...] = ("*._COPYING_", "*.tmp", "*.inprogress", "*.inprogress.*")
    """Files with such names, and all in directories with such names, are not there yet: their writers rename them once
    they are complete. Patterns of one part of a path each. What begins with `_` or `.` is hidden anyway."""
    settle_s: float = Field(default=10.0, ge=0)
    """A file is complete once it has not been written to for this long: its last line needs no newline then, and it is
    decompressed. 0 is right where files come under their names by a rename only."""
    follow: bool = True
    """False: the source ends when everything that is there has been read."""

    @field_validator("path", "schema_file")
    @classmethod
    def _absolute_path(cls, value: str | None) -> str | None:
        return None if value is None else absolute(value)

    @field_validator("path")
    @classmethod
    def _is_a_pattern(cls, value: str) -> str:
        Pattern.of(value)
        return value

    @model_validator(mode="after")
    def _parquet_is_columns(self) -> Self:
        if self.file_format == "parquet" and self.format != "raw":
            raise ValueError("file_format: parquet has columns of its own, and goes with format: raw")
        if self.file_format == "parquet" and self.codec not in ("auto", "none"):
            raise ValueError("file_format: parquet is compressed inside, as its files say: leave codec out")
        if self.schema_file is not None and self.file_format != "parquet":
            raise ValueError("schema_file goes with file_format: parquet, and only with it")
        return self

    def endpoint(self) -> Endpoint:
        return Endpoint(NOUN, "", self.path)

    def reads(self, thing: Endpoint) -> bool:
        return thing.noun == NOUN and f"{self.path.rstrip('/')}/".startswith(f"{thing.name}/")

    def still_reads(self, stream: str, before: SourceConfig) -> bool:
        """A stream is a share of all files below one directory."""
        return Pattern.of(self.path).base == Pattern.of(before.endpoint().name).base

    def reads_again(self, first: Endpoint) -> bool:
        """Also without `follow`: it ends when it finds nothing more, and may find what was written meanwhile."""
        pattern = Pattern.of(self.path)
        base = f"{pattern.base.rstrip('/')}/"
        if first.noun != NOUN or not first.name.startswith(base):
            return False
        name = first.name.removeprefix(base)
        return not is_hidden(name) and bool(pattern.matching([FileInfo(name, 0, 0)], any_of(self.on_their_way)))

    def codec_of(self, name: str) -> Codec | None:
        """How the file of that name is compressed, if it is."""
        if self.codec == "auto":
            return CODEC_OF_SUFFIX.get(name.rpartition(".")[2].lower())
        return None if self.codec == "none" else self.codec


class FileSource(Source):
    """All files that the configuration means, spread over its streams."""

    def __init__(
        self,
        name: str,
        config: FileSourceConfig,
        clock: Clock,
        finished: Callable[[str], FinishedFiles] | None = None,
    ) -> None:
        """`finished`: where a stream of that name keeps the names of finished files that a commit cannot hold; without
        it there may be no more than that. Raises ConfigInvalid when no file system opens the path.
        """
        self._name = name
        self._config = config
        self._clock = clock
        self._finished = finished
        self._listing = Listing(config.path, clock, config.on_their_way)
        self._schema: pa.Schema | None = None if config.file_format == "parquet" else RECORD_SCHEMA

    @property
    def schema(self) -> pa.Schema:
        """RECORD_SCHEMA, or the columns of the Parquet files. Raises SourceMissing while there is none of them."""
        if self._schema is None:
            self._schema = self._columns()
        return self._schema

    @property
    def remote_readable(self) -> bool:
        return "://" in self._config.path

    @property
    def record_bytes_max(self) -> int | None:
        return self._config.record_bytes_max if self._config.file_format == "parquet" else None

    def streams(self) -> list[SourceStreamDescriptor]:
        self._listing.check()
        return [SourceStreamDescriptor(source=self._name, name=str(k)) for k in range(self._config.streams)]

    def open_reader(self, stream: SourceStreamDescriptor) -> SourceStreamReader:
        config = self._config
        return FileStreamReader(
            self._listing,
            int(stream.name),
            _Readings(config, lambda: self.schema),
            self._finished(stream.name) if self._finished is not None else None,
            self._clock,
            what=f"{config.path} (stream {stream.name})",
            streams=config.streams,
            settle_s=config.settle_s,
            follow=config.follow,
        )

    def position_at(self, stream: SourceStreamDescriptor, at: StartAt, before: Position | None = None) -> Position:
        if at.kind != "earliest":
            return super().position_at(stream, at, before)
        # Folds are counted on: a stale owner's sweep takes nodes of the folds that it knows.
        position = FilePosition(self._config.streams, fold=int((before or {}).get("fold", 0)))
        return position.to_position(what=f"{self._config.path} (stream {stream.name})")

    def close(self) -> None:
        """Nothing is held."""

    def _columns(self) -> pa.Schema:
        if self._config.schema_file is not None:
            return read_footer(self._complete_file(self._config.schema_file)).schema
        listed = self._listing.now(even_if_costly=True)
        for info in listed.infos:
            url = self._listing.url(info, listed)
            files, path = self._listing.at(url)
            with suppress(FileNotFoundError):  # deleted since it was found
                size = files.readable(path, info.size_bytes)
                file = FileToRead(url, size, False, partial(files.read, path), info)
                if size and size == info.size_bytes and is_complete(file):
                    return read_footer(file).schema
        raise SourceMissing(
            f"there is no complete Parquet file in {self._config.path} whose columns could be the source's: put one "
            "there, or name one of the same columns in schema_file"
        )

    def _complete_file(self, url: str) -> FileToRead:
        files, path = file_system(url)
        try:
            info = files.find(path)[0]
        except (FileNotFoundError, IndexError):
            raise SourceMissing(f"there is no {url}: correct the source's schema_file") from None
        return FileToRead(url, info.size_bytes, True, partial(files.read, path), info)


class _Readings:
    """How each file of a stream is read."""

    def __init__(self, config: FileSourceConfig, schema: Callable[[], pa.Schema]) -> None:
        self._config = config
        self._parquet = ParquetReading(schema, config.record_bytes_max)
        framing: Framing = "binary" if config.file_format == "binary" else "text"
        self._plain = GrowingReading(framing, config.settle_s, config.record_bytes_max)
        self._compressed = {
            codec: CompressedReading(framing, codec, config.record_bytes_max) for codec in CODEC_OF_SUFFIX.values()
        }

    def of(self, name: str) -> FileReading:
        """How the file of that name is."""
        if self._config.file_format == "parquet":
            return self._parquet
        codec = self._config.codec_of(name)
        return self._plain if codec is None else self._compressed[codec]
