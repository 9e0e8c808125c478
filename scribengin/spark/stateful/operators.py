"""The operators of a stream that keep state, as Spark would run them: their names, their keys, and what bounds them.

Spark plans a stream batch by batch (`IncrementalExecution`, its developer API). A plan of a first batch that never runs
says all of it, and numbers the operators as the query's checkpoint does: from the top.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from scribengin.errors import ConfigInvalid
from scribengin.spark.session.session import scratch_directory
from scribengin.spark.stateful.divided import refuse_split
from scribengin.spark.stateful.plan import each, kind, nodes
from scribengin.spark.transform.spec import InputSpec, StateOperator

_WORDS = {
    "stateStoreSave": "aggregate",
    "sessionWindowStateStoreSaveExec": "session",
    "symmetricHashJoin": "join",
    "dedupe": "duplicates",
    "dedupeWithinWatermark": "duplicates",
    "globalLimit": "limit",
}
"""What operators are called, by Spark's names, which its checkpoints have, too."""
_WATERMARKED = "spark.watermarkDelayMs"
_SOME_TIME_MS = 1 << 41
_STREAMING = "spark.sql.streaming"
_PINNED = ("spark.sql.shuffle.partitions", f"{_STREAMING}.stateStore.providerClass")
_PINNED_BY = {
    "aggregate": (f"{_STREAMING}.aggregation.stateFormatVersion",),
    "session": (f"{_STREAMING}.sessionWindow.merge.sessions.in.local.partition",),
    "join": (f"{_STREAMING}.join.stateFormatVersion",),
}
"""Spark reads these out of the checkpoint from its first batch on, whatever the session says."""


def state_operators(frame: DataFrame, divided: Mapping[str, InputSpec] | None = None) -> tuple[StateOperator, ...]:
    """Those of a stream, from the top, named. Where the records of its sources are `divided` among several tasks,
    raises ConfigInvalid for one that needs those of several."""
    with tempfile.TemporaryDirectory(dir=scratch_directory(), prefix="plan-") as directory:
        found = [node for node in nodes(planned(frame, Path(directory)).executedPlan()) if _keeps_state(node)]
        names = operator_names([str(node.shortName()) for node in found])
        if divided is not None:
            refuse_split(zip(found, names, strict=True), _sides_of_key, divided)
        return tuple(_operator(frame, node, name) for node, name in zip(found, names, strict=True))


def operator_names(spark: Sequence[str]) -> list[str]:
    """What users call operators that Spark calls so: `join`, or `join-1` and `join-2` where there are several."""
    words = [_WORDS.get(one, one) for one in spark]
    many, seen = Counter(words), Counter[str]()
    names = []
    for word in words:
        seen[word] += 1
        names.append(f"{word}-{seen[word]}" if many[word] > 1 else word)
    return names


def planned(frame: DataFrame, checkpoint: Path, batch: int = 0) -> Any:
    """The execution of a batch over a stream, planned lazily: its state would be in `checkpoint`, where planning leaves
    descriptions of it, and where it looks whether those of an earlier `batch` fit."""
    session = frame.sparkSession
    jvm: Any = session._jvm
    streaming = jvm.org.apache.spark.sql.execution.streaming
    maps = jvm.scala.collection
    run = jvm.java.util.UUID.randomUUID()
    metadata = streaming.checkpointing.OffsetSeqMetadata(0, 0, _module(maps.immutable, "Map").empty())
    return streaming.runtime.IncrementalExecution(
        session._jsparkSession,
        frame._jdf.queryExecution().analyzed(),
        jvm.org.apache.spark.sql.streaming.OutputMode.Append(),
        str(checkpoint),
        run,
        run,
        batch,
        jvm.scala.Option.empty(),
        metadata,
        _module(streaming.runtime, "WatermarkPropagator").noop(),
        True,  # as after a start: only then what is in the checkpoint is compared
        _module(maps.mutable, "Map").empty(),
        _module(maps.mutable, "Map").empty(),
        _module(jvm.org.apache.spark.sql.execution, "CommandExecutionMode").ALL(),
        False,
        False,
    )


