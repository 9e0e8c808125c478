"""From a source's records to the columns that a transformation sees, and from its columns back. Inside Spark.

Whatever cannot be decoded or encoded raises, so that the record is found: it never becomes a null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    IntegralType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from scribengin.base.names import given_twice
from scribengin.connectors.contract import DIVIDED_BY, PAYLOAD, Division
from scribengin.errors import ConfigInvalid
from scribengin.spark.session.failures import one_line
from scribengin.spark.transform.input import WATERMARK
from scribengin.spark.transform.spec import InputSpec, OutputSpec, StateSpec

BESIDE = "_"
"""What stands before the name of a column beside the payload, in a `json` format."""
BEAT = "scribengin beat"
"""The column that says which rows are beats, below the filter that ends them."""
PLACE = "scribengin place"
"""In the metadata of a column that is part of the key by which its source is divided: which part."""
AS_READ = "scribengin payload"
"""Beside the columns that a payload was decoded to: the payload."""
LATE_SOURCE, LATE_WATERMARK = "late_source", "late_watermark"
"""Beside the columns of a late record: where it was read, and what it was not after."""
LATE_CARRIES = ("key", "channel", "headers")
"""What goes along with a late record, of what its sink carries. Its place among others is not the sink's: logs refuse a
transaction id that goes back, topics a partition that they lack, or an old time."""
PARSED = "scribengin parsed"  # no name that a column of the user's would have

# One document a record: single quotes are no JSON, and a second document behind the first would vanish (see _pair).
_FROM_JSON = {"mode": "FAILFAST", "allowSingleQuotes": "false"}
_TO_JSON = {"ignoreNullFields": "false"}
_BETWEEN_KEYS = "\x1f"
_NO_EVENT_TIME = (
    "Name a TIMESTAMP column of the source. Or leave it out of state.watermarks, and make one in the transformation: "
    "by withWatermark, or in SQL, as in FROM src WATERMARK timestamp_seconds(sec) AS at DELAY OF INTERVAL 1 MINUTE"
)
NO_DOCUMENT = "the payload is not one JSON object"
NO_PAYLOAD = "the output's payload is null"


def prefix_beside(spec: InputSpec) -> str:
    """What `decode` puts before the name of a column beside the payload."""
    return BESIDE if spec.format == "json" else ""


def decode(frame: DataFrame, spec: InputSpec) -> DataFrame:
    """The columns that the transformation sees of an input.

    Raises ConfigInvalid for a `schema_ddl` that is none, or for `json` where records have no payload.
    """
    if spec.format != "json":
        return frame
    if PAYLOAD not in frame.columns:
        raise ConfigInvalid(
            f"source '{spec.name}': its records are columns already ({', '.join(frame.columns)}), not JSON payloads: "
            "leave out format and schema_ddl"
        )
    schema = _schema(spec)
    beside = [name for name in frame.columns if name != PAYLOAD]
    own = {f"{BESIDE}{name}".lower(): f"{BESIDE}{name}" for name in beside}
    if taken := sorted(own[name.lower()] for name in schema.fieldNames() if name.lower() in own):
        raise ConfigInvalid(
            f"source '{spec.name}': schema_ddl may not name {', '.join(taken)}: the record's own columns"
        )
    shown = [F.col(quoted(name)).alias(BESIDE + name) for name in beside]
    pairs = frame.select(_pair(F.col(PAYLOAD), schema).alias(PARSED), *shown)
    names = [quoted(BESIDE + name) for name in beside]
    documents = pairs.select(_document(F.col(quoted(PARSED))).alias(PARSED), *names)
    # A generator of one row a document: Spark moves no filter of the user's below it, where it would parse again.
    return documents.select(F.inline(F.array(quoted(PARSED))), *names)


def watermarked(
    frame: DataFrame, spec: InputSpec, state: StateSpec | None, beats: DataFrame | None = None
) -> DataFrame:
    """An input with the watermark that its source has by the configuration, which also goes by the source's `beats`;
    without what is late, where that goes to a sink. Raises ConfigInvalid for a column that it lacks, or that is no
    time."""
    watermark = None if state is None else state.watermarks.get(spec.name)
    if state is None or watermark is None:
        return frame
    column = _found(frame, watermark.column)
    try:
        if state.late is not None:
            _refuse_no_time(frame, spec, watermark.column)
            frame = frame.where(~_is_late(frame, spec, column)).drop(_watermark(spec))
        united = frame if beats is None else _with_beats(frame, column, beats)
        marked = united.withWatermark(column, f"{round(watermark.delay_s * 1000)} milliseconds")
        return marked if beats is None else _without_beats(marked)
    except (PySparkException, Py4JJavaError) as error:
        raise ConfigInvalid(f"state.watermarks.{spec.name}: {one_line(error)} {_NO_EVENT_TIME}") from error


def late_records(frame: DataFrame, spec: InputSpec, column: str, output: OutputSpec) -> DataFrame:
    """What the sink of late records gets of those of a source, of which `frame` is all: in its `raw` format as they
    were read, else their columns. Raises ConfigInvalid for a sink that cannot take them."""
    carried = pa.schema([field for field in output.side_columns if field.name in LATE_CARRIES])
    output = replace(output, side_columns=carried)
    if output.format != "raw":
        rows = decode(frame, spec)
        late = rows.where(_is_late(rows, spec, column))
        own = [F.col(quoted(name)) for name in late.columns if name != _watermark(spec)]
        beside = [F.lit(spec.name).alias(LATE_SOURCE), F.col(quoted(_watermark(spec))).alias(LATE_WATERMARK)]
        return encode(late.select(*own, *beside), output)
    if PAYLOAD not in frame.columns:
        raise ConfigInvalid(
            f"state.late: the records of source '{spec.name}' are columns ({', '.join(spec.schema.names)}), and sink "
            f"'{output.name}' takes payloads: set format: json for it"
        )
    rows = decode(frame.select("*", F.col(PAYLOAD).alias(AS_READ)), spec)
    kept = [F.col(quoted(prefix_beside(spec) + name)).alias(name) for name in spec.schema.names if name != PAYLOAD]
    late = rows.where(_is_late(rows, spec, column))
    missing = f"state.late: a late record of source '{spec.name}' has no payload, which sink '{output.name}' needs"
    payload = F.coalesce(F.col(quoted(prefix_beside(spec) + AS_READ)), F.raise_error(F.lit(missing)))
    return encode(late.select(payload.alias(PAYLOAD), *kept), output)


def united_late(frames: Mapping[str, DataFrame]) -> DataFrame | None:
    """What `late_records` says of each source, as one; None of none. Raises ConfigInvalid for columns of one name that
    have two types: Spark would change values of the one, or refuse them when they come."""
    late: DataFrame | None = None
    first: dict[str, tuple[str, str]] = {}
    for source, frame in frames.items():
        for field in frame.schema:
            kind = field.dataType.simpleString()
            before, other = first.setdefault(field.name.lower(), (kind, source))
            if kind != before:
                raise ConfigInvalid(
                    f"state.late: column '{field.name}' is {before} in source '{other}' and {kind} in '{source}', and "
                    "one sink takes both: give it one type, or set format: json for the sink"
                )
        late = frame if late is None else late.unionByName(frame, allowMissingColumns=True)
    return late


def _found(frame: DataFrame, column: str) -> str:
    """As Spark finds it: what is the name of a column is that, whatever stands in it."""
    return quoted(column) if column in frame.columns else column


def _refuse_no_time(frame: DataFrame, spec: InputSpec, column: str) -> None:
    """Before it is compared with a time, of which Spark would speak."""
    [field] = frame.select(_found(frame, column)).schema
    if not isinstance(field.dataType, TimestampType):
        raise ConfigInvalid(
            f"state.watermarks.{spec.name}: column '{column}' is {field.dataType.simpleString()}, and state.late goes "
            "by a timestamp: name one, or have the source's schema_ddl say TIMESTAMP"
        )


def _is_late(frame: DataFrame, spec: InputSpec, column: str) -> Column:
    """Of the rows of an input. Whose time is the watermark is late, as it is to Spark where a key is a time. Without a
    time nothing is."""
    return F.coalesce(F.col(_found(frame, column)) <= F.col(quoted(_watermark(spec))), F.lit(False))


def _watermark(spec: InputSpec) -> str:
    """What the column of that name is called behind `decode`."""
    return prefix_beside(spec) + WATERMARK


def _with_beats(frame: DataFrame, column: str, beats: DataFrame) -> DataFrame:
    """And with a row for each beat, all of whose columns are null but the time's."""
    [name] = frame.select(column).columns  # as Spark finds it: whatever its case, and whether it is quoted
    at = F.col(beats.columns[0])
    row = [
        (at if field.name.lower() == name.lower() else F.lit(None))
        .cast(field.dataType)
        .alias(field.name, metadata=field.metadata)
        for field in frame.schema
    ]
    return frame.select("*", F.lit(False).alias(BEAT)).union(beats.select(*row, F.lit(True).alias(BEAT)))


