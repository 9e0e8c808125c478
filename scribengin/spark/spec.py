"""What the Spark room is told about a dataflow, and what it says of one. Plain values: no Spark needed to make them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class InputSpec:
    """A source: the schema of what its splits read, and how a transformation sees it.

    `raw`: the columns of `schema`. `json`: the payload decoded to `schema_ddl` (Spark DDL), then `_txid`, `_channel`,
    `_key`.
    """

    name: str
    schema: pa.Schema
    format: str = "raw"
    schema_ddl: str | None = None


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """A sink. `raw`: the output has a `payload`. `json`: the columns become one, but `_txid`, `_channel`, `_key`."""

    name: str
    format: str = "raw"


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
