"""Whether a transformation is narrow: each record's output depends on that record, and on tables that do not change.

Only then do rounds of any size, and a range cut in two to find a bad record, give the same output. The plan that Spark
would execute says so. It is read as a tree: an operator either has records of an input below it (it is on their way) or
not (a static table). On their way only the operators of `_NARROW` may stand; a static table may do what it likes, and
may meet the records only as the broadcast side of a join.

Reading the tree takes Spark's developer API (`Dataset.queryExecution`); what it says is resolved in plain Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from scribengin.errors import NotNarrow
from scribengin.spark.transform.input import FORMAT

_SCAN = "BatchScanExec"
_CACHE = "InMemoryTableScanExec"
_BROADCAST = "BroadcastExchangeExec"
_REUSED = frozenset({"ReusedExchangeExec", "ReusedSubqueryExec"})
_JOINS = frozenset({"BroadcastHashJoinExec", "BroadcastNestedLoopJoinExec"})
_WRAPPERS = frozenset({"WholeStageCodegenExec", "InputAdapter", "ColumnarToRowExec", "RowToColumnarExec"})
_NARROW = frozenset(
    {
        _SCAN,
        "ArrowEvalPythonExec",
        "ArrowEvalPythonUDTFExec",
        "BatchEvalPythonExec",
        "BatchEvalPythonUDTFExec",
        "CoalesceExec",
        "CollectMetricsExec",
        "DeserializeToObjectExec",
        "FilterExec",
        "GenerateExec",
        "MapElementsExec",
        "MapInArrowExec",
        "MapInPandasExec",
        "MapPartitionsExec",
        "ProjectExec",
        "PythonMapInArrowExec",
        "SerializeFromObjectExec",
        "UnionExec",
    }
    | _JOINS
    | _WRAPPERS
)

# What Spark calls an operator on the records' way, and what that is to a user.
_STATEFUL = {
    "Aggregate": "an aggregate (groupBy, distinct, dropDuplicates)",
    "FlatMapGroups": "a grouped function",
    "FlatMapCoGroups": "a grouped function",
    "Window": "a window",
    "Limit": "a limit",
    "TakeOrdered": "an ordered limit",
    "Sort": "a sort",
    "Sample": "a sample, which depends on where a round begins (filter by a hash of the record instead)",
    "Exchange": "an exchange of records between partitions (repartition)",
    "Expand": "grouping sets",
    _CACHE: "a cached input (cache, persist), which would show the records of an earlier round",
}
_WITH_STATE = "give the dataflow a `state:` section, or write it record by record"
_PLACE_DEPENDENT = {
    "MonotonicallyIncreasingID": "monotonically_increasing_id",
    "SparkPartitionID": "spark_partition_id",
    "InputFileName": "input_file_name",
    "InputFileBlockStart": "input_file_block_start",
    "InputFileBlockLength": "input_file_block_length",
}


@dataclass(frozen=True, slots=True)
class PlanOperator:
    """A node of the executed plan: its class, Spark's description in one line, and the operators below it."""

    kind: str
    description: str
    below: tuple[PlanOperator, ...]
    subqueries: tuple[PlanOperator, ...] = ()
    join_type: str = ""

    @property
    def reads_input(self) -> bool:
        """Whether records of an input come through here."""
        if self.kind == _SCAN and FORMAT in self.description:
            return True
        return any(operator.reads_input for operator in (*self.below, *self.subqueries))


def check_narrow(frame: DataFrame, output: str) -> list[str]:
    """The operators of the output's plan, from the top. Raises NotNarrow, naming the output and what is not narrow."""
    root = executed_plan(frame)
    problem = why_not_narrow(root)
    if problem is None and (name := _place_dependent(frame)) is not None:
        problem = f"uses {name}, which depends on where a round begins: use _txid, or a column of the record"
    if problem is not None:
        raise NotNarrow(f"output '{output}' {problem}")
    return [operator.kind.removesuffix("Exec") for operator in walk(root) if operator.kind not in _WRAPPERS]


def why_not_narrow(root: PlanOperator) -> str | None:
    """What is not narrow about a plan, as the rest of a sentence about the output; None when it is narrow."""
    if not root.reads_input:
        return "reads none of the sources (as far as Spark's plan shows; RDDs do not show): derive it from `inputs`"
    wrong = [found for operator in walk(root) if (found := _problem(operator)) is not None]
    # An aggregate needs an exchange, not the other way round: name what the user wrote.
    return min(wrong, key=lambda found: found[0])[1] if wrong else None


