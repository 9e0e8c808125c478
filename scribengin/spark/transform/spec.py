"""What the Spark room is told about a dataflow, and what it says of one. Plain values: no Spark needed to make them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from scribengin.connectors.contract import SIDE_COLUMNS


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


@dataclass(frozen=True, slots=True)
class TransformationSpec:
    """One dataflow's transformation: a `module:function` of the package, or one SQL statement an output.

    `inputs` and `outputs` are keyed by the names of sources and sinks (without the error route).
    """

    dataflow: str
    function: str | None
    sql: Mapping[str, str] | None
    package_dir: Path | None
    settings: Mapping[str, Any]
    inputs: Mapping[str, InputSpec]
    outputs: Mapping[str, OutputSpec]


@dataclass(frozen=True, slots=True)
class CheckedPlan:
    """A narrow transformation: the columns (DDL) of inputs and outputs, and the operators of the executed plan."""

    inputs: dict[str, str]
    outputs: dict[str, str]
    operators: tuple[str, ...]
