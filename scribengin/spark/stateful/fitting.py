"""Whether a transformation, as it is now, can go on from the state that an earlier version of it has left; and what a
batch failed of that has to do with where its state is, and says nothing about records."""

from __future__ import annotations

import posixpath
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pyspark.sql import DataFrame

from scribengin.errors import CheckpointMismatch, OutOfRoom, SparkUnavailable, TransformationFailed
from scribengin.filesystems.local import LocalFileSystem
from scribengin.spark.session.failures import SPARK_ERRORS, Cause, causes_behind, failure
from scribengin.spark.session.session import activate, scratch_directory
from scribengin.spark.stateful.beats import is_beats
from scribengin.spark.stateful.operators import planned
from scribengin.spark.stateful.plan import sources_below
from scribengin.spark.stateful.query_log import BRING_BACK, QueryDirectory, take_schemas_along
from scribengin.spark.stateful.stored import NO_FILE, StoredState
from scribengin.spark.transform.spec import StateOperator

_DESCRIPTIONS = frozenset({"_metadata", "_stateSchema"})
"""What Spark writes beside the state: at the operator which one it is, at a store of a partition what is kept in it."""
_STATE = "state"
OTHER_COLUMNS = (
    "STATE_STORE_KEY_SCHEMA",
    "STATE_STORE_VALUE_SCHEMA",
    "STATE_STORE_INVALID_CONFIG_AFTER_RESTART",
    "STATE_STORE_INVALID_VARIABLE_TYPE_CHANGE",
)
"""What Spark's errors begin with that say so: of a processor another time mode, and another kind of variable, too."""
WAY_OUT = "give the dataflow the transformation that it had, or submit another dataflow"
_OF_STATE = ("CANNOT_LOAD_STATE_STORE", "CANNOT_WRITE_STATE_STORE")
_FULL = ("No space left on device", "Disk quota exceeded", "DSQuotaExceededException")
_WRITING = ("IOException", "FSError", "RocksDBException", "RemoteException", "DSQuotaExceededException")
_DAMAGED = ("ChecksumException", "EOFException")
_CHECKSUM = "CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED"


def refuse_unfitting(
    frame: DataFrame,
    operators: Sequence[StateOperator],
    fresh: Path,
    task: str,
    directory: QueryDirectory,
    partitions: int | None = None,
) -> None:
    """Raises CheckpointMismatch if the checkpoint in `directory` has the state of other operators, or has it by other
    keys or values, or has its sources in another order, or cannot be divided into `partitions` (None: it stays as it
    is), or lacks a file; DataflowBusy while it is moved to its next owner; TransformationFailed, SparkUnavailable or
    SystemUnreachable if that cannot be found out. Changes nothing there. In `fresh` is what `state_operators` has left.
    """
    state = StoredState(directory, frame.sparkSession)
    stores = state.stores()
    kept = dict(sorted((store.number, store.operator) for store in stores))
    if stores and list(kept.values()) != [operator.name for operator in operators]:
        now = _listed(operator.name for operator in operators)
        raise CheckpointMismatch(
            f"{task} has the state of {_listed(kept.values())}, and the transformation keeps that of {now}: {WAY_OUT}"
        )
    if (read := state.sources()) is not None:
        refuse_other_sources(frame, read, task)
    if not stores:  # no batch is done yet, or nothing is kept
        return
    activate(frame.sparkSession)
    if partitions is not None and partitions != (divided := state.partitions()):
        refuse_undividable(operators, str(directory), partitions, divided)
    batch = max(store.batch for store in stores) + 1
    with tempfile.TemporaryDirectory(dir=scratch_directory(), prefix="fits-") as scratch:
        _refuse_other_columns(_Compared(frame, kept, directory, Path(scratch), batch), fresh, task)


@dataclass(frozen=True, slots=True)
class _Compared:
    """A frame, and what a checkpoint keeps of its operators, which are known by their numbers."""

    frame: DataFrame
    kept: Mapping[int, str]
    directory: QueryDirectory
    scratch: Path
    batch: int
    """The next one."""

    def unfit(self, numbers: Collection[int], fresh: Path | None = None) -> Exception | None:
        """What Spark raises where it plans the next batch over what is kept of these operators, and what is `fresh` of
        all others; None: it fits."""
        copy = self.scratch / "-".join(map(str, numbers))
        if fresh is not None:
            shutil.copytree(fresh, copy / _STATE)
            for number in numbers:
                shutil.rmtree(copy / _STATE / str(number))
        for number in numbers:
            _copy_descriptions(self.directory, f"{_STATE}/{number}", copy)
        take_schemas_along(QueryDirectory(LocalFileSystem(), str(copy)))
        try:
            planned(self.frame, copy / _STATE, self.batch).executedPlan()
        except SPARK_ERRORS as error:
            return error
        return None


