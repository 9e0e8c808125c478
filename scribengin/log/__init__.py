"""The log store: DLSN, entries, segments, metadata, writer, reader, namespace. See docs/internals/log-store.md."""

from scribengin.base.names import DEFAULT_NAMESPACE
from scribengin.base.records import PAYLOAD, RECORD_SCHEMA
from scribengin.log.config import LogConfig, ReadAhead, ReaderConfig
from scribengin.log.format.dlsn import DLSN, DlsnRange
from scribengin.log.format.records import LogRecord
from scribengin.log.format.staged import StagedRange
from scribengin.log.inspect.info import LogInfo
from scribengin.log.inspect.log import LogInspection
from scribengin.log.metadata.binding import NamespaceDescriptor
from scribengin.log.metadata.listener import NamespaceListener
from scribengin.log.metadata.names import WILDCARD, NamespaceUri
from scribengin.log.metadata.segments import LogDescriptor, SegmentDescriptor
from scribengin.log.namespace import LogNamespace
from scribengin.log.read.batches import READ_SCHEMA
from scribengin.log.read.ranges import EntryRange, RangePlan
from scribengin.log.read.reader import LogReader, RecordPlace
from scribengin.log.read.starts import FIRST, LAST, TAIL, SequenceId, Start, Time, TransactionId
from scribengin.log.retention.compression import Codec
from scribengin.log.retention.copying import Copied
from scribengin.log.retention.holds import RetentionHold
from scribengin.log.retention.migration import Migrated, migrate_namespace
from scribengin.log.retention.truncation import Purged
from scribengin.log.write.commit_thread import LOGS_AT_ONCE, CommitThread
from scribengin.log.write.limits import WriteLimiter
from scribengin.log.write.restored import TakenBack
from scribengin.log.write.results import BulkResult, RefusedRow
from scribengin.log.write.writer import LogWriter

__all__ = [
    "DEFAULT_NAMESPACE",
    "DLSN",
    "FIRST",
    "LAST",
    "LOGS_AT_ONCE",
    "PAYLOAD",
    "READ_SCHEMA",
    "RECORD_SCHEMA",
    "TAIL",
    "WILDCARD",
    "BulkResult",
    "Codec",
    "CommitThread",
    "Copied",
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
    "Migrated",
    "NamespaceDescriptor",
    "NamespaceListener",
    "NamespaceUri",
    "Purged",
    "RangePlan",
    "ReadAhead",
    "ReaderConfig",
    "RecordPlace",
    "RefusedRow",
    "RetentionHold",
    "SegmentDescriptor",
    "SequenceId",
    "StagedRange",
    "Start",
    "TakenBack",
    "Time",
    "TransactionId",
    "WriteLimiter",
    "migrate_namespace",
]
