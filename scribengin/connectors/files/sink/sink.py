"""Files as a sink: exactly once, and merged by the master, so that the last records wait for nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Self

import pyarrow as pa
from pydantic import Field, field_validator, model_validator

from scribengin.base.clock import Clock
from scribengin.base.failpoints import failpoint
from scribengin.connectors.contract import Attempt, Endpoint, Sink, SinkConfig, SinkStreamDescriptor, SinkStreamWriter
from scribengin.connectors.files.formats.kinds import NOUN, suffix_of, writing_of
from scribengin.connectors.files.formats.writing import FileWriting
from scribengin.connectors.files.sink.merge import StreamMerge, visible_files
from scribengin.connectors.files.sink.partitions import FilePartitionConfig
from scribengin.connectors.files.sink.segments import PRIVATE, MergeDescriptor, SegmentKey, StreamLayout, segment_keys
from scribengin.connectors.files.sink.writer import FileShape, FileSinkWriter
from scribengin.connectors.opening import StreamNodes
from scribengin.errors import ConfigInvalid, DataflowError
from scribengin.filesystems.paths import absolute, durable_file_system
from scribengin_registry.contract import Registry
from scribengin_registry.errors import NodeExists


class FileSinkConfig(SinkConfig):
    """Files in the directory `path`, as `part-<stream>-<sequence>` files that appear whole and never change."""

    kind: Literal["hdfs"]
    """Files: local paths, `hdfs://`, and what fsspec opens."""
    path: str
    """A relative path is taken from the current directory."""
    format: Literal["raw", "json", "columns"] = "raw"  # type: ignore[assignment]  # one choice more than the base's
    """`raw`: the column `payload` is a record. `json`: the output's columns become one JSON object a record. `columns`:
    they are the file's; that goes with `file_format: parquet`, and is its default."""
    file_format: Literal["text", "parquet", "binary"] = "text"
    """`text`: a record a line. `parquet`: the output's columns. `binary`: a record behind its length in four bytes, the
    highest first."""
    codec: Literal["none", "gzip", "bz2", "zstd", "lz4", "snappy"] = "none"
    """Compresses whole files (text, binary: all but snappy) or the columns in them (parquet: all but bz2, by default
    snappy)."""
    partition: FilePartitionConfig | None = None
    """Directories below `path`."""
    merge_bytes: int = Field(default=64 * 1024 * 1024, ge=1)
    """Segments are merged into final files of about this size ..."""
    merge_age_s: float = Field(default=60.0, ge=0)
    """... or smaller ones, when the oldest segment of a partition has waited for this long. A final file is not merged
    again, so a slow stream makes one in this time. Until then its directory looks empty: what is committed waits below
    `_scribengin/`. `scribengin stop` merges what waits."""

    @model_validator(mode="before")
    @classmethod
    def _parquet_has_columns(cls, value: Any) -> Any:
        is_parquet = isinstance(value, dict) and value.get("file_format") == "parquet"
        return {"format": "columns", "codec": "snappy", **value} if is_parquet else value

    def seen_late(self) -> str:
        if not self.merge_age_s:
            return ""
        return f"files appear in {self.path} {self.merge_age_s:g} s after their first record (merge_age_s), or larger"

    @field_validator("path")
    @classmethod
    def _absolute_path(cls, value: str) -> str:
        return absolute(value)

    @model_validator(mode="after")
    def _formats_fit(self) -> Self:
        is_parquet = self.file_format == "parquet"
        if (self.format == "columns") != is_parquet:
            raise ValueError("format: columns goes with file_format: parquet, and only with it")
        if self.codec == ("bz2" if is_parquet else "snappy"):
            raise ValueError(f"codec: {self.codec} cannot be had with file_format: {self.file_format}")
        return self

    def endpoint(self) -> Endpoint:
        return Endpoint(NOUN, "", self.path.rstrip("/"))

    def first(self) -> Endpoint:
        directories = self.partition.directories if self.partition else ()
        suffix = suffix_of(self.file_format, self.format, self.codec)
        key = SegmentKey(0, 0, 0, 0, suffix, "/".join(f"{name}=0" for name in directories))
        layout = StreamLayout(self.path.rstrip("/"), "0")
        return Endpoint(NOUN, "", f"{layout.root}/{layout.final_name(0, key)}")


