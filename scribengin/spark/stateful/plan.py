"""What of a transformation cannot run as a stream, and what would work instead: read off Spark's analyzed plan. And
what of it runs otherwise than in a batch job.

Reading it takes Spark's developer API (`Dataset.queryExecution`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from scribengin.errors import ConfigInvalid, PackageInvalid
from scribengin.spark.session.failures import one_line
from scribengin.spark.transform.encoding import BEAT

WATERMARKED = "spark.watermarkDelayMs"
"""What Spark says, in its metadata, of a column that has a watermark."""
_NEVER = {
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState",
    "FlatMapGroupsWithState": "flatMapGroupsWithState",
}
"""What users call operators that have a better successor, by their kinds."""
_OF_ONE_BATCH = {
    "FlatMapGroupsInPandas": "applyInPandas",
    "FlatMapGroupsInArrow": "applyInArrow",
    "FlatMapCoGroupsInPandas": "cogroup(...).applyInPandas",
    "FlatMapCoGroupsInArrow": "cogroup(...).applyInArrow",
}
"""The same of operators that Spark runs batch by batch: where records are cut into batches changes what comes out."""
_INSTEAD = (
    (r"Union between streaming and batch", "write these rows to a log, and let a source read it"),
    (r"Sampling", "filter by a hash of the record, as in abs(xxhash64(id)) % 10 = 0"),
    (r"\bstatic\b", "take a left join that has the stream on the left, or use an inner join"),
    (
        r"[Dd]istinct agg",
        "count what is about distinct with approx_count_distinct, or drop duplicates in a dataflow before",
    ),
    (
        r"[Nn]on-time-based windows|row_number|[Ww]indow function",
        "take max_by or min_by in a group by a window of time",
    ),
    (r"[Ss]orting", "leave the order out: a log has the order of its rounds, and ORDER BY is for who reads it"),
    (
        r"append output mode|streaming aggregations.*watermark",
        "group by window(column, ...) over a column that has a watermark (state.watermarks)",
    ),
    (
        r"LeftAnti join",
        "take a left join with a time range, and of what it gives the rows whose other side is null",
    ),
    (
        r"outer join|(LeftOuter|RightOuter|FullOuter|LeftSemi) join",
        "give both sources a watermark (state.watermarks) and the condition a time range, or use an inner join",
    ),
    (r"\b([Ii]ntersect|[Ee]xcept)\b", "join the streams with a time range instead"),
    (r"[Oo]ffset|[Ll]imit", "leave it out: a stream has no end from which to count"),
)
"""What works instead, by what Spark says when it refuses something."""

_RETURNED = "return what is to be done: a transformation over streams computes and writes nothing itself"
_WHERE_PLANNED = {
    "[INVALID_SUBQUERY_EXPRESSION.STREAMING_QUERY]": "join that stream, for IN and EXISTS by a LEFT SEMI JOIN "
    "with a time range",
    "Stream-stream join without equality predicate": "give the condition something that is equal on both sides, as in "
    "l.id = r.id, beside its time range",
    "Global aggregation with session window": "group by a column beside the session, too",
    "group aggregate pandas UDF": "take Spark's own aggregates, or a function over what collect_list gives",
    "pivot is not supported": "take an aggregate for each column, as in sum(n) FILTER (WHERE who = 'a')",
    "[UNSUPPORTED_FEATURE.ASOF_JOIN]": "take a join with a time range, and of what it gives max_by by a window",
    "must be executed with writeStream.start()": _RETURNED,
    "[CALL_ON_STREAMING_DATASET_UNSUPPORTED]": _RETURNED,
    "[STATE_STORE_UNSUPPORTED_OPERATION_BINARY_INEQUALITY]": "take a key that is equal where its bytes are, as in "
    "lower(name) COLLATE UTF8_BINARY",
}
"""The same, of what Spark refuses before or after it is looked at as a stream, by what its errors have in them."""


@contextmanager
def nearest_named() -> Iterator[None]:
    """What is refused within says what works instead, too, where `refuse_unstreamable` does not see it."""
    try:
        yield
    except (ConfigInvalid, PackageInvalid) as error:
        for told, instead in _WHERE_PLANNED.items():
            if told in str(error):
                raise type(error)(f"{error} Instead: {instead}") from error
        raise


def refuse_unstreamable(frame: DataFrame, output: str) -> None:
    """Raises ConfigInvalid, in one line, for what Spark cannot do to a stream, and for what is not offered."""
    if not frame.isStreaming:
        raise ConfigInvalid(f"output '{output}' reads none of the sources: derive it from `inputs`")
    analyzed = frame._jdf.queryExecution().analyzed()
    for node in _streaming(analyzed):
        if (call := _NEVER.get(kind(node))) is not None:
            raise ConfigInvalid(
                f"output '{output}' uses {call}, which is not offered: use transformWithStateInPandas, which keeps "
                "variables by key, with timers and TTL"
            )
        if (call := _OF_ONE_BATCH.get(kind(node))) is not None:
            raise ConfigInvalid(
                f"output '{output}' cannot run as a stream: {call} sees the records of one batch alone, and not all of "
                "a key's. Instead: use transformWithStateInPandas, or a function over what collect_list gives by a "
                "window of time"
            )
        if kind(node) == "Expand" and _groups_without_time(node):
            raise ConfigInvalid(
                f"output '{output}' cannot run as a stream: it groups without a time, too (GROUPING SETS, ROLLUP, "
                "CUBE), and such a group never ends. Instead: let each of its sets have the window, as in GROUP BY "
                "window(at, '1 hour'), CUBE (who)"
            )
    if any(_is_random(node) for node in nodes(analyzed)):
        raise ConfigInvalid(
            f"output '{output}' uses something random (rand, uuid, a nondeterministic UDF), which would differ when a "
            "batch is run again after a crash: use a hash of the record instead"
        )
    jvm: Any = frame.sparkSession._jvm
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(analyzed, jvm.org.apache.spark.sql.streaming.OutputMode.Append())
    except (PySparkException, Py4JJavaError) as error:
        said = one_line(error)
        instead = next((words for pattern, words in _INSTEAD if re.search(pattern, said)), None)
        raise ConfigInvalid(
            f"output '{output}' cannot run as a stream: {said}" + (f" Instead: {instead}" if instead else "")
        ) from error


def sources_below(node: Any) -> Iterator[str]:
    """The names of the sources that are read there, of beats, too, once for each time."""
    for found in nodes(node):
        if kind(found) == "StreamingRelationV2":
            yield str(found.extraOptions().get("source"))


def refuse_unread(frame: DataFrame, sources: Iterable[str]) -> None:
    """Raises ConfigInvalid for a source that `frame`, of all outputs, does not read: no batch would have it."""
    read = set(sources_below(frame._jdf.queryExecution().analyzed()))
    if unread := [source for source in sources if source not in read]:
        raise ConfigInvalid(f"source '{unread[0]}' is read by no output: let one read it, or take it out of `sources`")


def nodes(node: Any) -> Iterator[Any]:
    """The operator and all below it, from the top."""
    yield node
    for child in each(node.children()):
        yield from nodes(child)


def _groups_without_time(expand: Any) -> bool:
    """Whether one of the sets that rows are grouped by leaves out the time that a watermark ends."""
    timed = [at for at, one in enumerate(each(expand.output())) if one.metadata().contains(WATERMARKED)]
    return any(_is_null(row.apply(at)) for row in each(expand.projections()) for at in timed)


def _is_null(expression: Any) -> bool:
    return kind(expression) == "Literal" and expression.value() is None


def _is_random(node: Any) -> bool:
    """Whether an operator gives something else each time: not the one of ours that only looks so (encoding.py)."""
    if kind(node) == "Filter" and BEAT in str(node.condition().toString()):
        return False
    return not all(bool(expression.deterministic()) for expression in each(node.expressions()))


def _streaming(node: Any) -> Iterator[Any]:
    """The operators that a stream comes through, from the top."""
    if node.isStreaming():
        yield node
        for child in each(node.children()):
            yield from _streaming(child)


def each(sequence: Any) -> Iterator[Any]:
    """The elements of a sequence of Scala's."""
    return (sequence.apply(index) for index in range(sequence.size()))


def kind(node: Any) -> str:
    """The class of a node of a plan."""
    return str(node.getClass().getSimpleName())


def module(package: Any, name: str) -> Any:
    """An object of Scala's."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def with_nulls_apart(frame: DataFrame) -> DataFrame:
    """The same stream, whose joins of streams take no null for a match, as batch jobs do not.

    Spark finds what meets in a join of streams by the bytes of a key, of which those of two nulls are equal. And a row
    whose time is null is behind no watermark: it is kept for ever, and an outer join never gives it out alone. In most
    joins Spark leaves such rows out before, but not in a full one, nor where it does not see that a key may be null
    (`nullif`, `coalesce`, a function of the user's). So a condition gets what follows from it, in words: that nothing
    of it is null. What does not fulfil that is not kept, and an outer join gives it out at once. Nothing that a
    checkpoint has is kept otherwise for that.
    """
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
