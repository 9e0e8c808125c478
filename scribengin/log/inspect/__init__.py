"""Segments and logs looked at end to end."""

from scribengin.log.format.entry import EntryHeader, EntryType
from scribengin.log.inspect.log import LogInspection, Remainder, SegmentReport
from scribengin.log.metadata.check import Finding, MetadataCheck, segment_nodes
from scribengin.log.metadata.segments import LogMetadata
from scribengin.log.store.index import EntryPlace

__all__ = [
    "EntryHeader",
    "EntryPlace",
    "EntryType",
    "Finding",
    "LogInspection",
    "LogMetadata",
    "MetadataCheck",
    "Remainder",
    "SegmentReport",
    "segment_nodes",
]
