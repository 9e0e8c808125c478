"""The whole exception tree. Every message says what happened, to which thing, and what to do next.

ScribenginError
├── RegistryError ...          drawn in scribengin_registry.errors
├── ConfigError                what a user wrote cannot be used; exit code 2, nothing was created
│   ├── ConfigInvalid          an unknown key, a wrong type, a missing value
│   ├── PackageInvalid         the transformation's package or function cannot be imported
│   ├── SourceMissing          a source names something that does not exist
│   ├── ResourceTaken          another dataflow owns the sink
│   └── NotNarrow              the transformation needs a shuffle; names the operator
├── DescriptorUnreadable       a registry node does not hold what it should
├── LogError
│   ├── LogNotFound · LogExists · InvalidLogName · NamespaceNotBound     exit code 2
│   │   └── ColdSegmentMissing a file in cold storage is not there; names its segment
│   ├── StoreNotMounted        the directory of a namespace is another one, or empty, on this machine
│   ├── StoreElsewhere         the directory of a namespace is on another machine             exit code 2
│   ├── LogBusy                the log cannot be changed so while somebody uses it            exit code 2
│   │   └── ReaderBehind       a registered reader has not read what was to be given up
│   ├── ConfigConflict         somebody else has changed the log's configuration meanwhile
│   ├── OwnershipAcquireFailed the log's lock was not to be had in time
│   ├── Fenced                 another writer owns the log now; what was not acked may be lost
│   ├── LogWriteFailed         the disk refused (full, failed fsync); the segment is never written again
│   │   └── StoreUnreachable   its store (HDFS) does not answer just now; SystemUnreachable, too: tried again and again
│   ├── TransactionIdOutOfOrder · RecordTooLarge
│   ├── SenderUnknown          which of a sender's records are in the log is not known any more
│   ├── OverCapacity           too many records are unacknowledged; nothing was queued
│   │   ├── WrittenTooFast     a proxy's hard rate is used up
│   │   └── WritersTooMany     a proxy has too many segments open; StoreUnreachable, too: tried again and again
│   ├── MessageInvalid         what came over the wire is no request of a proxy's client, or no answer to one
│   │   └── MessageDamaged     it was cut or damaged on its way: sent again
│   ├── ProxyUnreachable       no proxy has done what was asked in time; SystemUnreachable, too
│   ├── AccessDenied           a proxy's rules do not let the caller do that to the log        exit code 2
│   │   └── CallerUnknown      a proxy asks callers who they are, and does not know this one
│   ├── EndOfStream            the log was sealed, and everything in it was read
│   ├── LogClosed              a writer or reader was used after close()
│   │   └── ReadCancelled      it was closed while a call waited
│   ├── ReaderIdle             nothing came for too long, though the log has a writer
│   ├── ReaderLockLost         the session that held a subscriber's lock ended
│   ├── DamagedEntry           an entry's checksum does not hold; carries its position
│   ├── InconsistentLog        the list of segments has a gap or contradicts itself
│   ├── RecoveryRefused        valid entries follow the damage, or a pending round cannot be resolved
│   ├── PositionTruncated      the position lies before the first record that is kept
│   └── RangeGone              a planned range's file was dropped since; plan it again
├── DataflowError
│   ├── DataflowNotFound · DataflowExists · DataflowBusy                 exit code 2
│   │   └── RewindOvertaken    what was to be read again has gone meanwhile
│   ├── ChainNotFound · ChainExists                                       exit code 2
│   ├── EditConflict           somebody else has edited the dataflow's config meanwhile        exit code 2
│   ├── StaleOwner             another worker owns the task's streams now
│   ├── DecisionUnknown        whether a coordinator has committed a round is not known yet: take over again
│   ├── DecisionMissing        the coordinator of a prepared round does not know it any more
│   ├── CheckpointMismatch     a streaming query's checkpoint and the commit logs contradict each other
│   ├── TransformationFailed   the user's code raised; carries their traceback and the record's position
│   ├── RecordRefused          a sink cannot take a record as it is
│   ├── TooManyBadRecords      more bad records in a round than the error route allows
│   ├── TableFailed            Spark could not read or write a table of `kind: spark`; says what its system said
│   └── CommitTooLarge         a round's transaction would exceed what the registry takes
├── SystemUnreachable          the system of a source or sink (a broker) does not answer; tried again and again
│   └── OutOfRoom              a disk or a quota is full; the same
├── DafkaError
│   ├── FrameInvalid           what came from a peer is no message of Dafka's, or a name does not fit into one
│   ├── RecordsUnacknowledged  a producer was closed, and no store has acknowledged all it has published
│   ├── ProducerFull           too many records are unacknowledged; this one was not published
│   ├── StoresAhead            stores have more of a producer than was ever published as it
│   ├── DafkaClosed            a role was used after close()
│   ├── RecordsGone            nobody keeps the records any more that a consumer was to begin or go on with
│   └── TimeUnknown            nobody can tell which record was the first of the time that a consumer begins with
├── LauncherError              a container could not be started
│   └── ContainerUnreachable   it was told to end, and its machine does not say that it has
├── SparkUnavailable           no Java, or Spark did not start
└── ServerError                a server for tests and benchmarks (scribengin_dev.servers)
    ├── ArtifactUnavailable    its jars cannot be fetched, or are not those of the lock file
    └── ServerDown             it did not start, or has ended; carries the end of its log
"""

