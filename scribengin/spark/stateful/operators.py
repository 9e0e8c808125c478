"""The operators of a stream that keep state, as Spark would run them: their names, their keys, and what bounds them.

Spark plans a stream batch by batch (`IncrementalExecution`, its developer API). A plan of a first batch that never runs
says all of it, and numbers the operators as the query's checkpoint does: from the top.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from scribengin.errors import ConfigInvalid
from scribengin.spark.session.session import scratch_directory
from scribengin.spark.stateful.divided import refuse_shared_streams, refuse_split
from scribengin.spark.stateful.plan import WATERMARKED, each, kind, module, nodes
from scribengin.spark.stateful.query_log import PARTITIONS
from scribengin.spark.transform.encoding import quoted
from scribengin.spark.transform.spec import InputSpec, OutputSpec, StateOperator

LIMIT = "globalLimit"
"""What Spark calls the operator that has no key."""
_WORDS = {
    "stateStoreSave": "aggregate",
    "sessionWindowStateStoreSaveExec": "session",
    "symmetricHashJoin": "join",
    "dedupe": "duplicates",
    "dedupeWithinWatermark": "duplicates",
    LIMIT: "limit",
    "transformWithStateInPySparkExec": "processor",
    "transformWithStateInPandasExec": "processor",
}
"""What operators are called, by Spark's names, which its checkpoints have, too."""
_SOME_TIME_MS = 1 << 41
_BY_CLOCK = "ProcessingTime"
_STREAMING = "spark.sql.streaming"
_PINNED = (f"{_STREAMING}.stateStore.providerClass",)
_PINNED_BY = {
    "aggregate": (f"{_STREAMING}.aggregation.stateFormatVersion",),
    "session": (f"{_STREAMING}.sessionWindow.merge.sessions.in.local.partition",),
    "join": (f"{_STREAMING}.join.stateFormatVersion",),
    "processor": (f"{_STREAMING}.stateStore.encodingFormat",),
}
"""Spark reads these out of the checkpoint from its first batch on, whatever the session says."""


@dataclass(frozen=True, slots=True)
class StateVariable:
    """What a processor (transformWithState) keeps by key under a name. `kind` is Spark's: `ValueState` and so on."""

    name: str
    kind: str
    expires: bool
    """Whether it has a TTL."""

    @property
    def is_timers(self) -> bool:
        """Whether it is none of the user's, but the timers that are registered."""
        return self.kind == "TimerState"


def state_operators(
    frame: DataFrame, state: Path, divided: Mapping[str, InputSpec] | None = None
) -> tuple[StateOperator, ...]:
    """Those of a stream, from the top, named. What describes them is left in `state`, as a first batch would leave it.

    Raises ConfigInvalid for modes of a processor that do not go together, and, where the records of its sources are
    `divided` among several tasks, for one that needs those of several."""
    found = [node for node in nodes(planned(frame, state).executedPlan()) if _keeps_state(node)]
    names = operator_names([str(node.shortName()) for node in found])
    if divided is not None:
        refuse_split(zip(found, names, strict=True), _sides_of_key, divided)
    return tuple(_operator(frame, node, name, state) for node, name in zip(found, names, strict=True))


def refuse_shared(
    given: Mapping[str, DataFrame], outputs: Mapping[str, OutputSpec], inputs: Mapping[str, InputSpec]
) -> None:
    """As `refuse_shared_streams`, of each output that is divided; `given` are the outputs as the transformation has
    them."""
    for name, frame in given.items():
        if (division := outputs[name].division) is None:
            continue
        key = frame.select([quoted(column) for column in division.columns])
        with tempfile.TemporaryDirectory(dir=scratch_directory(), prefix="plan-") as directory:
            refuse_shared_streams(name, planned(key, Path(directory) / "state").executedPlan(), division, inputs)


def operator_names(spark: Sequence[str]) -> list[str]:
    """What users call operators that Spark calls so: `join`, or `join-1` and `join-2` where there are several."""
    words = [_WORDS.get(one, one) for one in spark]
    many, seen = Counter(words), Counter[str]()
    names = []
    for word in words:
        seen[word] += 1
        names.append(f"{word}-{seen[word]}" if many[word] > 1 else word)
    return names


def state_variables(properties: str) -> list[StateVariable]:
    """Those that are named in the properties of an operator, which Spark writes as JSON; none where it has none."""
    found = json.loads(properties or "{}").get("stateVariables", [])
    variables = [StateVariable(one["stateName"], one["stateVariableType"], one["ttlEnabled"]) for one in found]
    return sorted(variables, key=lambda one: one.name)


def planned(frame: DataFrame, state: Path, batch: int = 0) -> Any:
    """The execution of a batch over a stream, planned lazily: its state would be in `state`, where planning leaves
    descriptions of it, and where it looks whether those of an earlier `batch` fit. What is beside is the checkpoint's,
    which is not to be a query's own."""
    offsets = state.parent / "offsets"
    offsets.mkdir(parents=True, exist_ok=True)
    (offsets / str(batch)).touch()  # Spark reads no description of variables but of a batch that has its plan
    session = frame.sparkSession
    jvm: Any = session._jvm
    streaming = jvm.org.apache.spark.sql.execution.streaming
    maps = jvm.scala.collection
    run = jvm.java.util.UUID.randomUUID()
    metadata = streaming.checkpointing.OffsetSeqMetadata(0, 0, module(maps.immutable, "Map").empty())
    return streaming.runtime.IncrementalExecution(
        session._jsparkSession,
        frame._jdf.queryExecution().analyzed(),
        jvm.org.apache.spark.sql.streaming.OutputMode.Append(),
        f"file:{state}",  # whatever file system the cluster has for paths
        run,
        run,
        batch,
        jvm.scala.Option.empty(),
        metadata,
        module(streaming.runtime, "WatermarkPropagator").noop(),
        True,  # as after a start: only then what is in the checkpoint is compared
        module(maps.mutable, "Map").empty(),
        module(maps.mutable, "Map").empty(),
        module(jvm.org.apache.spark.sql.execution, "CommandExecutionMode").ALL(),
        False,
        False,
    )