def _without_beats(frame: DataFrame) -> DataFrame:
    """Spark moves filters below a watermark where it can, users' too, and beats would never reach it. One that is
    nondeterministic as a whole, in its eyes, stays, and so do all above it. This number is never below 0."""
    stays = F.when(F.col(quoted(BEAT)), F.spark_partition_id() < 0).otherwise(True)
    return frame.where(stays).drop(BEAT)


def undecodable(frame: DataFrame, spec: InputSpec, kept: str) -> DataFrame:
    """The column `kept` of the records that `decode` raises on. Of `frame`, only that and the payload are looked at."""
    return _tried_documents(frame, spec, [kept]).where(F.col(quoted(PARSED)).isNull()).select(quoted(kept))


def keyed(frame: DataFrame, spec: InputSpec, kept: str) -> DataFrame:
    """Of the records of a divided source that can be decoded, the column `kept`, and DIVIDED_BY: the key by which they
    are divided. Raises ConfigInvalid for columns that are no key."""
    if spec.format == "json":
        beside = [name for name in frame.columns if name not in (PAYLOAD, kept)]
        documents = _tried_documents(frame, spec, [kept, *beside]).where(F.col(quoted(PARSED)).isNotNull())
        shown = [F.col(quoted(name)).alias(BESIDE + name) for name in beside]
        frame = documents.select(quoted(kept), f"{quoted(PARSED)}.*", *shown)
    return frame.select(quoted(kept), source_key(frame, spec).alias(DIVIDED_BY))