from __future__ import annotations

from scribengin_registry.errors import NO_ROOM, RegistryError, ScribenginError


class ConfigError(ScribenginError):
    """What a user wrote cannot be used. Nothing was created."""

    exit_code = 2


class ConfigInvalid(ConfigError):
    """An unknown key, a wrong type, a missing value, a file that is not there."""


class PackageInvalid(ConfigError):
    """The transformation's package or function cannot be imported."""


class SourceMissing(ConfigError):
    """A source names something that does not exist."""


class ResourceTaken(ConfigError):
    """Another dataflow owns the sink."""


class NotNarrow(ConfigError):
    """The transformation needs a shuffle, a window, a limit or an aggregate, and has no `state:` section."""


class DescriptorUnreadable(ScribenginError):
    """A registry node does not hold what it should."""


class LogError(ScribenginError):
    """Something about a log of the log store."""


class LogNotFound(LogError):
    """No such log (any more)."""

    exit_code = 2

    def __init__(self, message: str, *, log: str | None = None) -> None:
        """`log`: the name that was asked for, where no log has it."""
        super().__init__(message)
        self.log = log


class ColdSegmentMissing(LogNotFound):
    """A file in cold storage is not there. `segment` is the number of the log's segment that it holds."""

    def __init__(self, message: str, *, segment: int) -> None:
        super().__init__(message)
        self.segment = segment


class LogExists(LogError):
    """A log of that name exists already."""

    exit_code = 2


class InvalidLogName(LogError):
    """The name breaks the rules for log names."""

    exit_code = 2


class NamespaceNotBound(LogError):
    """The namespace has no store bound to it, or is bound to another one."""

    exit_code = 2


class StoreNotMounted(LogError):
    """The directory is not that of the namespace: its disk is not mounted, or on another machine."""

    exit_code = 2


class StoreElsewhere(LogError):
    """The namespace keeps its logs in a directory of another machine, which nobody said that this one shares."""

    exit_code = 2


class LogBusy(LogError):
    """The log cannot be changed so while somebody uses it."""

    exit_code = 2


class ReaderBehind(LogBusy):
    """A registered reader has not read yet what was to be given up."""


class ConfigConflict(LogError):
    """Somebody else has changed the log's configuration meanwhile."""

    exit_code = 2


class OwnershipAcquireFailed(LogError):
    """The log's lock was not to be had in time."""


class Fenced(LogError):
    """Another writer owns the log now. What was not acknowledged may be lost."""


class LogWriteFailed(LogError):
    """The disk refused. The segment is never written again; open a new writer."""


class TransactionIdOutOfOrder(LogError):
    """Transaction ids of a log never decrease."""


class RecordTooLarge(LogError):
    """The record is larger than the log is configured for."""


class OverCapacity(LogError):
    """Too many records are unacknowledged. Nothing of the call was queued: wait for some of them, and try again."""


class WrittenTooFast(OverCapacity):
    """More records or bytes a second come than a proxy lets in. Nothing of the call was written: try again later."""


class SenderUnknown(LogError):
    """Which records of a sender are in the log is not known, or not any more. Nothing of the call was written; whether
    what it sent before, and got no answer to, is in the log, cannot be told."""


class MessageInvalid(LogError):
    """What came over the wire is no request of a proxy's client, or no answer to one. A proxy refuses it at once:
    another version wrote it, and would write it again."""


class MessageDamaged(MessageInvalid):
    """What came over the wire was cut or damaged on its way, by its length or a checksum. It is sent again."""


