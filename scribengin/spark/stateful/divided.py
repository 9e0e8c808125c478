"""Several tasks with state, each of which reads some of the streams among which keys are divided: whether each operator
finds all that it has to see together in one of them, and whether records stand where their keys belong.

What of the plan carries the key on, is read off Spark's executed plan, attribute by attribute: a column of the key is
known by its metadata where the source gives it (encoding.PLACE), and from there by its expression's number. What an
operator makes anew has another number. Where rows come together that need not be of one task (unions), or come with
nulls instead of a key (outer joins), it is looked at what of it is still the key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from scribengin.connectors.contract import DIVIDED_BY, Division
from scribengin.errors import ConfigInvalid
from scribengin.log.clients.partitioners import hash_partitioner
from scribengin.spark.session.failures import SPARK_ERRORS, failure
from scribengin.spark.session.session import activate
from scribengin.spark.stateful.plan import each, kind
from scribengin.spark.transform.encoding import PARSED, PLACE, key_kinds, keyed, source_key
from scribengin.spark.transform.spec import InputSpec, Misplaced

Places = Mapping[int, int]
"""Which part of the key an attribute is, by the number of its expression."""
_ROW = "scribengin row"  # no name that a column of a source would have
_PROCESSOR = "TransformWithStateInPySparkExec"
_NULL_LEFT = frozenset({"RightOuter", "FullOuter"})
_NULL_RIGHT = frozenset({"LeftOuter", "FullOuter"})
"""The joins that give rows without one side: there, its columns are null, whatever task they are in."""


def refuse_unlike(inputs: Mapping[str, DataFrame], specs: Mapping[str, InputSpec], *, several: bool) -> None:
    """Raises ConfigInvalid for columns of `inputs`, as the transformation sees them, that are no key. And, for
    `several` tasks, for sources whose keys are of other kinds: equal ones would be in streams of other numbers."""
    first: tuple[str, list[str]] | None = None
    for name, frame in inputs.items():
        division = specs[name].division
        if division is None:
            continue
        source_key(frame, specs[name])
        for column in division.columns:
            if "collate" in (type_ := frame.schema[column].dataType.simpleString()):
                raise ConfigInvalid(
                    f"sources.{name}.partition_by: '{column}' is {type_}, by which texts are equal that are divided as "
                    "others: leave its collation out"
                )
        kinds = key_kinds(frame, division)
        first = first or (name, kinds)
        if several and kinds != first[1]:
            raise ConfigInvalid(
                f"sources.{first[0]}.partition_by is {' and '.join(first[1])}, and sources.{name}.partition_by "
                f"{' and '.join(kinds)}: equal keys of other kinds are in streams of other numbers; divide both alike"
            )


def refuse_split(
    operators: Iterable[tuple[Any, str]],
    key_of: Callable[[Any], Iterable[tuple[Any, ...]]],
    inputs: Mapping[str, InputSpec],
) -> None:
    """Raises ConfigInvalid for the first of some operators of an executed plan, with their names, that has to see
    together what is in several tasks: each part of the key must be part of its own.

    `key_of` gives an operator's own key: of a join, pairs, one expression a side.
    """
    columns = {name: spec.division.columns for name, spec in inputs.items() if spec.division is not None}
    wanted = set(range(len(next(iter(columns.values()), ()))))
    for node, name in operators:
        if kind(node) == _PROCESSOR and node.hasInitialState():
            raise ConfigInvalid(
                f"{name} begins with an initial state, which each of several tasks would have whole: read that as a "
                "source that is divided as the others are, or leave `tasks` out"
            )
        places = _places_below(node)
        found = {_place_of(one, places) for one in key_of(node)}
        if not wanted <= found:
            by = list(dict.fromkeys(", ".join(of) for of in columns.values()))
            raise ConfigInvalid(
                f"{name} needs records that are in several tasks, among which they are divided by {' and '.join(by)}: "
                "let its key have that, of each source that it reads, or leave `tasks` out"
            )


def refuse_shared_streams(output: str, executed: Any, division: Division, inputs: Mapping[str, InputSpec]) -> None:
    """Raises ConfigInvalid where two tasks could have records for one stream of a divided sink: unless the columns by
    which it is divided, which are those of an `executed` plan, are the key of the sources."""
    places = _places(executed)
    found = [places.get(int(one.exprId().id())) for one in each(executed.output())]
    if found == list(range(len(division.columns))):
        return
    by = dict.fromkeys(", ".join(spec.division.columns) for spec in inputs.values() if spec.division is not None)
    raise ConfigInvalid(
        f"sinks.{output}.partition_by: {', '.join(division.columns)} of the output is not the key by which sources are "
        f"divided among tasks ({' and '.join(by)}), so that two of them would write one stream: name columns that are "
        "that key, unchanged and in its order; or leave `streams` and `partition_by` out, and each task writes one"
    )


def _place_of(expressions: tuple[Any, ...], places: Places) -> int | None:
    """Which part of the key these are, all of them alike."""
    found = {places.get(number) if (number := _number(one)) is not None else None for one in expressions}
    return found.pop() if len(found) == 1 else None


def _number(expression: Any) -> int | None:
    """Of an attribute, or of one that was made wider, which keeps its text."""
    match kind(expression):
        case "AttributeReference":
            return int(expression.exprId().id())
        case "Cast" if _width(expression.dataType()) >= _width(expression.child().dataType()) > 0:
            return _number(expression.child())
    return None


def _width(type_: Any) -> int:
    """In bytes, of whole numbers; 0: it is none."""
    return int(type_.defaultSize()) if str(type_.typeName()) in ("byte", "short", "integer", "long") else 0


def _places_below(node: Any) -> dict[int, int]:
    """Of what the operator reads."""
    below: dict[int, int] = {}
    for child in each(node.children()):
        below |= _places(child)
    return below


def _places(node: Any) -> dict[int, int]:
    """Of what an operator of an executed plan gives."""
    match kind(node):
        case "UnionExec":
            return _places_of_union(node)
        case "ReusedExchangeExec":
            return _renamed(node.output(), node.child().output(), _places(node.child()))
        case "GenerateExec" if PARSED in str(node.generator().toString()):  # the one that decodes a source
            return {**_places_below(node), **_named(each(node.generatorOutput()))}
        case "StreamingRelationExec":
            return _named(each(node.output()))
    children = list(each(node.children()))
    if not children:
        return {}
    places = _places_joined(node) if len(children) > 1 else _places_below(node)
    for one in each(node.expressions()):
        if kind(one) != "Alias":
            continue
        place = _place_of((one.child(),), places)
        if place is None and kind(one.child()) == "Literal":  # of a beat, which is no record
            place = _named([one]).get(int(one.exprId().id()))
        if place is not None:
            places[int(one.exprId().id())] = place
    return places


def _places_joined(node: Any) -> dict[int, int]:
    if not kind(node).endswith("JoinExec"):
        return {}
    join = str(node.joinType().toString())
    left, right = (_places(child) for child in each(node.children()))
    return {**({} if join in _NULL_LEFT else left), **({} if join in _NULL_RIGHT else right)}


def _places_of_union(node: Any) -> dict[int, int]:
    """A column of it is part of the key where all that come together there are."""
    outputs = [(list(each(child.output())), _places(child)) for child in each(node.children())]
    found = {}
    for column, attribute in enumerate(each(node.output())):
        places = {places.get(int(attributes[column].exprId().id())) for attributes, places in outputs}
        if len(places) == 1 and (place := places.pop()) is not None:
            found[int(attribute.exprId().id())] = place
    return found


def _renamed(output: Any, before: Any, places: Places) -> dict[int, int]:
    pairs = zip(each(output), each(before), strict=True)
    numbers = ((int(new.exprId().id()), int(old.exprId().id())) for new, old in pairs)
    return {new: places[old] for new, old in numbers if old in places}


def _named(attributes: Iterable[Any]) -> dict[int, int]:
    """Those that say themselves that they are part of the key."""
    return {
        int(one.exprId().id()): int(one.metadata().getLong(PLACE))
        for one in attributes
        if one.metadata().contains(PLACE)
    }


def first_misplaced(session: SparkSession, spec: InputSpec, streams: Mapping[int, pa.Table]) -> Misplaced | None:
    """The first of some records of a divided source, by the numbers of their streams, whose key belongs to another one:
    one job for all of them. What cannot be decoded is in no wrong place. Raises SparkUnavailable."""
    assert spec.division is not None, "it is divided"
    rows = pa.concat_tables(streams.values())
    numbers = np.repeat(list(streams), [table.num_rows for table in streams.values()])
    try:
        activate(session)
        table = rows.append_column(_ROW, pa.array(range(rows.num_rows), pa.int64()))
        keys = keyed(session.createDataFrame(table), spec, _ROW).toArrow().sort_by(_ROW)
    except SPARK_ERRORS as error:
        raise failure(error, f"looking at the keys of source '{spec.name}'") from error
    at = keys.column(_ROW).to_numpy()
    found = keys.column(DIVIDED_BY).combine_chunks().cast(pa.binary())
    belongs = hash_partitioner(found, spec.division.streams).to_numpy()
    wrong = np.flatnonzero(belongs != numbers[at])
    if not wrong.size:
        return None
    first = int(wrong[0])
    number = int(numbers[at[first]])
    row = int(at[first] - np.flatnonzero(numbers == number)[0])
    return Misplaced(number, row, found[first].as_py().decode(errors="replace"), int(belongs[first]))
