"""The log store: DLSN, entries, segments, metadata, writer, reader, namespace. See ARCHITECTURE.md, "The log
store"."""

from scribengin.log.config import LogConfig
from scribengin.log.dlsn import DLSN, DlsnRange, TransactionId
from scribengin.log.entry import PAYLOAD, RECORD_SCHEMA
from scribengin.log.metadata import LogDescriptor, NamespaceDescriptor, SegmentDescriptor
from scribengin.log.namespace import LogInfo, LogNamespace
from scribengin.log.ranges import EntryRange, RangePlan
from scribengin.log.reader import READ_SCHEMA, LogReader
from scribengin.log.records import LogRecord
from scribengin.log.staged import StagedRange
from scribengin.log.writer import LogWriter

__all__ = [
    "DLSN",
    "PAYLOAD",
    "READ_SCHEMA",
    "RECORD_SCHEMA",
    "DlsnRange",
    "EntryRange",
    "LogConfig",
    "LogDescriptor",
    "LogInfo",
    "LogNamespace",
    "LogReader",
    "LogRecord",
    "LogWriter",
    "NamespaceDescriptor",
    "RangePlan",
    "SegmentDescriptor",
    "StagedRange",
    "TransactionId",
]
