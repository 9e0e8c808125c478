"""What an error means for the task it happened to, or for the whole worker. Pure."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from enum import StrEnum

from scribengin.errors import (
    CommitTooLarge,
    ConfigError,
    DamagedEntry,
    DecisionMissing,
    DescriptorUnreadable,
    InconsistentLog,
    LogNotFound,
    PositionTruncated,
    RecordRefused,
    RecordTooLarge,
    RecoveryRefused,
    ScribenginError,
    SparkUnavailable,
    StaleOwner,
    SystemUnreachable,
    TooManyBadRecords,
    TransformationFailed,
)
from scribengin_registry.errors import (
    NotAuthorised,
    OutcomeUnknown,
    RegistryClosed,
    RegistryUnreachable,
    SessionLost,
)

ERROR_LINES_MAX = 20
ERROR_CHARACTERS_MAX = 4000


class Remedy(StrEnum):
    """DROP the task until it is assigned again; FAIL it; RETRY a few times, then fail it; be PATIENT: retry for as
    long as it takes; end the WORKER, so that another one starts afresh."""

    DROP = "drop"
    FAIL = "fail"
    RETRY = "retry"
    PATIENT = "patient"
    WORKER = "worker"


@dataclass(frozen=True, slots=True)
class Failure:
    """What to do about an error, and what to tell people."""

    remedy: Remedy
    text: str


# Trying again reads the same records, or finds the same damage.
_FINAL = (
    CommitTooLarge,
    ConfigError,
    DamagedEntry,
    DecisionMissing,
    DescriptorUnreadable,
    InconsistentLog,
    LogNotFound,
    NotAuthorised,
    PositionTruncated,
    RecordRefused,
    RecordTooLarge,
    RecoveryRefused,
    TooManyBadRecords,
    TransformationFailed,
)


def judge(error: Exception) -> Failure:
    """What to do about an error of a task. Whatever is not known, a connector's client for example, deserves another
    try."""
    return Failure(_remedy(error), first_lines(describe(error)))


def describe(error: Exception) -> str:
    """Our own errors speak for themselves; of anything else, its type and where it happened."""
    if isinstance(error, ScribenginError):
        return str(error)
    place = traceback.extract_tb(error.__traceback__)[-1:]
    where = f" (in {place[0].name}, {place[0].filename}:{place[0].lineno})" if place else ""
    return f"{type(error).__name__}: {error}{where}"


def first_lines(text: str) -> str:
    """The beginning of a long text, as it goes into a report."""
    lines = text.splitlines()
    kept = lines if len(lines) <= ERROR_LINES_MAX else [*lines[:ERROR_LINES_MAX], "..."]
    return "\n".join(kept)[:ERROR_CHARACTERS_MAX]


def _remedy(error: Exception) -> Remedy:
    if isinstance(error, StaleOwner):
        return Remedy.DROP
    if isinstance(error, SessionLost | RegistryClosed | SparkUnavailable):
        return Remedy.WORKER
    if isinstance(error, RegistryUnreachable | OutcomeUnknown | SystemUnreachable):
        return Remedy.PATIENT  # nothing is wrong with the task; without the registry nothing could be reported either
    return Remedy.FAIL if isinstance(error, _FINAL) else Remedy.RETRY