def refuse_unbounded(operators: Sequence[StateOperator], output: str, allowed: Sequence[str]) -> None:
    """Raises ConfigInvalid for what is never forgotten, unless its name is `allowed` to; and for a name of nothing."""
    for operator in operators:
        if operator.bound is None and operator.name not in allowed:
            raise ConfigInvalid(
                f"output '{output}': {operator.name} ({', '.join(operator.key)}) keeps its records for ever: "
                f"{_BOUNDS.get(operator.kind, _BOUND)}, or allow it with state.unbounded: [{operator.name}]"
            )
    names = [operator.name for operator in operators]
    for name in allowed:
        if name not in names:
            there = f"these do: {', '.join(names)}" if names else "nothing does"
            raise ConfigInvalid(f"state.unbounded names '{name}', and nothing of that name keeps state ({there})")


_BOUND = "give the source a watermark, and group by a window over its column"
_BOUNDS = {
    "join": "give both sources a watermark, and the join's condition a time range for both",
    "duplicates": "give the source a watermark, and let its column be one of the key's, or use "
    "dropDuplicatesWithinWatermark",
}


def _operator(frame: DataFrame, node: Any, name: str) -> StateOperator:
    word = _word(node)
    session = frame.sparkSession
    settings = {key: str(session.conf.get(key)) for key in (*_PINNED, *_PINNED_BY.get(word, ()))}
    key = tuple(dict.fromkeys(_key(node, word)))
    bound = _bound(session._jvm, node, word)
    return StateOperator(name=name, kind=word, spark=str(node.shortName()), key=key, bound=bound, pinned=settings)


def _key(node: Any, word: str) -> Iterator[str]:
    for one, *_ in _sides_of_key(node, word):
        yield re.sub(r"#\d+\w*(-T\d+ms)?", "", str(one.toString()))


def _sides_of_key(node: Any, word: str | None = None) -> Iterator[tuple[Any, ...]]:
    """The expressions of an operator's key; of a join's, those of both sides together."""
    match word or _word(node):
        case "join":
            yield from zip(each(node.leftKeys()), each(node.rightKeys()), strict=True)
        case "limit":
            return
        case _:
            for one in each(node.keyExpressions()):
                yield (one,)


def _bound(jvm: Any, node: Any, word: str) -> str | None:
    """What bounds it, in words; None: nothing."""
    match word:
        case "join":
            return _bound_of_join(jvm, node)
        case "limit":
            return "one number, how many rows have come"
        case "session":
            return "the watermark: a session is given out when it has passed its end"
    marked = [one for one in each(node.keyExpressions()) if one.metadata().contains(_WATERMARKED)]
    column = str(marked[0].name()) if marked else None
    if word == "aggregate":
        return column and f"the watermark of {column}: a group is given out when it has passed"
    if str(node.shortName()) == "dedupeWithinWatermark":
        return "the watermark: a key is forgotten when it has passed"
    return column and f"the watermark of {column}: a key is forgotten when it has passed"


def _bound_of_join(jvm: Any, node: Any) -> str | None:
    streaming = jvm.org.apache.spark.sql.execution.streaming.operators.stateful.join
    some = jvm.scala.Option.apply(_SOME_TIME_MS)
    predicates = _module(streaming, "StreamingSymmetricHashJoinHelper").getStateWatermarkPredicates(
        node.left().output(),
        node.right().output(),
        node.leftKeys(),
        node.rightKeys(),
        node.condition().full(),
        some,
        some,
        False,
    )
    sides = (predicates.left(), predicates.right())
    if not all(side.isDefined() for side in sides):
        return None
    by_key = all(str(side.get().toString()).startswith("key") for side in sides)
    return f"the watermark, through {'its key' if by_key else 'the time range of its condition'}"


def _word(node: Any) -> str:
    return _WORDS[str(node.shortName())]


def _keeps_state(node: Any) -> bool:
    return kind(node) in _STATEFUL


_STATEFUL = frozenset(
    {
        "StateStoreSaveExec",
        "SessionWindowStateStoreSaveExec",
        "StreamingSymmetricHashJoinExec",
        "StreamingDeduplicateExec",
        "StreamingDeduplicateWithinWatermarkExec",
        "StreamingGlobalLimitExec",
    }
)


def _module(package: Any, name: str) -> Any:
    """An object of Scala's."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")