def _refuse_other_columns(compared: _Compared, fresh: Path, task: str) -> None:
    """Most fit: so all are compared at once. Where they do not, each is compared alone, as if all others were as they
    are now, so that no other is found wanting. It is the last one where none of the others is."""
    if (found := compared.unfit(compared.kept)) is None:
        return
    *others, last = compared.kept
    for number in others:
        if (error := compared.unfit([number], fresh)) is not None:
            found, last = error, number
            break
    for cause in causes_behind(found):
        if cause.condition.startswith(OTHER_COLUMNS):
            raise CheckpointMismatch(
                f"what {task} has kept for {compared.kept[last]} does not fit the transformation any more "
                f"({cause.line}): {WAY_OUT}"
            ) from found
    raise failure(found, f"comparing the transformation with what {task} has kept") from found


def refuse_other_sources(frame: DataFrame, read: Sequence[str], who: str) -> None:
    """Raises CheckpointMismatch unless the query of `frame` has its sources as they were `read`: each would go on where
    another one was. Its next batch could not run, nor could the transformation from before run that one."""
    now = list(sources_below(frame._jdf.queryExecution().analyzed()))
    if now != list(read):
        before, after = (_listed(name for name in names if not is_beats(name)) for names in (read, now))
        raise CheckpointMismatch(
            f"{who} has read {before}, in this order, and the transformation reads {after}: positions are kept by that "
            f"order, so let it read its sources as often and in the order that it had; or {WAY_OUT}"
        )


def _copy_descriptions(directory: QueryDirectory, operator: str, to: Path) -> None:
    """Of an operator's directory what says which one it is, and what it keeps."""
    for name in _described(directory, operator):
        for file in _files(directory, name):
            (to / file).parent.mkdir(parents=True, exist_ok=True)
            path = posixpath.join(directory.path, file)
            (to / file).write_bytes(b"".join(directory.files.snapshots([path])[0]))


def _described(directory: QueryDirectory, name: str) -> Iterator[str]:
    """The directories of descriptions below one: of the operator, of its partitions, of their stores. A file of state
    has a dot in its name."""
    for entry in directory.files.names(posixpath.join(directory.path, name)):
        if entry in _DESCRIPTIONS:
            yield f"{name}/{entry}"
        elif "." not in entry and directory.files.is_directory(posixpath.join(directory.path, name, entry)):
            yield from _described(directory, f"{name}/{entry}")


def _files(directory: QueryDirectory, name: str) -> Iterator[str]:
    for entry in directory.files.names(posixpath.join(directory.path, name)):
        below = f"{name}/{entry}"
        if directory.files.is_directory(posixpath.join(directory.path, below)):
            yield from _files(directory, below)
        else:
            yield below


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def refuse_undividable(operators: Sequence[StateOperator], directory: str, partitions: int, before: int | None) -> None:
    """Raises CheckpointMismatch if the state that these operators keep in `directory` cannot be divided into another
    number of partitions than `before`. Spark would find out when it has planned the batch, and then would not run
    another one."""
    if not operators:
        raise CheckpointMismatch(
            f"the transformation keeps nothing, and in {directory} a batch is begun that divides what it has kept into "
            f"{partitions} partitions: {WAY_OUT}"
        )
    for one in operators:
        if one.partitions is None:
            raise CheckpointMismatch(
                f"the state in {directory} cannot be divided into {partitions} partitions: {one.name} has no key; let "
                f"state.partitions be {before or 'what it was'}, or leave it out"
            )


def undivided(
    found: TransformationFailed | SparkUnavailable, dataflow: str, directory: str, partitions: int, before: int | None
) -> CheckpointMismatch | SparkUnavailable:
    """What to raise where Spark has `found` that it cannot divide the state in `directory`, which is in `before`
    partitions: those are whole, also where it has begun. `before` is None where no other number can be taken."""
    set_back = f"`scribengin config set {dataflow} state.partitions={before}`"
    if isinstance(found, SparkUnavailable):
        if before is None:
            return found
        return SparkUnavailable(
            f"{found}; where that does not pass, nothing is lost: `scribengin pause {dataflow}`, set the number from "
            f"before with {set_back}, and `scribengin resume {dataflow}`"
        )
    start = f"`scribengin start {dataflow}`"
    cannot = f"Spark cannot divide the state in {directory} into {partitions} partitions ({found.reason})"
    if before is None:
        return CheckpointMismatch(
            f"{cannot}: {start} tries again; another number is no way out, for the commit logs name that batch already"
        )
    return CheckpointMismatch(
        f"{cannot}: {start} tries again; or set the number from before with {set_back}, and then {start}: nothing is "
        "lost"
    )


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
    if cause.kind == NO_FILE:  # else it is one of this process's own
        return urlsplit(checkpoint).path in cause.message
    return cause.kind in _DAMAGED or cause.condition == _CHECKSUM


def _shown(checkpoint: str) -> str:
    return checkpoint.removeprefix("file:")