def _tried_documents(frame: DataFrame, spec: InputSpec, kept: list[str]) -> DataFrame:
    """The columns `kept`, and what each payload decodes to, or null where that raises."""
    columns = [F.col(quoted(name)) for name in kept]
    pair = _tried(frame.sparkSession, _pair(F.col(PAYLOAD), _schema(spec)))
    # A generator, as in `decode`: a filter must not be moved below it, where it would parse twice.
    pairs = frame.select(F.inline(F.array(F.struct(*columns, pair.alias(PARSED)))))
    document = _tried(frame.sparkSession, _document(F.col(quoted(PARSED))))
    return pairs.select(*columns, document.alias(PARSED))


def encode(frame: DataFrame, spec: OutputSpec) -> DataFrame:
    """What reaches the sink of an output: its own columns (`columns`), or `payload` and what of `spec.side_columns` it
    has.

    Raises ConfigInvalid for columns that do not fit.
    """
    if (doubled := given_twice(sorted(frame.columns))) is not None:
        raise ConfigInvalid(f"output '{spec.name}' has two columns named '{doubled}': rename or drop one")
    if spec.format == "columns":
        return _encode_columns(frame, spec)
    return _encode_json(frame, spec) if spec.format == "json" else _encode_raw(frame, spec)


def _schema(spec: InputSpec) -> StructType:
    if spec.schema_ddl is None:
        raise ConfigInvalid(f"source '{spec.name}': format json needs a schema_ddl, as in 'id BIGINT, carrier STRING'")
    try:
        schema = StructType.fromDDL(spec.schema_ddl)
    except (ParseException, AnalysisException) as error:
        why = (error.getMessage() or "").strip().partition("\n")[0]
        raise ConfigInvalid(f"source '{spec.name}': schema_ddl cannot be read: {why}") from error
    if not isinstance(schema, StructType):
        raise ConfigInvalid(
            f"source '{spec.name}': schema_ddl is a type, not columns, as in 'id BIGINT, carrier STRING'"
        )
    return placed(schema, spec)


