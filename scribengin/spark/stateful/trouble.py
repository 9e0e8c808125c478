"""What a batch failed of that has to do with where its state is: it says nothing about records."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from scribengin.errors import CheckpointMismatch, OutOfRoom, SparkUnavailable
from scribengin.spark.session.failures import Cause
from scribengin.spark.stateful.query_log import BRING_BACK

_OF_STATE = ("CANNOT_LOAD_STATE_STORE", "CANNOT_WRITE_STATE_STORE")
_FULL = ("No space left on device", "Disk quota exceeded", "DSQuotaExceededException")
_WRITING = ("IOException", "FSError", "RocksDBException", "RemoteException", "DSQuotaExceededException")
_DAMAGED = ("ChecksumException", "EOFException")
_CHECKSUM = "CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED"
_NO_FILE = "FileNotFoundException"


def trouble_with_state(
    causes: Sequence[Cause], doing: str, checkpoint: str
) -> OutOfRoom | CheckpointMismatch | SparkUnavailable | None:
    """What to raise for a batch that failed for these causes, outermost first, whose checkpoint is in a directory, a
    URL: a disk is full, a file of it is damaged or gone, or something that may pass. None: it was none of that."""
    if any(cause.kind in _WRITING and any(sign in cause.message for sign in _FULL) for cause in causes):
        return OutOfRoom(
            f"Spark failed while {doing}: {causes[-1].line}; it goes on when there is room, where the state is "
            f"({_shown(checkpoint)}) and for temporary files of this machine"
        )
    if not any(cause.condition.startswith(_OF_STATE) for cause in causes):
        return None
    if any(_is_damage(cause, checkpoint) for cause in causes):
        return CheckpointMismatch(f"the state in {_shown(checkpoint)} cannot be read ({causes[-1].line}): {BRING_BACK}")
    return SparkUnavailable(f"Spark failed while {doing}: {causes[-1].line}")


def _is_damage(cause: Cause, checkpoint: str) -> bool:
    if cause.kind == _NO_FILE:  # else it is one of this process's own
        return urlsplit(checkpoint).path in cause.message
    return cause.kind in _DAMAGED or cause.condition == _CHECKSUM


def _shown(checkpoint: str) -> str:
    return checkpoint.removeprefix("file:")
