"""Files of lines as a sink: exactly once, and merged by the master, so that the last records wait for nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Literal

import pyarrow as pa
from pydantic import Field, field_validator

from scribengin.clock import Clock
from scribengin.connectors.contract import Attempt, Sink, SinkConfig, SinkStreamDescriptor, SinkStreamWriter
from scribengin.connectors.files.lines import batches
from scribengin.connectors.files.merge import StreamMerge, visible_files
from scribengin.connectors.files.paths import absolute, durable_file_system
from scribengin.connectors.files.segments import PRIVATE, MergeDescriptor, StreamLayout, segment_keys
from scribengin.connectors.files.writer import FileSinkWriter
from scribengin.effect import effect
from scribengin.errors import ConfigInvalid
from scribengin.model import node_name
from scribengin_registry.contract import Registry
from scribengin_registry.errors import NodeExists

SUFFIXES = {"json": "jsonl", "raw": "txt"}


class FileSinkConfig(SinkConfig):
    """Lines of text in the directory `path`, as `part-<stream>-<sequence>` files that appear whole and never change."""

    kind: Literal["hdfs"]
    path: str
    """A relative path is taken from the current directory."""
    merge_bytes: int = Field(default=64 * 1024 * 1024, ge=1)
    """Segments are merged into final files of about this size ..."""
    merge_age_s: float = Field(default=5.0, ge=0)
    """... or smaller ones, when the oldest segment has waited for this long."""

    @field_validator("path")
    @classmethod
    def _absolute_path(cls, value: str) -> str:
        return absolute(value)


class FileSink(Sink):
    """A directory that one dataflow writes. Its streams are numbered from 0, as tasks are."""

    def __init__(self, name: str, config: FileSinkConfig, registry: Registry, sinks_node: str, clock: Clock) -> None:
        """`sinks_node`: the registry path below which every resource has its node. Raises ConfigInvalid."""
        self._name = name
        self._config = config
        self._registry = registry
        self._sinks_node = sinks_node
        self._clock = clock
        self._files = durable_file_system(config.path)
        self._root = os.path.realpath(config.path)
        if self._files.size(self._root) is not None and not self._files.is_directory(self._root):
            raise ConfigInvalid(f"{config.path} is a file, and a sink writes several: name a directory")
        self._merges: dict[str, StreamMerge] = {}

    @property
    def resource(self) -> str:
        return f"file:{self._root}"

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
        return FileSinkWriter(self._files, layout, self._registry, node, attempt, part_bytes=self._config.merge_bytes)

    def maintain(self, registry: Registry, *, idle: bool) -> None:
        for stream in self._files.names(f"{self._root}/{PRIVATE}/committed"):
            if stream.isdecimal() and stream not in self._merges:
                self._merges[stream] = self._merge_of(stream)
        for merge in self._merges.values():
            merge.run(registry, idle=idle)

    def committed(self, stream: SinkStreamDescriptor) -> Iterable[pa.RecordBatch]:
        layout = self._layout(stream.name)
        for blocks in visible_files(self._files, layout, self._registry, self._node(stream.name)):
            yield from batches(blocks)

    def close(self) -> None:
        """Nothing is held."""

    def _layout(self, stream: str) -> StreamLayout:
        return StreamLayout(self._root, stream, SUFFIXES[self._config.format])

    def _node(self, stream: str) -> str:
        return f"{self._sinks_node}/{node_name(self.resource)}/{node_name(stream)}/merge"

    def _create_node(self, layout: StreamLayout) -> None:
        """A node of a new generation: later than every segment that a dataflow before this one has left here."""
        left = segment_keys(self._files.names(layout.staged) + self._files.names(layout.committed))
        generation = max([self._clock.now_ms(), *(key.generation + 1 for key in left)])
        data = MergeDescriptor(generation=generation).to_bytes()
        try:
            with effect("files.sink_create"):
                self._registry.create(self._node(layout.stream), data, parents=True)
        except NodeExists:
            return  # somebody else has just done the same

    def _merge_of(self, stream: str) -> StreamMerge:
        config = self._config
        return StreamMerge(
            self._files,
            self._layout(stream),
            self._node(stream),
            self._clock,
            merge_bytes=config.merge_bytes,
            merge_age_s=config.merge_age_s,
        )
