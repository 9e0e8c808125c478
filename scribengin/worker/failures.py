"""What an error means for the task it happened to, or for the whole worker. Pure."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from enum import StrEnum

from scribengin.base.text.masking import masked_text
from scribengin.errors import (
    CheckpointMismatch,
    CommitTooLarge,
    ConfigError,
    DamagedEntry,
    DecisionMissing,
    DescriptorUnreadable,
    InconsistentLog,
    LogNotFound,
    OutOfRoom,
    PositionTruncated,
    RecordMisplaced,
    RecordRefused,
    RecordTooLarge,
    RecoveryRefused,
    ScribenginError,
    SparkUnavailable,
    StaleOwner,
    StoreNotMounted,
    SystemUnreachable,
    TooManyBadRecords,
    TransformationFailed,
    is_full,
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
    """DROP the task until it is assigned again; FAIL it; RETRY for a while, then fail it; a source or sink is AWAY:
    retry for as long as the dataflow is configured to wait; be PATIENT: retry for as long as it takes; end the WORKER,
    so that another one starts afresh."""

    DROP = "drop"
    FAIL = "fail"
    RETRY = "retry"
    AWAY = "away"
    PATIENT = "patient"
    WORKER = "worker"


@dataclass(frozen=True, slots=True)
class Failure:
    """What to do about an error, and what to tell people."""

    remedy: Remedy
    text: str


# Trying again reads the same records, or finds the same damage.
_FINAL = (
    CheckpointMismatch,
    CommitTooLarge,
    ConfigError,
    DamagedEntry,
    DecisionMissing,
    DescriptorUnreadable,
    InconsistentLog,
    LogNotFound,
    NotAuthorised,
    PositionTruncated,
    RecordMisplaced,
    RecordRefused,
    RecordTooLarge,
    RecoveryRefused,
    TooManyBadRecords,
    TransformationFailed,
)


def remedy_for(error: Exception) -> Failure:
    """What to do about an error of a task. Whatever is not known, a connector's client for example, deserves another
    try."""
    return Failure(_remedy(error), masked_text(first_lines(f"{describe(error)}{_full(error)}")))


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


def _full(error: Exception) -> str:
    """What is added to the words of an error that does not know that it is waited for room."""
    return "; it goes on when there is room" if is_full(error) and not isinstance(error, OutOfRoom) else ""


def _remedy(error: Exception) -> Remedy:
    if isinstance(error, StaleOwner):
        return Remedy.DROP
    if isinstance(error, SessionLost | RegistryClosed | SparkUnavailable):
        return Remedy.WORKER
    if isinstance(error, RegistryUnreachable | OutcomeUnknown):
        return Remedy.PATIENT  # nothing is wrong with the task; without the registry nothing could be reported either
    if isinstance(error, SystemUnreachable | StoreNotMounted) or is_full(error):
        return Remedy.AWAY
    return Remedy.FAIL if isinstance(error, _FINAL) else Remedy.RETRY
