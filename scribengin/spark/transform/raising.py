"""Finding the records on which a Python function of a transformation raises: one job, in which functions are watched.

Spark says nothing of where a Python function failed. So the transformation is built once more, with every function of
its plan inside one that catches what it raises (`watched`). Records are numbered, and the number is one more argument
of their functions. Where their code has dropped the number's column before, rows are counted instead.

What is found is a guess, and may be nothing: a function of another type (a UDTF) is not watched, and fails the job.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import AccumulatorParam
from pyspark.accumulators import Accumulator
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it
from pyspark.sql.udf import UserDefinedFunction

from scribengin.errors import ConfigError, TransformationFailed
from scribengin.spark.transform.encoding import BESIDE, quoted
from scribengin.spark.transform.plan_builder import PlanBuilder
from scribengin.spark.transform.plan_pool import PlanPool, Shape
from scribengin.spark.transform.spec import InputSpec, OutputSpec, TransformationSpec
from scribengin.spark.transform.watched import KINDS, NUMBER, OF_BATCHES, Raised

_PYTHON_OPERATORS = ("EvalPython", "MapIn")


class RaisingRecords:
    """Of one transformation. Any thread may use it, one at a time."""

    def __init__(self, builder: PlanBuilder, session: SparkSession, directory: Path) -> None:
        """`directory` is empty and this object's own."""
        self._lock = threading.Lock()
        self._sources = builder.spec.inputs
        self._raised: Accumulator[Raised] = session.sparkContext.accumulator([], _Concatenated())
        self._numbered = self._plans(builder, session, directory / "numbered", numbered=True)
        self._counted = self._plans(builder, session, directory / "counted", numbered=False)

    def find(self, inputs: Mapping[str, pa.Table], shape: Shape) -> dict[str, dict[int, str]]:
        """The rows of each source on which a function seems to raise, and what: none where that cannot be told, or
        where nothing of the plan is Python. Rows that were counted have "": that is right only for some plans.

        Raises SparkUnavailable.
        """
        with self._lock:
            return {name: self._rows(name, table, shape) for name, table in inputs.items() if table.num_rows}

    def _plans(self, builder: PlanBuilder, session: SparkSession, directory: Path, *, numbered: bool) -> PlanPool:
        directory.mkdir()
        # Encoding would raise on the nulls that watched functions give.
        outputs = {name: OutputSpec(name, "columns") for name in builder.spec.outputs}
        spec = replace(_numbered(builder.spec) if numbered else builder.spec, outputs=outputs)
        watch = _Watch(self._raised, numbered=numbered)
        return PlanPool(builder.within(lambda: _watching(watch), spec), session, directory)

    def _rows(self, source: str, table: pa.Table, shape: Shape) -> dict[int, str]:
        numbers = pa.array(range(table.num_rows), pa.int64())
        numbered = table.append_column(_number_field(self._sources[source]), numbers)
        try:
            return self._run(self._numbered, source, numbered, shape)
        except (TransformationFailed, ConfigError):  # their code has no place for one more column
            pass
        try:
            # Only in one partition have rows the order of records.
            return dict.fromkeys(self._run(self._counted, source, table, replace(shape, partitions=1)), "")
        except (TransformationFailed, ConfigError):  # it was no call of a function, or none that can be watched
            return {}

    def _run(self, plans: PlanPool, source: str, table: pa.Table, shape: Shape) -> dict[int, str]:
        self._raised.value = []
        with plans.take(shape) as plan:
            if any(part in operator for operator in plan.operators for part in _PYTHON_OPERATORS):
                plan.run_tables({source: table})
        # Of a row on which several functions raise, the first one counts: the others may have got what it did not give.
        first = dict(reversed(self._raised.value))
        return {row: first[row] for row in sorted(first) if row < table.num_rows}


class _Concatenated(AccumulatorParam[Raised]):
    def zero(self, value: Raised) -> Raised:
        return []

    def addInPlace(self, value1: Raised, value2: Raised) -> Raised:  # noqa: N802  as Spark calls it
        value1.extend(value2)
        return value1


def _numbered(spec: TransformationSpec) -> TransformationSpec:
    """The same of records that have a number."""
    inputs = {
        name: replace(source, schema=source.schema.append(_number_field(source)))
        for name, source in spec.inputs.items()
    }
    return replace(spec, inputs=inputs)


def _number_field(source: InputSpec) -> pa.Field:
    """The field that the transformation sees as NUMBER."""
    return pa.field(NUMBER.removeprefix(BESIDE) if source.format == "json" else NUMBER, pa.int64())


# -- plans of watched functions


@dataclass(frozen=True, slots=True)
class _Watch:
    """Where the numbers of records go, and whether they are a column, or counted."""

    raised: Accumulator[Raised]
    numbered: bool


class _Building(threading.local):
    """How functions are watched of the plan that a thread builds, and whether the one called now gets a number."""

    watch: _Watch | None = None
    number: bool = False


_building = _Building()
_installing = threading.Lock()
_plain_call = UserDefinedFunction.__call__
_plain_function: Callable[[UserDefinedFunction], Any] = UserDefinedFunction._judf.fget  # type: ignore[attr-defined]


@contextmanager
def _watching(watch: _Watch) -> Iterator[None]:
    """Functions that this thread puts into plans meanwhile are watched. PySpark has no other place to say so."""
    with _installing:
        UserDefinedFunction._judf = property(_function_of_plan)  # type: ignore[assignment,method-assign]
        UserDefinedFunction.__call__ = _call  # type: ignore[assignment,method-assign]
    _building.watch = watch
    try:
        yield
    finally:
        _building.watch = None


def _call(function: UserDefinedFunction, *columns: Any, **named: Any) -> Column:
    """A call of a function in a plan: with the record's number behind its arguments, where there is one."""
    watch = _building.watch
    if watch is None or not watch.numbered or named or function.evalType not in KINDS.keys() - OF_BATCHES:
        return _plain_call(function, *columns, **named)
    _building.number = True
    try:
        return _plain_call(function, *columns, F.col(quoted(NUMBER)))
    finally:
        _building.number = False


def _function_of_plan(function: UserDefinedFunction) -> Any:
    """What stands for a function in plans of the JVM. Spark makes it once a function, for all plans."""
    kind = KINDS.get(function.evalType)
    if _building.watch is None or kind is None:
        return _plain_function(function)
    watched = kind(function.func, _building.watch.raised, numbered=_building.number)
    return function._create_judf(watched, include_transpiled=False)
