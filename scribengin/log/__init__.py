"""The log store: DLSN, entries, segments, metadata, writer, reader, namespace. See ARCHITECTURE.md, "The log
store"."""

from scribengin.log.batches import READ_SCHEMA
from scribengin.log.bulk import BulkResult, RefusedRow
from scribengin.log.config import LogConfig
from scribengin.log.dlsn import DLSN, DlsnRange
from scribengin.log.entry import PAYLOAD, RECORD_SCHEMA
from scribengin.log.info import LogInfo
from scribengin.log.inspection import LogInspection
from scribengin.log.limits import WriteLimiter
from scribengin.log.listener import NamespaceListener
from scribengin.log.metadata import LogDescriptor, NamespaceDescriptor, SegmentDescriptor
from scribengin.log.namespace import LogNamespace
from scribengin.log.ranges import EntryRange, RangePlan
from scribengin.log.reader import LogReader, Place
from scribengin.log.reader_config import ReadAhead, ReaderConfig
from scribengin.log.records import LogRecord
from scribengin.log.repair import Recovered, recover_log
from scribengin.log.retention import Purged
from scribengin.log.staged import StagedRange
from scribengin.log.starts import FIRST, LAST, TAIL, SequenceId, Start, Time, TransactionId
from scribengin.log.writer import LogWriter

__all__ = [
    "DLSN",
    "FIRST",
    "LAST",
    "PAYLOAD",
    "READ_SCHEMA",
    "RECORD_SCHEMA",
    "TAIL",
    "BulkResult",
    "DlsnRange",
    "EntryRange",
    "LogConfig",
    "LogDescriptor",
    "LogInfo",
    "LogInspection",
    "LogNamespace",
    "LogReader",
    "LogRecord",
    "LogWriter",
    "NamespaceDescriptor",
    "NamespaceListener",
    "Place",
    "Purged",
    "RangePlan",
    "ReadAhead",
    "ReaderConfig",
    "Recovered",
    "RefusedRow",
    "SegmentDescriptor",
    "SequenceId",
    "StagedRange",
    "Start",
    "Time",
    "TransactionId",
    "WriteLimiter",
    "recover_log",
]
