"""The state in a checkpoint, read beside the query that changes it: as of the last batch that is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql.functions import col, struct, to_json
from pyspark.sql.types import StructType

from scribengin.errors import CheckpointMismatch, ConfigInvalid, DataflowBusy, DataflowError, ScribenginError
from scribengin.spark.session.failures import SPARK_ERRORS, Cause, failure, told_causes
from scribengin.spark.session.session import activate, session_beside
from scribengin.spark.stateful.operators import LIMIT, StateVariable, operator_names, state_variables
from scribengin.spark.stateful.query_log import BRING_BACK, QueryDirectory, QueryLog

_T = TypeVar("_T")
TIMERS = "timers"
"""The name of a processor's store that has the timers which are registered."""
_MAP_KEY = "user_map_key"
# What Spark raises where a checkpoint, or what its metadata names by whole paths, is somewhere else by now.
NO_FILE = "FileNotFoundException"
_NO_BATCH = "StataDataSourceCommittedBatchUnavailable"
STATE_STORE = "spark.sql.streaming.stateStore"
STORED_AS = {
    # On disk: else state is in the heap.
    f"{STATE_STORE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    # A batch writes what it has changed, and not whole files.
    f"{STATE_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
    # Files of a batch that failed are never taken for those of one that was committed.
    f"{STATE_STORE}.checkpointFormatVersion": "2",
}
"""How state is written, which is how it must be read."""


@dataclass(frozen=True, slots=True)
class StateStore:
    """One store of an operator: a join has several, and a processor (transformWithState) one a variable."""

    operator: str
    """As `status` and `explain` call it."""
    name: str
    partitions: int
    batch: int
    """The last batch that is done, by Spark's number."""
    number: int
    """The operator's, in Spark's plan."""
    variable: StateVariable | None = None
    """Of a processor: the one that the store holds."""


@dataclass(frozen=True, slots=True)
class StateRow:
    """What is kept for one key. `key` and `value` are JSON, by the columns that Spark has given them."""

    partition: int
    key: str
    value: str


class StoredState:
    """The state in the checkpoint `directory`, through a session beside the given one."""

    def __init__(self, directory: QueryDirectory, session: SparkSession) -> None:
        self._directory = directory
        self._session = session_beside(session, STORED_AS)

    def stores(self) -> list[StateStore]:
        """All of them, by operator; none before a batch is done. Raises DataflowBusy while the checkpoint is moved to
        its next owner, or was moved, and that one ended before it had named its files anew; CheckpointMismatch where
        a file is gone; TransformationFailed, SparkUnavailable and SystemUnreachable."""
        try:
            activate(self._session)
            rows = self._session.read.format("state-metadata").load(self._directory.url).collect()
        except SPARK_ERRORS as error:
            raise self._failure(error) from error
        divided = {number: self._partitions(number) for number in {row.maxBatchId for row in rows} if number >= 0}
        operators = {row.operatorId: row.operatorName for row in rows}
        names = dict(zip(sorted(operators), operator_names([operators[one] for one in sorted(operators)]), strict=True))
        found = [store for row in rows for store in _stores_of(row, names[row.operatorId], divided)]
        return sorted(found, key=lambda store: (store.number, store.name))

    def rows(self, store: StateStore, key: Mapping[str, str], rows_max: int) -> list[StateRow]:
        """The first rows of a store whose key has these values, by its columns' names (`who`, `window.start`), as Spark
        writes them. Raises as `stores`, and ConfigInvalid for a column that the key does not have."""
        try:
            activate(self._session)
            reader = self._session.read.format("statestore").option("operatorId", store.number)
            frame = reader.option(*_chosen(store)).load(self._directory.url)
            chosen = _with_key(frame, store, key).select("partition_id", to_json("key"), to_json(_value(frame)))
            return [StateRow(*row) for row in chosen.limit(rows_max).collect()]
        except SPARK_ERRORS as error:
            raise self._failure(error) from error

    def sources(self) -> list[str] | None:
        """Those of the last batch that is done, as `QueryLog.sources`; None before one is. Raises as `stores`."""
        return self._logged(lambda log: None if log.done < 0 else log.sources(log.done))

    def partitions(self) -> int | None:
        """Into how many what has a key is divided, by the last batch that is done; None before one is. Raises as
        `stores`."""
        return self._logged(lambda log: None if log.done < 0 else log.partitions(log.done))

    def _partitions(self, batch: int) -> int:
        """As the query's log says: of most operators Spark's metadata keep the number that they began with."""
        return self._logged(lambda log: log.partitions(batch))

    def _logged(self, asked: Callable[[QueryLog], _T]) -> _T:
        try:
            return asked(QueryLog.read(self._directory))
        except CheckpointMismatch:
            if self._directory.files.is_directory(self._directory.path):
                raise
            raise _moved(self._directory) from None

    def _failure(self, error: Exception) -> ScribenginError:
        missing = unfound(told_causes(error), self._directory)
        return failure(error, _doing(self._directory)) if missing is None else missing


