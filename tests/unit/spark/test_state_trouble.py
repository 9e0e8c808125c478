"""What becomes of a batch that failed for its state: it is no record's fault, and no reason to give the task up."""

from __future__ import annotations

import pytest

from scribengin.errors import CheckpointMismatch, OutOfRoom, ScribenginError, SparkUnavailable
from scribengin.spark.session.failures import Cause
from scribengin.spark.stateful.fitting import trouble_with_state
from scribengin.worker.failures import Remedy, remedy_for

AT = "file:/state/flow/task-0/name-1.0/query"
LOAD = Cause("SparkException", "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred. SQLSTATE: 58030")
COMMIT = Cause("SparkException", "[CANNOT_WRITE_STATE_STORE.CANNOT_COMMIT] Error writing. SQLSTATE: 58030")
FULL = [
    Cause("FSError", "java.io.IOException: No space left on device"),
    Cause("IOException", "No space left on device"),
]
ROCKS = Cause("RocksDBException", "While appending to file: /tmp/x.sst: No space left on device")
GONE = Cause("FileNotFoundException", f"File {AT}/state/0/0/3.changelog does not exist")
CHECKSUM = Cause("SparkException", "[CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED] Checksum verification failed.")


@pytest.mark.parametrize(
    ("causes", "raised", "said", "remedy"),
    [
        ([COMMIT, *FULL], OutOfRoom, "it goes on when there is room, where the state is (/state/flow", Remedy.AWAY),
        (FULL, OutOfRoom, "IOException: No space left on device", Remedy.AWAY),
        ([LOAD, ROCKS], OutOfRoom, "While appending to file: /tmp/x.sst", Remedy.AWAY),
        ([LOAD, CHECKSUM], CheckpointMismatch, "bring the checkpoint back as it was", Remedy.FAIL),
        ([LOAD, Cause("ChecksumException", "at 0")], CheckpointMismatch, "`scribengin rewind`", Remedy.FAIL),
        ([LOAD, GONE], CheckpointMismatch, "3.changelog does not exist", Remedy.FAIL),
        ([LOAD, Cause("FileNotFoundException", "/tmp/own.sst")], SparkUnavailable, "/tmp/own.sst", Remedy.WORKER),
        ([LOAD, Cause("ConnectException", "refused")], SparkUnavailable, "ConnectException: refused", Remedy.WORKER),
        ([COMMIT, Cause("SafeModeException", "wait")], SparkUnavailable, "SafeModeException: wait", Remedy.WORKER),
    ],
)
def test_what_may_pass_is_waited_for_and_damage_is_told(
    causes: list[Cause], raised: type[ScribenginError], said: str, remedy: Remedy
) -> None:
    found = trouble_with_state(causes, "running", AT)
    assert isinstance(found, raised)
    assert said in str(found)
    assert remedy_for(found).remedy is remedy


@pytest.mark.parametrize(
    "cause",
    [
        Cause("SparkRuntimeException", "[USER_RAISED_EXCEPTION] No space left on device SQLSTATE: P0001"),
        Cause("SparkException", "[CAST_INVALID_INPUT] it is no number"),
    ],
)
def test_what_a_record_says_is_none_of_it(cause: Cause) -> None:
    assert trouble_with_state([Cause("SparkException", "Job aborted"), cause], "running", AT) is None