def walk(root: PlanOperator) -> Iterator[PlanOperator]:
    """The operators through which records come, from the top."""
    yield root
    for operator in root.below:
        if operator.reads_input:
            yield from walk(operator)


def _problem(operator: PlanOperator) -> tuple[int, str] | None:
    """What is wrong with an operator on the records' way, and how far from what the user wrote it is."""
    if any(subquery.reads_input for subquery in operator.subqueries):
        return 0, f"needs all records of a source at once, in a subquery ({operator.description}): {_WITH_STATE}"
    if operator.kind in _JOINS:
        return _join_problem(operator)
    if "Join" in operator.kind or operator.kind == "CartesianProductExec":
        return 0, _unbroadcast(operator)
    if operator.kind == "UnionExec" and not all(branch.reads_input for branch in operator.below):
        return 0, "unites the records with a static table, whose rows every round would write again: take it out"
    if operator.kind in _NARROW:
        return None
    name = next((text for part, text in _STATEFUL.items() if part in operator.kind), f"the operator {operator.kind}")
    return (2 if "Exchange" in operator.kind else 1), f"needs {name} [{operator.description}]: {_WITH_STATE}"


def _join_problem(join: PlanOperator) -> tuple[int, str] | None:
    left, right = join.below
    if left.reads_input and right.reads_input:
        return 0, f"joins records with records [{join.description}]: {_WITH_STATE}"
    if any(side.reads_input and _is_broadcast(side) for side in join.below):
        return 0, f"broadcasts the records [{join.description}]: broadcast the static table instead"
    kept = {"Left": left, "Exis": left, "Righ": right}.get(join.join_type[:4])
    if join.join_type == "FullOuter" or (kept is not None and not kept.reads_input):
        return (
            0,
            f"keeps the static table's rows that match no record [{join.description}]: join it the other way round",
        )
    return None


def _is_broadcast(operator: PlanOperator) -> bool:
    if operator.kind in _WRAPPERS or operator.kind in _REUSED:
        return _is_broadcast(operator.below[0])
    return operator.kind == _BROADCAST


def _unbroadcast(join: PlanOperator) -> str:
    if all(operator.reads_input for operator in join.below):
        return f"joins records with records [{join.description}]: {_WITH_STATE}"
    return (
        f"joins a static table that is not broadcast [{join.description}]: broadcast it, as in "
        "inputs['source'].join(broadcast(table), ...) or SELECT /*+ BROADCAST(table) */ ..."
    )


# -- reading


def executed_plan(frame: DataFrame) -> PlanOperator:
    """The plan that Spark would execute for `frame`."""
    return _operator(frame._jdf.queryExecution().executedPlan())


def is_repeatable(frame: DataFrame) -> bool:
    """Whether `frame`, planned once, may be executed again: a plan holds its time and its random seeds."""
    analyzed = frame._jdf.queryExecution().analyzed()
    patterns = frame.sparkSession._jvm.org.apache.spark.sql.catalyst.trees.TreePattern  # type: ignore[union-attr]
    return bool(analyzed.deterministic()) and not analyzed.containsPattern(patterns.CURRENT_LIKE())


def is_deterministic(frame: DataFrame) -> bool:
    """Whether two executions of `frame` over the same records give the same."""
    return bool(frame._jdf.queryExecution().analyzed().deterministic())


def _place_dependent(frame: DataFrame) -> str | None:
    if is_deterministic(frame):
        return None
    text = str(frame._jdf.queryExecution().analyzed().toJSON())
    return next((name for kind, name in _PLACE_DEPENDENT.items() if f'.{kind}"' in text), None)


def _operator(node: Any) -> PlanOperator:
    kind = str(node.getClass().getSimpleName())
    below = [_operator(child) for child in _each(node.children())]
    if kind == _CACHE:
        below = [_operator(node.relation().cachedPlan())]
    if kind in _REUSED:
        below = [_operator(node.child())]
    return PlanOperator(
        kind=kind,
        description=_described(node),
        below=tuple(below),
        subqueries=tuple(_operator(subquery) for subquery in _each(node.subqueries())),
        join_type=str(node.joinType().toString()) if "Join" in kind else "",
    )


def _each(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(index) for index in range(sequence.size()))


def _described(node: Any) -> str:
    text = str(node.simpleString(25))
    return text if len(text) <= 160 else text[:159] + "…"
