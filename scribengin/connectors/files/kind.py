"""Files as a kind of connector."""

from __future__ import annotations

from functools import partial

from scribengin.connectors.files.sink.sink import FileSink, FileSinkConfig
from scribengin.connectors.files.source.finished import FinishedFiles
from scribengin.connectors.files.source.source import FileSource, FileSourceConfig
from scribengin.connectors.opening import Environment, Kind


def _open_source(name: str, config: FileSourceConfig, environment: Environment) -> FileSource:
    return FileSource(name, config, environment.clock, partial(_finished, name, environment))


def _finished(source: str, environment: Environment, stream: str) -> FinishedFiles:
    node = environment.nodes.source_stream(environment.dataflow, source, stream)
    return FinishedFiles(environment.registry, f"{node}/finished")


def _open_sink(name: str, config: FileSinkConfig, environment: Environment) -> FileSink:
    return FileSink(name, config, environment.registry, environment.nodes, environment.clock)


FILES = Kind(FileSourceConfig, FileSinkConfig, _open_source, _open_sink, packages=("hdfs_native",))
