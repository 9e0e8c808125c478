"""What an error means for the task that it happened to."""

from __future__ import annotations

import errno

import pytest

from scribengin.errors import (
    CheckpointMismatch,
    DamagedEntry,
    DecisionMissing,
    DecisionUnknown,
    Fenced,
    LogWriteFailed,
    OutOfRoom,
    SparkUnavailable,
    StaleOwner,
    SystemUnreachable,
    TooManyBadRecords,
    TransformationFailed,
)
from scribengin.worker.failures import ERROR_LINES_MAX, Remedy, remedy_for
from scribengin_registry.errors import OutcomeUnknown, RegistryUnreachable, SessionLost


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (StaleOwner("worker-2 owns it"), Remedy.DROP),
        (TransformationFailed("Traceback ...", reason="ValueError"), Remedy.FAIL),
        (TooManyBadRecords("101 of 100"), Remedy.FAIL),
        (DamagedEntry("bad checksum", position="(1, 2, 3)"), Remedy.FAIL),
        (DecisionMissing("the group has forgotten"), Remedy.FAIL),
        (CheckpointMismatch("the checkpoint is not there"), Remedy.FAIL),
        (DecisionUnknown("fenced in the middle of a round"), Remedy.RETRY),
        (Fenced("another writer"), Remedy.RETRY),
        (LogWriteFailed("the disk refused"), Remedy.RETRY),
        (OSError(errno.EIO, "Input/output error"), Remedy.RETRY),
        (OSError(errno.ENOSPC, "No space left on device"), Remedy.AWAY),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), Remedy.AWAY),
        (caused(LogWriteFailed("cannot append"), OSError(errno.ENOSPC, "No space left on device")), Remedy.AWAY),
        (OutOfRoom("cannot write to a file"), Remedy.AWAY),
        (KeyError("a connector's own"), Remedy.RETRY),
        (RegistryUnreachable("nobody answers"), Remedy.PATIENT),
        (SystemUnreachable("no broker"), Remedy.AWAY),
        (OutcomeUnknown("the reply was lost"), Remedy.PATIENT),
        (SessionLost("expired"), Remedy.WORKER),
        (SparkUnavailable("the JVM died"), Remedy.WORKER),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value.value,
)
def test_every_kind_of_error_has_its_remedy(error: Exception, remedy: Remedy) -> None:
    assert remedy_for(error).remedy is remedy


def test_a_full_disk_is_said_to_be_waited_for() -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    assert (
        remedy_for(caused(LogWriteFailed("cannot append"), full)).text == "cannot append; it goes on when there is room"
    )
    assert remedy_for(OutOfRoom("no room; it goes on")).text == "no room; it goes on"


def test_our_own_errors_speak_for_themselves() -> None:
    assert remedy_for(Fenced("another writer owns the log")).text == "another writer owns the log"


def test_anything_else_says_what_and_where_it_was() -> None:
    try:
        {}["absent"]
    except KeyError as error:
        text = remedy_for(error).text
    assert text.startswith("KeyError: 'absent' (in test_anything_else_says_what_and_where_it_was, ")


def test_a_long_error_is_cut_to_its_first_lines() -> None:
    lines = remedy_for(TransformationFailed("\n".join(map(str, range(500))), reason="499")).text.splitlines()
    assert lines == [*map(str, range(ERROR_LINES_MAX)), "..."]