def placed(schema: StructType, spec: InputSpec, prefix: str = "") -> StructType:
    """The same columns of a source, which the transformation sees with `prefix`: those that are part of the key by
    which it is divided say so."""
    columns = () if spec.division is None else spec.division.columns
    places = {name: place for place, name in enumerate(columns)}
    return StructType(
        [
            StructField(field.name, field.dataType, field.nullable, {PLACE: places[prefix + field.name]})
            if prefix + field.name in places
            else field
            for field in schema.fields
        ]
    )


def _pair(payload: Column, schema: StructType) -> Column:
    """The document as the first of two elements of an array.

    Spark's parser stops after the first document and ignores what follows. Here the document must be followed by what
    we put there, so anything else behind it is an error, or an array of another size.
    """
    text = F.validate_utf8(payload.cast(StringType()))
    return F.from_json(F.concat(F.lit("["), text, F.lit(",null]")), ArrayType(schema), _FROM_JSON)


def _document(pair: Column) -> Column:
    return F.coalesce(F.when(F.size(pair) == 2, F.element_at(pair, 1)), F.raise_error(F.lit(NO_DOCUMENT)))


def _tried(session: SparkSession, column: Column) -> Column:
    """The same, and null where it raises: Spark has this for its own functions (`try_...`) only."""
    jvm: Any = session._jvm
    expressions = jvm.org.apache.spark.sql.classic.ExpressionUtils
    tried = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(expressions.expression(column._jc))
    return Column(expressions.column(tried))


def _encode_raw(frame: DataFrame, spec: OutputSpec) -> DataFrame:
    if PAYLOAD not in frame.columns:
        raise ConfigInvalid(
            f"output '{spec.name}' has no column 'payload' (it has {', '.join(frame.columns)}): "
            f"select one, or set format: json for sink '{spec.name}'"
        )
    kind = frame.schema[PAYLOAD].dataType
    if not isinstance(kind, StringType | BinaryType):
        raise ConfigInvalid(
            f"output '{spec.name}': 'payload' is {kind.simpleString()}, but records are string or binary: cast it, or "
            f"set format: json for sink '{spec.name}'"
        )
    return frame.select(_required(F.col(PAYLOAD)), *_carried(frame, spec, ""), *_divided_by(frame, spec))


def _encode_json(frame: DataFrame, spec: OutputSpec) -> DataFrame:
    beside = {BESIDE + name for name in spec.side_columns.names}
    own = [name for name in frame.columns if name not in beside]
    if not own:
        raise ConfigInvalid(f"output '{spec.name}' has no columns to make a JSON object of")
    document = F.to_json(F.struct(*(F.col(quoted(name)) for name in own)), _TO_JSON)
    return frame.select(_required(document), *_carried(frame, spec, BESIDE), *_divided_by(frame, spec))


def _encode_columns(frame: DataFrame, spec: OutputSpec) -> DataFrame:
    if not frame.columns:
        raise ConfigInvalid(f"output '{spec.name}' has no columns: select at least one")
    for column in frame.schema.fields:
        if (doubled := _doubled(column.dataType)) is not None:
            raise ConfigInvalid(
                f"output '{spec.name}': its column '{column.name}' has a struct with two fields named '{doubled}': "
                "rename or drop one"
            )
    return frame