class FileSink(Sink):
    """A directory that one dataflow writes. Its streams are numbered from 0, as tasks are."""

    def __init__(self, name: str, config: FileSinkConfig, registry: Registry, nodes: StreamNodes, clock: Clock) -> None:
        """`nodes`: where its streams have their nodes in the registry. Raises ConfigInvalid."""
        self._name = name
        self._config = config
        self._registry = registry
        self._nodes = nodes
        self._clock = clock
        self._files, self._root = durable_file_system(config.path)
        if self._files.size(self._root) is not None and not self._files.is_directory(self._root):
            raise ConfigInvalid(f"{config.path} is a file, and a sink writes several: name a directory")
        self._merges: dict[str, StreamMerge] = {}

    @property
    def resource(self) -> str:
        return self._files.resource(self._root)

    @property
    def guarantee_note(self) -> str:
        return self._files.promise

    @property
    def side_columns(self) -> pa.Schema:
        side_columns = dict(zip(super().side_columns.names, super().side_columns.types, strict=True))
        return pa.schema(side_columns | (self._config.partition.side_columns if self._config.partition else {}))

    def refuse_unwritable(self) -> None:
        why = self._files.unwritable(self._root)
        if why is not None:
            raise ConfigInvalid(f"sinks.{self._name}: {why}: let this user write there, or name another directory")

    def streams(self, count: int) -> list[SinkStreamDescriptor]:
        return [SinkStreamDescriptor(sink=self._name, resource=self.resource, name=str(k)) for k in range(count)]

    def create(self, streams: Sequence[SinkStreamDescriptor]) -> None:
        for stream in streams:
            layout = self._layout(stream.name)
            for directory in (layout.staged, layout.committed, layout.merging):
                self._files.make_directories(directory)
            if self._registry.find(self._node(stream.name)) is None:
                self._create_node(layout)

    def open_writer(self, stream: SinkStreamDescriptor, attempt: Attempt) -> SinkStreamWriter:
        layout, node = self._layout(stream.name), self._node(stream.name)
        config = self._config
        writing = self._writing_of(suffix_of(config.file_format, config.format, config.codec))
        shape = FileShape(writing, config.partition, part_bytes=config.merge_bytes)
        return FileSinkWriter(self._files, layout, self._registry, node, attempt, shape)

    def maintain(self, registry: Registry, *, idle: bool) -> None:
        for stream in self._files.names(f"{self._root}/{PRIVATE}/committed"):
            if stream.isdecimal() and stream not in self._merges:
                self._merges[stream] = self._merge_of(stream)
        wrong: list[DataflowError] = []
        for merge in self._merges.values():
            try:
                merge.run(registry, idle=idle)
            except DataflowError as error:  # with this stream: the files of the others are merged all the same
                wrong.append(error)
        if wrong:
            raise wrong[0]

    def committed(self, stream: SinkStreamDescriptor) -> Iterable[pa.RecordBatch]:
        layout = self._layout(stream.name)
        for suffix, file in visible_files(self._files, layout, self._registry, self._node(stream.name)):
            yield from self._writing_of(suffix).batches(file)

    def close(self) -> None:
        """Nothing is held."""

    def _layout(self, stream: str) -> StreamLayout:
        partition = self._config.partition
        return StreamLayout(self._root, stream, partition.directories if partition else ())

    def _writing_of(self, suffix: str) -> FileWriting:
        return writing_of(suffix, self._config.codec)

    def _node(self, stream: str) -> str:
        return f"{self._nodes.sink_stream(self.resource, stream)}/merge"

    def _create_node(self, layout: StreamLayout) -> None:
        """A node of a new incarnation: later than every segment that a dataflow before this one has left here."""
        left = segment_keys(self._files.names(layout.staged) + self._files.names(layout.committed))
        incarnation = max([self._clock.now_ms(), *(key.incarnation + 1 for key in left)])
        data = MergeDescriptor(incarnation=incarnation).to_bytes()
        try:
            with failpoint("files.sink_create"):
                self._registry.create(self._node(layout.stream), data, parents=True)
        except NodeExists:
            return  # somebody else has just done the same

    def _merge_of(self, stream: str) -> StreamMerge:
        config = self._config
        return StreamMerge(
            self._files,
            self._layout(stream),
            self._writing_of,
            self._node(stream),
            self._clock,
            merge_bytes=config.merge_bytes,
            merge_age_s=config.merge_age_s,
        )
