"""What the Spark room is told about a dataflow, and what it says of one. Plain values: no Spark needed to make them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from scribengin.base.model import Part
from scribengin.connectors.contract import SIDE_COLUMNS, Division


@dataclass(frozen=True, slots=True)
class InputSpec:
    """A source: the schema of what its splits read, and how a transformation sees it.

    `raw`: the columns of `schema`. `json`: the payload decoded to `schema_ddl` (Spark DDL), then every other column of
    `schema` as `_<name>`.
    """

    name: str
    schema: pa.Schema
    format: str = "raw"
    schema_ddl: str | None = None
    remote_readable: bool = True
    """Whether other machines can read its splits: else executors elsewhere are sent the records."""
    division: Division | None = None
    """How its records are divided among its streams, by columns as the transformation sees them."""


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """A sink, and what reaches it of an output.

    `raw`: the output's `payload`, as binary. `json`: its columns as one JSON object, the payload. Beside it the columns
    of `side_columns` that the output has (as `_<name>` with `json`), in the types of `side_columns`. `columns`: the
    output's own columns, names and types unchanged.
    """

    name: str
    format: str = "raw"
    side_columns: pa.Schema = SIDE_COLUMNS
    division: Division | None = None
    """Has the column DIVIDED_BY made beside the payload."""


@dataclass(frozen=True, slots=True)
class WatermarkSpec:
    """Of a source: which of its columns says when a record happened, and how much later than others it may come. With
    `beats`, beats move it on while there are no records (stateful/beats.py)."""

    column: str
    delay_s: float
    beats: bool = False


@dataclass(frozen=True, slots=True)
class StateSpec:
    """What a transformation keeps from record to record: into how many partitions, what of it stays in memory."""

    partitions: int
    memory_mb: int
    watermarks: Mapping[str, WatermarkSpec]
    """By source."""
    unbounded: tuple[str, ...] = ()
    """The names of operators whose state may grow for ever."""
    late: OutputSpec | None = None
    """Where late records go. None: nowhere."""
    tasks: int = 1
    """How many queries share the streams: with several no operator may need rows of two of them."""

    def late_by(self, source: str) -> str | None:
        """The column by which records of a source are late, where late ones go to a sink."""
        watermark = self.watermarks.get(source)
        return None if self.late is None or watermark is None else watermark.column


@dataclass(frozen=True, slots=True)
class TransformationSpec:
    """One dataflow's transformation: a `module:function` of the package, or one SQL statement an output.

    `inputs` and `outputs` are keyed by the names of sources and sinks (without the error route). `state` None: it is
    to be narrow.
    """

    dataflow: str
    function: str | None
    sql: Mapping[str, str] | None
    package_dir: Path | None
    settings: Mapping[str, Any]
    inputs: Mapping[str, InputSpec]
    outputs: Mapping[str, OutputSpec]
    state: StateSpec | None = None


@dataclass(frozen=True, slots=True)
class Misplaced:
    """A record in a wrong stream: the stream's number, which of its rows, the key as text, and where it belongs."""

    number: int
    row: int
    key: str
    belongs: int


class StateOperator(Part):
    """An operator of a streaming plan that keeps something from batch to batch."""

    name: str
    """What users call it."""
    kind: str
    """`aggregate`, `session`, `join`, `duplicates`, `limit`, `processor`."""
    spark: str
    """What Spark's checkpoint calls it."""
    key: tuple[str, ...]
    bound: str | None
    """What keeps it from growing for ever, in words. None: nothing."""
    pinned: dict[str, str] = {}
    """Spark's settings that its checkpoint keeps for ever, as they are now."""
    partitions: int | None = None
    """Into how many its state is divided by its key, in a checkpoint that begins now. None: it has no key, and one."""
    by_clock: bool = False
    """Whether something of it is due as time goes by, without records: timers and TTL of processing time."""


class StateReport(Part):
    """How much state there is, and what becomes of it."""

    rows: dict[str, int] = {}
    """By operator."""
    bytes: int = 0
    """On disk and in memory, as Spark estimates it."""
    watermark_ms: int | None = None
    held_back_by: str | None = None
    """The source whose watermark is the earliest one."""
    late: int = 0
    """How many rows came later than the watermark, and were dropped, since the query was started."""
    late_routed: int = 0
    """How many records came later than the watermark, and were committed to the sink for late ones, since the task has
    its owner."""

    @classmethod
    def total(cls, reports: Sequence[StateReport]) -> StateReport | None:
        """Of several tasks together; None of none."""
        if not reports:
            return None
        rows: Counter[str] = Counter()
        for report in reports:
            rows.update(report.rows)
        first = min(reports, key=lambda one: one.watermark_ms or 0)
        return cls(
            rows=dict(rows),
            bytes=sum(one.bytes for one in reports),
            watermark_ms=first.watermark_ms,
            held_back_by=first.held_back_by,
            late=sum(one.late for one in reports),
            late_routed=sum(one.late_routed for one in reports),
        )


@dataclass(frozen=True, slots=True)
class CheckedPlan:
    """A transformation that can run: the columns (DDL) of inputs and outputs, and the operators of its plan."""

    inputs: dict[str, str]
    outputs: dict[str, str]
    operators: tuple[str, ...]
    state: tuple[StateOperator, ...] = ()
    """Those that keep state, numbered as a checkpoint numbers them."""
