"""How long a record may be is handed on by every source that is configured for it: those that hold no longer ones leave
it out."""

from __future__ import annotations

from typing import Any

import pytest

from scribengin.connectors import KINDS, Environment
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.testing.memory.registry import MemoryEnsemble

MOST = 2_000
SOURCES: dict[str, dict[str, Any]] = {
    "hdfs": {"path": "/in", "file_format": "parquet"},
    "kafka": {"bootstrap": "127.0.0.1:1", "topics": ["in"]},
    "spark": {"spark_format": "parquet"},
    "dafka": {"topic": "in"},
}
"""A source of each kind that can be told how long its records may be."""


def test_every_kind_that_is_configured_for_it_is_here() -> None:
    assert {name for name, kind in KINDS.items() if "record_bytes_max" in kind.source.model_fields} <= SOURCES.keys()


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if name in SOURCES])
def test_a_source_hands_on_how_long_its_records_may_be(name: str) -> None:
    kind = KINDS[name]
    config = kind.source.model_validate({"kind": name, **SOURCES[name], "record_bytes_max": MOST})
    with MemoryEnsemble().connect() as registry:
        source = kind.open_source("in", config, Environment(registry=registry, dataflow="flow", nodes=STREAM_NODES))
        try:
            assert source.record_bytes_max == MOST
        finally:
            source.close()
