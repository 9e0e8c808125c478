"""Whether a transformation, as it is now, can go on from the state that an earlier version of it has left."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from pyspark.sql import DataFrame

from scribengin.errors import CheckpointMismatch
from scribengin.spark.session.failures import SPARK_ERRORS, causes_behind, failure
from scribengin.spark.session.session import activate, scratch_directory
from scribengin.spark.stateful.operators import planned
from scribengin.spark.stateful.stored import StoredState
from scribengin.spark.transform.spec import StateOperator

_DESCRIPTIONS = frozenset({"_metadata", "_stateSchema"})
"""What Spark writes beside the state: at the operator which one it is, at a store of a partition what is kept in it."""
_STATE = "state"
_OTHER_COLUMNS = ("STATE_STORE_KEY_SCHEMA", "STATE_STORE_VALUE_SCHEMA")
WAY_OUT = "give the dataflow the transformation that it had, or submit another dataflow"


def refuse_unfitting(frame: DataFrame, operators: Sequence[StateOperator], task: str, directory: str) -> None:
    """Raises CheckpointMismatch if the checkpoint in `directory` has the state of other operators, or has it by other
    keys or values; TransformationFailed or SparkUnavailable if that cannot be found out. Changes nothing there."""
    stores = StoredState(directory, frame.sparkSession).stores()
    if not stores:  # no batch is done yet
        return
    activate(frame.sparkSession)
    kept = dict(sorted((store.number, store.operator) for store in stores))
    if list(kept.values()) != [operator.name for operator in operators]:
        now = _listed(operator.name for operator in operators)
        raise CheckpointMismatch(
            f"{task} has the state of {_listed(kept.values())}, and the transformation keeps that of {now}: {WAY_OUT}"
        )
    batch = max(store.batch for store in stores) + 1
    for number, operator in zip(kept, operators, strict=True):
        with tempfile.TemporaryDirectory(dir=scratch_directory(), prefix="fits-") as copy:
            _copy_descriptions(Path(directory) / _STATE, Path(copy) / _STATE, str(number))
            _refuse_other_columns(frame, operator.name, task, Path(copy) / _STATE, batch)


def _refuse_other_columns(frame: DataFrame, operator: str, task: str, state: Path, batch: int) -> None:
    """Have Spark plan the next batch over what is described in `state`, which is that operator's."""
    try:
        planned(frame, state, batch).executedPlan()
    except SPARK_ERRORS as error:
        for cause in causes_behind(error):
            if cause.condition.startswith(_OTHER_COLUMNS):
                raise CheckpointMismatch(
                    f"what {task} has kept for {operator} does not fit the transformation any more ({cause.line}): "
                    f"{WAY_OUT}"
                ) from error
        raise failure(error, f"comparing the transformation with what {task} has kept") from error


def _copy_descriptions(state: Path, to: Path, operator: str) -> None:
    """Of all operators what says which they are; of that one also what it keeps, so that no other is found wanting."""
    for found in state.rglob("*"):
        of, *below = found.relative_to(state).parts
        if found.name in _DESCRIPTIONS and (of == operator or len(below) == 1):
            shutil.copytree(found, to / found.relative_to(state), dirs_exist_ok=True)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