def refuse_unbounded(operators: Sequence[StateOperator], output: str, allowed: Sequence[str]) -> None:
    """Raises ConfigInvalid for what is never forgotten, unless its name is `allowed` to; and for a name of nothing."""
    for operator in operators:
        if operator.bound is None and operator.name not in allowed:
            keeps = "may keep its variables" if operator.kind == "processor" else "keeps its records"
            raise ConfigInvalid(
                f"output '{output}': {operator.name} ({', '.join(operator.key)}) {keeps} for ever: "
                f"{_BOUNDS.get(operator.kind, _BOUND)}, or allow it with state.unbounded: [{operator.name}]"
            )
    names = [operator.name for operator in operators]
    for name in allowed:
        if name not in names:
            there = f"these do: {', '.join(names)}" if names else "nothing does"
            raise ConfigInvalid(f"state.unbounded names '{name}', and nothing of that name keeps state ({there})")


_BOUND = "give the source a watermark (state.watermarks), and group by a window over its column"
_BOUNDS = {
    "join": "give both sources a watermark (state.watermarks), and the join's condition a time range for both",
    "duplicates": "give the source a watermark (state.watermarks), and let its column be one of the key's, or use "
    "dropDuplicatesWithinWatermark",
    "processor": "give each of its state variables a TTL, in the time mode processingTime",
}


def _operator(frame: DataFrame, node: Any, name: str, state: Path) -> StateOperator:
    """What is known of it by its plan, and by what planning has left in `state`."""
    word = _word(node)
    session = frame.sparkSession
    settings = {key: str(session.conf.get(key)) for key in (*_PINNED, *_PINNED_BY.get(word, ()))}
    key = tuple(dict.fromkeys(_key(node, word)))
    partitions = None if word == "limit" else int(str(session.conf.get(PARTITIONS)))
    made = partial(
        StateOperator,
        name=name,
        kind=word,
        spark=str(node.shortName()),
        key=key,
        pinned=settings,
        partitions=partitions,
    )
    if word != "processor":
        return made(bound=_bound(session._jvm, node, word))
    variables = _variables(node, state)
    by_clock = str(node.timeMode().toString()) == _BY_CLOCK
    if (wrong := _unsound(node, variables)) is not None:
        raise ConfigInvalid(f"{name} ({', '.join(key)}) {wrong}")
    return made(bound=_bound_of_processor(variables), by_clock=by_clock)


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
    marked = [one for one in each(node.keyExpressions()) if one.metadata().contains(WATERMARKED)]
    column = str(marked[0].name()) if marked else None
    if word == "aggregate":
        return column and f"the watermark of {column}: a group is given out when it has passed"
    if str(node.shortName()) == "dedupeWithinWatermark":
        return "the watermark: a key is forgotten when it has passed"
    return column and f"the watermark of {column}: a key is forgotten when it has passed"


def _bound_of_join(jvm: Any, node: Any) -> str | None:
    streaming = jvm.org.apache.spark.sql.execution.streaming.operators.stateful.join
    some = jvm.scala.Option.apply(_SOME_TIME_MS)
    predicates = module(streaming, "StreamingSymmetricHashJoinHelper").getStateWatermarkPredicates(
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


def _variables(node: Any, state: Path) -> list[StateVariable]:
    """Those of a processor: planning has called its `init`, and left in `state` what that has asked for."""
    [described] = (state / str(node.stateInfo().get().operatorId()) / "_metadata" / "v2").glob("[0-9]*")
    return state_variables(json.loads(described.read_text().partition("\n")[2])["operatorPropertiesJson"])


def _unsound(node: Any, variables: Sequence[StateVariable]) -> str | None:
    """What is wrong with the modes that a processor was given; None: nothing."""
    time, output = str(node.timeMode().toString()), str(node.outputMode().toString())
    if output != "Append":
        return f"has the output mode {output}, and what is given out stays: give it the output mode 'Append'"
    if time == "EventTime" and not any(kind(one) == "EventTimeWatermarkExec" for one in nodes(node)):
        return "has the time mode eventTime, and no watermark reaches it: give its source one (state.watermarks)"
    if time != _BY_CLOCK and (expiring := [one.name for one in variables if one.expires]):
        return f"gives {', '.join(expiring)} a TTL, which needs the time mode processingTime"
    return None


def _bound_of_processor(variables: Sequence[StateVariable]) -> str | None:
    """Only a TTL of all that it keeps: of a timer nobody sees whether its code forgets something then."""
    kept = [one for one in variables if not one.is_timers]
    if not all(one.expires for one in kept):
        return None
    return f"the TTL of {', '.join(one.name for one in kept)}" if kept else "its timers: it has no state variables"


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
        "TransformWithStateInPySparkExec",
    }
)
