"""Files of lines as a source and as a sink."""

from scribengin.connectors.files.sink.sink import FileSink, FileSinkConfig
from scribengin.connectors.files.source.source import FileSource, FileSourceConfig

__all__ = ["FileSink", "FileSinkConfig", "FileSource", "FileSourceConfig"]