class EndOfStream(LogError):
    """The log was marked as ended, and everything in it was read."""


class LogClosed(LogError):
    """A writer or reader was used after close()."""


class ReadCancelled(LogClosed):
    """The reader was closed, or its opening cancelled, while a call waited."""


class ReaderIdle(LogError):
    """Nothing came for longer than the reader accepts, though somebody holds the log open for writing."""


class ReaderLockLost(LogError):
    """The session ended that held a subscriber's lock: another reader may have it by now."""


class DamagedEntry(LogError):
    """An entry whose checksum does not hold, or that contradicts its place. `position` is where a reader stopped, and
    `offset` the byte of the segment."""

    def __init__(self, message: str, *, position: str, offset: int = 0) -> None:
        super().__init__(message)
        self.position = position
        self.offset = offset


class InconsistentLog(LogError):
    """The list of segments has a gap or contradicts itself."""


class SegmentsMoved(LogError):
    """The list of segments changed while it was looked at. Look again."""


class RecoveryRefused(LogError):
    """Recovery would lose data: valid entries follow the damage, or a pending round cannot be resolved."""


class PositionTruncated(LogError):
    """The position lies before the first record that is kept."""


class RangeGone(LogError):
    """The file that a planned range names is not there any more. Plan again: the log says where its records are."""


class DataflowError(ScribenginError):
    """Something about a dataflow."""


class DataflowNotFound(DataflowError):
    """No dataflow of that name."""

    exit_code = 2


class DataflowExists(DataflowError):
    """A dataflow of that name exists already."""

    exit_code = 2


class DataflowBusy(DataflowError):
    """The dataflow is not in a state for that."""

    exit_code = 2


class RewindOvertaken(DataflowBusy):
    """What was to be read again has gone meanwhile, and nothing was rewound."""


class ChainNotFound(DataflowError):
    """No chain of that name, or no dataflow of that name in it."""

    exit_code = 2


class ChainExists(DataflowError):
    """A chain of that name exists already."""

    exit_code = 2


class EditConflict(DataflowError):
    """Somebody else has edited the dataflow's config meanwhile. The message says what they did."""

    exit_code = 2


class StaleOwner(DataflowError):
    """Another worker owns the task's streams now. This one must not write, complete or roll back any more."""


class DecisionUnknown(DataflowError):
    """Whether a transaction coordinator has committed a round is not known, or another owner has fenced it
    there. Nothing may be concluded: take the task over again, which fences it and then asks."""


class DecisionMissing(DataflowError):
    """A round is prepared, and the system that decides about it does not know it any more, or says something else."""


class CheckpointMismatch(DataflowError):
    """A streaming query's checkpoint and the commit logs contradict each other, or it is not there. Nothing was read or
    written. The message names both sides."""