def unfound(causes: Sequence[Cause], directory: QueryDirectory) -> DataflowError | None:
    """What to raise where Spark has not found what it was to read of that checkpoint; None: it failed for another
    reason. A file that is missing below a checkpoint that is where it was is missing. Raises SystemUnreachable."""
    files = [cause for cause in causes if cause.kind == NO_FILE]
    if not files and all(cause.kind != _NO_BATCH for cause in causes):
        return None
    here = f"{directory.path}/"
    if files and here in files[-1].message and directory.files.is_directory(directory.path):
        return CheckpointMismatch(
            f"{_doing(directory)}: {files[-1].line}: ask again, and if it is still missing, {BRING_BACK}"
        )
    return _moved(directory)


def _moved(directory: QueryDirectory) -> DataflowBusy:
    return DataflowBusy(
        f"{_doing(directory)}: its task is being taken over, or whoever took it over ended in the middle of that: ask "
        "again once it runs"
    )


def _doing(directory: QueryDirectory) -> str:
    return f"reading the state in {directory}"


def _stores_of(row: Row, operator: str, divided: Mapping[int, int]) -> Iterator[StateStore]:
    """What stands in a line of Spark's about a store. A processor has one of Spark's, and each of its variables there
    counts as one. `divided` says by batch into how many partitions. A limit has no key, and one partition."""
    partitions = 1 if row.operatorName == LIMIT else divided.get(row.maxBatchId, row.numPartitions)  # none may be done
    made = partial(StateStore, operator, partitions=partitions, batch=row.maxBatchId, number=row.operatorId)
    variables = state_variables(row.operatorProperties)
    if not variables:
        yield made(name=row.stateStoreName)
    for variable in variables:
        yield made(name=TIMERS if variable.is_timers else variable.name, variable=variable)


def _chosen(store: StateStore) -> tuple[str, str]:
    """The option that has Spark read this store."""
    match store.variable:
        case None:
            return "storeName", store.name
        case StateVariable(is_timers=True):
            return "readRegisteredTimers", "true"
        case variable:
            return "stateVarName", variable.name


def _value(frame: DataFrame) -> Column:
    """What a store's frame has beside the key: columns that are Spark's, by the kind of a variable."""
    if _MAP_KEY in frame.columns:
        return struct(col(_MAP_KEY).alias("key"), col("user_map_value").alias("value"))
    if "expiration_timestamp_ms" in frame.columns:
        return struct("expiration_timestamp_ms")
    return col("list_element" if "list_element" in frame.columns else "value")


def _with_key(frame: DataFrame, store: StateStore, key: Mapping[str, str]) -> DataFrame:
    there = list(_columns(frame.schema["key"].dataType))
    for name, value in key.items():
        if name not in there:
            raise ConfigInvalid(f"the key of {store.operator} has no column '{name}': it has {_listed(there)}")
        frame = frame.where(col(f"key.{name}").cast("string") == value)
    return frame


def _columns(of: object, above: str = "") -> Iterator[str]:
    if isinstance(of, StructType):
        for one in of.fields:
            yield from _columns(one.dataType, f"{above}.{one.name}" if above else one.name)
    elif above:
        yield above


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
