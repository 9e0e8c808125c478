"""A round after one whose bad records were all named by looks begins with looks; others begin with a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from scribengin.connectors import Environment
from scribengin.connectors.contract import RecordSplit
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.errors import TransformationFailed
from scribengin.log import LogNamespace
from scribengin.testing.log_samples import payload_batch, payloads_read
from scribengin.testing.memory.registry import MemoryEnsemble
from tests.integration.owners import owners_of

FLOW = {
    "name": "flow",
    "sources": {"in": {"kind": "log", "logs": "in/*"}},
    "sinks": {"out": {"kind": "log", "log": "out"}, "errors": {"kind": "log", "log": "errors"}},
    "sql": {"out": "SELECT payload FROM in"},
    "errors": {"action": "route", "sink": "errors", "records_max": 10},
}


class Strict:
    """A function that raises on payloads that begin with `bad`; `did` is what was asked of it."""

    def __init__(self) -> None:
        self.did: list[str] = []

    def run(self, inputs: Mapping[str, Sequence[RecordSplit]]) -> dict[str, list[pa.RecordBatch]]:
        batches = [batch for split in inputs["in"] for batch in split.read()]
        return self._made("round", pa.Table.from_batches(batches))

    def run_tables(self, inputs: Mapping[str, pa.Table]) -> dict[str, list[pa.RecordBatch]]:
        return self._made("alone" if inputs["in"].num_rows == 1 else "rest", inputs["in"])

    def undecodable(self, _inputs: Mapping[str, pa.Table]) -> dict[str, dict[int, str]]:
        return {}

    def raising(self, inputs: Mapping[str, pa.Table]) -> dict[str, dict[int, str]]:
        self.did.append("look")
        payloads = inputs["in"].column("payload").to_pylist()
        return {"in": {row: "ValueError: bad" for row, payload in enumerate(payloads) if payload.startswith(b"bad")}}

    def _made(self, what: str, rows: pa.Table) -> dict[str, list[pa.RecordBatch]]:
        self.did.append(what)
        if any(payload.startswith(b"bad") for payload in rows.column("payload").to_pylist()):
            raise TransformationFailed("ValueError: bad", reason="ValueError: bad")
        return {"out": rows.select(["payload"]).to_batches()}


def test_a_round_begins_with_looks_as_long_as_they_name_all_bad_records(tmp_path: Path) -> None:
    strict, good, bad = Strict(), [b"good 1", b"good 2"], [b"bad 1", b"bad 2", b"bad 3"]
    rounds = [good, good + bad, bad + good, good + bad[:1], good, good, bad[:1] + good]
    did = []
    with MemoryEnsemble().connect() as registry:
        LogNamespace.bind("/logs", tmp_path / "logs", registry=registry)
        with LogNamespace.open("/logs", registry=registry) as namespace:
            namespace.create("in/0")
            environment = Environment(registry=registry, dataflow="flow", nodes=STREAM_NODES)
            with OpenedDataflow(DataflowConfig.parse(FLOW, source="the test"), environment) as resources:
                (owner,) = owners_of(registry, resources, strict)
                owner.take_over()
                for payloads in rounds:
                    with namespace.open_writer("in/0") as writer:
                        writer.write_bulk(payload_batch(payloads)).result(120)
                    assert owner.run_round() is not None
                    did.append(" ".join(strict.did))
                    strict.did.clear()
                owner.release()
                owner.close()
            delivered, routed = payloads_read(namespace, "out/0"), payloads_read(namespace, "errors/0")
    assert did == [
        "round",
        "round look alone alone look rest",
        "look look rest",
        "look look rest",
        "look rest",
        "round",
        "round look alone rest",
    ]
    assert delivered == good * len(rounds)
    assert [json.loads(record)["reason"] for record in routed] == ["ValueError: bad"] * 8