class TransformationFailed(DataflowError):
    """The user's code raised. The message begins with their traceback; `reason` is its last line.

    `row` is the place, in the records of that run, of the one where it seems to have stopped, if that is known: a
    guess.
    """

    def __init__(self, message: str, *, reason: str, row: int | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.row = row


class RecordRefused(DataflowError):
    """A sink cannot take a record as it is: what it must have is missing, or wrong."""


class RecordMisplaced(DataflowError):
    """A record stands in another stream of its source than the one that its key belongs to."""


class TooManyBadRecords(DataflowError):
    """More bad records in one round than `errors.records_max` allows."""


class TableFailed(DataflowError):
    """Spark could not read or write a table of `kind: spark`. Nothing of the round was committed."""


class CommitTooLarge(DataflowError):
    """A round's transaction would exceed what the registry takes."""


class SystemUnreachable(ScribenginError):
    """The system of a source or a sink does not answer. What was asked of it is asked again, as long as it takes."""


class StoreUnreachable(LogWriteFailed, SystemUnreachable):
    """The system that keeps a log's segments does not answer. As any LogWriteFailed, but it is worth waiting for."""


class WritersTooMany(OverCapacity, StoreUnreachable):
    """A proxy has as many segments open for writers elsewhere as it may. Nothing was made: it is worth waiting for."""


class ProxyUnreachable(LogError, SystemUnreachable):
    """No proxy has done in time what was asked of it. Of records, some of which may be in the log all the same."""

    def __init__(self, message: str, *, timed_out: bool = False) -> None:
        """`timed_out`: the proxy was waited for until the limit of the call, and nothing says that it is gone."""
        super().__init__(message)
        self.timed_out = timed_out


class AccessDenied(LogError):
    """The rules of a proxy do not let its caller do that to the log. Nothing was done."""

    exit_code = 2


class CallerUnknown(AccessDenied):
    """A proxy asks its callers for a token, and none came, or one that it does not know. Nothing was done."""


class OutOfRoom(SystemUnreachable):
    """A disk or a quota is full. What was not written is written once there is room, as long as it takes."""


class DafkaError(ScribenginError):
    """Something about the brokerless live path."""


class FrameInvalid(DafkaError):
    """What came from a peer is no message of Dafka's, or a name or number does not fit into one."""


class RecordsUnacknowledged(DafkaError):
    """A producer was closed, and stores have not acknowledged all that it has published. It may be lost."""


class ProducerFull(DafkaError):
    """Too many records are unacknowledged. This one was not published: try again once a store has caught up."""


class StoresAhead(DafkaError):
    """A store has more of a producer that goes on than was ever published as it. What it publishes next, stores would
    take for what they have."""


class DafkaClosed(DafkaError):
    """A producer, consumer, store or tower was used after close()."""


class RecordsGone(DafkaError):
    """Nobody keeps the records any more that a consumer was to begin or go on with."""


class TimeUnknown(DafkaError):
    """Nobody who is there can tell which record of a producer was the first of the time that a consumer begins with."""


class LauncherError(ScribenginError):
    """A container could not be started or is not what it was."""


class ClusterNotReady(LauncherError):
    """A container of the cluster does not find what the dataflow needs. Nothing was started."""


class ContainerUnreachable(LauncherError):
    """A container was told to end, and its machine does not say that it has. It may go on there; it is fenced."""


class SparkUnavailable(ScribenginError):
    """No Java, or Spark did not start."""


class ServerError(ScribenginError):
    """Something about a server that tests and benchmarks run."""


class ArtifactUnavailable(ServerError):
    """A jar cannot be fetched, or is not the one that the lock file names."""


class ServerDown(ServerError):
    """The server, or a tool of its, did not start or has ended. The message carries the end of what it wrote."""


def is_full(error: BaseException) -> bool:
    """Whether a full disk or quota is behind an error."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OutOfRoom) or (isinstance(seen, OSError) and seen.errno in NO_ROOM):
            return True
        seen = seen.__cause__
    return False


__all__ = [
    "AccessDenied",
    "ArtifactUnavailable",
    "CallerUnknown",
    "ChainExists",
    "ChainNotFound",
    "ClusterNotReady",
    "ColdSegmentMissing",
    "CommitTooLarge",
    "ConfigConflict",
    "ConfigError",
    "ConfigInvalid",
    "ContainerUnreachable",
    "DafkaClosed",
    "DafkaError",
    "DamagedEntry",
    "DataflowBusy",
    "DataflowError",
    "DataflowExists",
    "DataflowNotFound",
    "DecisionMissing",
    "DecisionUnknown",
    "DescriptorUnreadable",
    "EditConflict",
    "EndOfStream",
    "Fenced",
    "FrameInvalid",
    "InconsistentLog",
    "InvalidLogName",
    "LauncherError",
    "LogBusy",
    "LogClosed",
    "LogError",
    "LogExists",
    "LogNotFound",
    "LogWriteFailed",
    "MessageDamaged",
    "MessageInvalid",
    "NamespaceNotBound",
    "NotNarrow",
    "OutOfRoom",
    "OverCapacity",
    "OwnershipAcquireFailed",
    "PackageInvalid",
    "PositionTruncated",
    "ProducerFull",
    "ProxyUnreachable",
    "RangeGone",
    "ReadCancelled",
    "ReaderBehind",
    "ReaderIdle",
    "ReaderLockLost",
    "RecordRefused",
    "RecordTooLarge",
    "RecordsGone",
    "RecordsUnacknowledged",
    "RecoveryRefused",
    "RegistryError",
    "ResourceTaken",
    "RewindOvertaken",
    "ScribenginError",
    "SenderUnknown",
    "ServerDown",
    "ServerError",
    "SourceMissing",
    "SparkUnavailable",
    "StaleOwner",
    "StoreElsewhere",
    "StoreNotMounted",
    "StoreUnreachable",
    "SystemUnreachable",
    "TableFailed",
    "TimeUnknown",
    "TooManyBadRecords",
    "TransactionIdOutOfOrder",
    "TransformationFailed",
    "WrittenTooFast",
    "is_full",
]
