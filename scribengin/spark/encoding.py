"""From a source's records to the columns that a transformation sees, and from its columns back. Inside Spark.

Whatever cannot be decoded or encoded raises, so that the record is found: it never becomes a null.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it
from pyspark.sql.types import ArrayType, BinaryType, StringType, StructType

from scribengin.errors import ConfigInvalid
from scribengin.spark.source import conform
from scribengin.spark.spec import InputSpec, OutputSpec

PAYLOAD = "payload"
CARRIED = {"txid": "bigint", "channel": "string", "key": "binary"}
"""What a record may carry beside its payload. A `json` format shows these as `_txid`, `_channel`, `_key`."""
_FIELDS = {
    PAYLOAD: pa.field(PAYLOAD, pa.binary()),
    "txid": pa.field("txid", pa.int64()),
    "channel": pa.field("channel", pa.string()),
    "key": pa.field("key", pa.binary()),
}
MARK = "_output"
"""In a job of several outputs: the index of the output that a row belongs to."""

# One document a record: single quotes are no JSON, and a second document behind the first would vanish (see _pair).
_FROM_JSON = {"mode": "FAILFAST", "allowSingleQuotes": "false"}
_TO_JSON = {"ignoreNullFields": "false"}
NO_DOCUMENT = "the payload is not one JSON object"
NO_PAYLOAD = "the output's payload is null"


def decode(frame: DataFrame, spec: InputSpec) -> DataFrame:
    """The columns that the transformation sees of an input. Raises ConfigInvalid for a `schema_ddl` that is none."""
    if spec.format != "json":
        return frame
    schema = _schema(spec)
    carried = [F.col(name).alias(f"_{name}") for name in CARRIED if name in frame.columns]
    if taken := sorted({f"_{name}" for name in CARRIED} & set(schema.fieldNames())):
        raise ConfigInvalid(
            f"source '{spec.name}': schema_ddl may not name {', '.join(taken)}: the record's own columns"
        )
    pairs = frame.select(_pair(F.col(PAYLOAD), schema).alias("_pair"), *carried)
    names = [f"_{name}" for name in CARRIED if name in frame.columns]
    documents = pairs.select(_document(F.col("_pair")).alias("_document"), *names)
    # A generator of one row a document: Spark moves no filter of the user's below it, where it would parse again.
    return documents.select(F.inline(F.array("_document")), *names)


def encode(frame: DataFrame, spec: OutputSpec) -> DataFrame:
    """`payload`, and what of txid, channel and key the output has. Raises ConfigInvalid for columns that do not fit."""
    if doubles := sorted({name for name in frame.columns if frame.columns.count(name) > 1}):
        raise ConfigInvalid(f"output '{spec.name}' has two columns named '{doubles[0]}': rename or drop one")
    return _encode_json(frame, spec) if spec.format == "json" else _encode_raw(frame, spec)


def unite(frames: list[DataFrame]) -> DataFrame:
    """All outputs as one DataFrame, so that one job makes them, with one current_timestamp. Rows carry a MARK."""
    if len(frames) == 1:
        return frames[0]
    marked = [_complete(frame).select("*", F.lit(mark).alias(MARK)) for mark, frame in enumerate(frames)]
    united = marked[0]
    for frame in marked[1:]:
        united = united.union(frame)
    return united


def outputs_of(batches: list[pa.RecordBatch], outputs: dict[str, list[str]]) -> dict[str, list[pa.RecordBatch]]:
    """The batches of a job by output, with the columns that each output has (`outputs`), in the types of records."""
    result: dict[str, list[pa.RecordBatch]] = {name: [] for name in outputs}
    schemas = {name: pa.schema([_FIELDS[column] for column in columns]) for name, columns in outputs.items()}
    for batch in batches:
        for name, rows in _by_mark(batch, list(outputs)):
            result[name].append(conform(rows, schemas[name]))
    return result


def _by_mark(batch: pa.RecordBatch, names: list[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each output in a batch; most hold those of one only."""
    if len(names) == 1:
        yield names[0], batch
        return
    marks = batch.column(MARK)
    present = marks.unique().to_pylist()
    for mark in present:
        yield names[mark], batch if len(present) == 1 else batch.filter(pc.equal(marks, mark))


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
    return schema


def _pair(payload: Column, schema: StructType) -> Column:
    """The document as the first of two elements of an array.

    Spark's parser stops after the first document and ignores what follows. Here the document must be followed by what
    we put there, so anything else behind it is an error, or an array of another size.
    """
    text = F.validate_utf8(payload.cast(StringType()))
    return F.from_json(F.concat(F.lit("["), text, F.lit(",null]")), ArrayType(schema), _FROM_JSON)


def _document(pair: Column) -> Column:
    return F.coalesce(F.when(F.size(pair) == 2, F.element_at(pair, 1)), F.raise_error(F.lit(NO_DOCUMENT)))


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
    return frame.select(_required(F.col(PAYLOAD)), *_carried(frame, ""))


def _encode_json(frame: DataFrame, spec: OutputSpec) -> DataFrame:
    own = [name for name in frame.columns if name not in {f"_{carried}" for carried in CARRIED}]
    if not own:
        raise ConfigInvalid(f"output '{spec.name}' has no columns to make a JSON object of")
    document = F.to_json(F.struct(*(F.col(_quoted(name)) for name in own)), _TO_JSON)
    return frame.select(_required(document), *_carried(frame, "_"))


def _required(payload: Column) -> Column:
    return F.coalesce(payload.cast(BinaryType()), F.raise_error(F.lit(NO_PAYLOAD)).cast(BinaryType())).alias(PAYLOAD)


def _carried(frame: DataFrame, prefix: str) -> list[Column]:
    return [
        F.col(prefix + name).cast(kind).alias(name) for name, kind in CARRIED.items() if prefix + name in frame.columns
    ]


def _complete(frame: DataFrame) -> DataFrame:
    missing = [F.lit(None).cast(kind).alias(name) for name, kind in CARRIED.items() if name not in frame.columns]
    return frame.select("*", *missing).select(PAYLOAD, *CARRIED)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
