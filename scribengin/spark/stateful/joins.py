"""Joins of streams over nulls, as batch jobs have them: what lacks a key, or a time, meets nothing.

Spark finds what meets in a join of streams by the bytes of a key, of which those of two nulls are equal. It looks at
the condition itself only where no key says it. And a row whose time is null is not behind any watermark: it is kept for
ever, and an outer join never gives it out alone. In most joins Spark leaves such rows out before, but not in a full
one, nor where it does not see that a key may be null (`nullif`, `coalesce`, a function of the user's).

So a condition gets what follows from it, in words: that nothing of it is null. What does not fulfil that is not kept,
and an outer join gives it out at once. Nothing that a checkpoint has is kept otherwise for that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

from scribengin.spark.stateful.plan import each, kind, module


def with_nulls_apart(frame: DataFrame) -> DataFrame:
    """The same stream, whose joins of streams take no null for a match."""
    session: Any = frame.sparkSession
    guarded = _guarded(session._jvm, frame._jdf.queryExecution().analyzed())
    if guarded is None:
        return frame
    dataset = module(session._jvm.org.apache.spark.sql.classic, "Dataset")
    return DataFrame(dataset.ofRows(session._jsparkSession, guarded), session)


def _guarded(jvm: Any, node: Any) -> Any | None:
    """The plan with its joins guarded; None: it has none of streams."""
    children = list(each(node.children()))
    below = [_guarded(jvm, child) for child in children]
    if any(child is not None for child in below):
        kept = [old if new is None else new for old, new in zip(children, below, strict=True)]
        node = node.withNewChildren(jvm.PythonUtils.toSeq(kept))
    elif not _joins_streams(node):
        return None
    return _with_condition(jvm, node) if _joins_streams(node) else node


def _joins_streams(node: Any) -> bool:
    return kind(node) == "Join" and bool(node.left().isStreaming() and node.right().isStreaming())


def _with_condition(jvm: Any, join: Any) -> Any:
    catalyst = jvm.org.apache.spark.sql.catalyst
    condition = join.condition()
    if not condition.isDefined():
        return join
    condition = condition.get()
    for expression in _never_null(jvm, join):
        condition = catalyst.expressions.And(condition, catalyst.expressions.IsNotNull(expression))
    wanted = jvm.scala.Option.apply(condition)
    return catalyst.plans.logical.Join(join.left(), join.right(), join.joinType(), wanted, join.hint())


def _never_null(jvm: Any, join: Any) -> Iterator[Any]:
    """What is not null in any pair that meets: the keys, and the columns on which Spark's own comparisons depend."""
    catalyst = jvm.org.apache.spark.sql.catalyst
    found = module(catalyst.planning, "ExtractEquiJoinKeys").unapply(join)
    if found.isDefined():
        for keys in (found.get()._2(), found.get()._3()):
            yield from (key for key in each(keys) if key.nullable())
    inner = module(catalyst.plans, "Inner")
    met = catalyst.plans.logical.Join(join.left(), join.right(), inner, join.condition(), join.hint())
    for rule in ("ReplaceExpressions", "RewriteWithExpression"):  # BETWEEN and others are spelled out
        met = module(catalyst.optimizer, rule).apply(met)
    for constraint in each(met.constraints().toSeq()):
        of_join = constraint.references().subsetOf(join.inputSet())
        if kind(constraint) == "IsNotNull" and constraint.child().nullable() and of_join:
            yield constraint.child()
