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
│   ├── OwnershipAcquireFailed the log's lock was not to be had in time
│   ├── Fenced                 another writer owns the log now; what was not acked may be lost
│   ├── LogWriteFailed         the disk refused (full, failed fsync); the segment is never written again
│   ├── TransactionIdOutOfOrder · RecordTooLarge
│   ├── EndOfStream            the log was sealed, and everything in it was read
│   ├── LogClosed              a writer or reader was used after close()
│   ├── DamagedEntry           an entry's checksum does not hold; carries its position
│   ├── InconsistentLog        the list of segments has a gap or contradicts itself
│   ├── RecoveryRefused        valid entries follow the damage, or a pending round cannot be resolved
│   └── PositionTruncated      the position lies before the first record that is kept
├── DataflowError
│   ├── DataflowNotFound · DataflowExists · DataflowBusy                 exit code 2
│   ├── StaleOwner             another worker owns the task's streams now
│   ├── TransformationFailed   the user's code raised; carries their traceback and the record's position
│   ├── TooManyBadRecords      more bad records in a round than the error route allows
│   └── CommitTooLarge         a round's transaction would exceed what the registry takes
├── LauncherError              a container could not be started
└── SparkUnavailable           no Java, or Spark did not start
"""

from __future__ import annotations

from scribengin_registry.errors import RegistryError, ScribenginError


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


class LogExists(LogError):
    """A log of that name exists already."""

    exit_code = 2


class InvalidLogName(LogError):
    """The name breaks the rules for log names."""

    exit_code = 2


class NamespaceNotBound(LogError):
    """The namespace has no store bound to it, or is bound to another one."""

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


class EndOfStream(LogError):
    """The log was marked as ended, and everything in it was read."""


class LogClosed(LogError):
    """A writer or reader was used after close()."""


class DamagedEntry(LogError):
    """An entry whose checksum does not hold, or that contradicts its place. `position` is where a reader stopped."""

    def __init__(self, message: str, *, position: str) -> None:
        super().__init__(message)
        self.position = position


class InconsistentLog(LogError):
    """The list of segments has a gap or contradicts itself."""


class RecoveryRefused(LogError):
    """Recovery would lose data: valid entries follow the damage, or a pending round cannot be resolved."""


class PositionTruncated(LogError):
    """The position lies before the first record that is kept."""


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


class StaleOwner(DataflowError):
    """Another worker owns the task's streams now. This one must not write, complete or roll back any more."""


class TransformationFailed(DataflowError):
    """The user's code raised. The message begins with their traceback; `reason` is its last line."""

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class TooManyBadRecords(DataflowError):
    """More bad records in one round than `errors.records_max` allows."""


class CommitTooLarge(DataflowError):
    """A round's transaction would exceed what the registry takes."""


class LauncherError(ScribenginError):
    """A container could not be started or is not what it was."""


class SparkUnavailable(ScribenginError):
    """No Java, or Spark did not start."""


__all__ = [
    "CommitTooLarge",
    "ConfigError",
    "ConfigInvalid",
    "DamagedEntry",
    "DataflowBusy",
    "DataflowError",
    "DataflowExists",
    "DataflowNotFound",
    "DescriptorUnreadable",
    "EndOfStream",
    "Fenced",
    "InconsistentLog",
    "InvalidLogName",
    "LauncherError",
    "LogClosed",
    "LogError",
    "LogExists",
    "LogNotFound",
    "LogWriteFailed",
    "NamespaceNotBound",
    "NotNarrow",
    "OwnershipAcquireFailed",
    "PackageInvalid",
    "PositionTruncated",
    "RecordTooLarge",
    "RecoveryRefused",
    "RegistryError",
    "ResourceTaken",
    "ScribenginError",
    "SourceMissing",
    "SparkUnavailable",
    "StaleOwner",
    "TooManyBadRecords",
    "TransactionIdOutOfOrder",
    "TransformationFailed",
]