def _doubled(kind: DataType) -> str | None:
    """A name that two fields of a struct in that type have. Arrow has no such structs."""
    match kind:
        case StructType():
            parts = [field.dataType for field in kind.fields]
            doubled = given_twice(sorted(kind.names))
        case ArrayType():
            parts, doubled = [kind.elementType], None
        case MapType():
            parts, doubled = [kind.keyType, kind.valueType], None
        case _:
            return None
    return doubled or next((found for part in parts if (found := _doubled(part)) is not None), None)


def _required(payload: Column) -> Column:
    return F.coalesce(payload.cast(BinaryType()), F.raise_error(F.lit(NO_PAYLOAD)).cast(BinaryType())).alias(PAYLOAD)


def _carried(frame: DataFrame, spec: OutputSpec, prefix: str) -> list[Column]:
    kinds = from_arrow_schema(spec.side_columns)
    return [
        F.col(quoted(prefix + field.name)).cast(field.dataType).alias(field.name)
        for field in kinds
        if prefix + field.name in frame.columns
    ]


def _divided_by(frame: DataFrame, spec: OutputSpec) -> list[Column]:
    """A record's key in a divided sink."""
    if spec.division is None:
        return []
    return [_key(frame, spec.division, f"sinks.{spec.name}.partition_by", "the output").alias(DIVIDED_BY)]


def source_key(frame: DataFrame, spec: InputSpec) -> Column:
    """The key of each record of a divided source, of which `frame` is what the transformation sees. Raises
    ConfigInvalid for columns that are none."""
    assert spec.division is not None, "it is divided"
    return _key(frame, spec.division, f"sources.{spec.name}.partition_by", "the source")


def key_kinds(frame: DataFrame, division: Division) -> list[str]:
    """Of what kind each column of the key is: of two kinds, equal values are not divided alike."""
    return [_kind(frame.schema[name].dataType) for name in division.columns]


def _key(frame: DataFrame, division: Division, where: str, of: str) -> Column:
    """A record's key: its columns as text, those that are not null. Logs that are written were divided by it: never
    change it."""
    keys = [_part(frame, name, where, of) for name in division.columns]
    key = keys[0] if len(keys) == 1 else F.concat_ws(_BETWEEN_KEYS, *(key.cast(StringType()) for key in keys))
    return F.coalesce(key.cast(BinaryType()), F.lit(b""))


def _part(frame: DataFrame, name: str, where: str, of: str) -> Column:
    """A column of a key: whole numbers give equal text whatever width they have. Floating point is none: its text
    differs from one Java to the next."""
    if name not in frame.columns:
        raise ConfigInvalid(
            f"{where} names '{name}', which {of} has not (it has {', '.join(frame.columns)}): name one of these"
        )
    column, kind = F.col(quoted(name)), frame.schema[name].dataType
    match _kind(kind):
        case "text":
            return column
        case "whole number" | "boolean":
            return column.cast(StringType())
        case "date":
            return F.unix_date(column).cast(StringType())
        case "timestamp":
            return F.unix_micros(column).cast(StringType())
    raise ConfigInvalid(
        f"{where}: '{name}' is {kind.simpleString()}, and keys are text, binary, whole numbers, booleans, dates and "
        "timestamps: cast it in the transformation"
    )


def _kind(type_: DataType) -> str:
    """What an empty text says of a type: that it is none of a key."""
    match type_:
        case StringType() | BinaryType():
            return "text"
        case IntegralType():
            return "whole number"
        case BooleanType():
            return "boolean"
        case DateType():
            return "date"
        case TimestampType():
            return "timestamp"
    return ""


def quoted(name: str) -> str:
    """A column's name as Spark takes it literally, dots and all."""
    return f"`{name.replace('`', '``')}`"
