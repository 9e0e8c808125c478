"""`scribengin verify`, without workers: what it writes, and what it says of outputs that are whole, or are not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.connectors import Environment
from scribengin.connectors.contract import Attempt
from scribengin.dataflow.config import load_config
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.registry.view import DataflowView
from scribengin.errors import ConfigInvalid
from scribengin.log import LogNamespace
from scribengin.operations.verify.tracking import tracking_payload
from scribengin.operations.verify.verify import ends_of_dataflow, generate, verify
from scribengin_registry.contract import Registry
from tests.integration.cli_runner import CommandLine

CONFIG = load_config(
    {
        "name": "flow",
        "sources": {"src": {"kind": "log", "logs": "in/*"}},
        "sinks": {"out": {"kind": "log", "log": "out"}, "bad": {"kind": "log", "log": "bad"}},
        "errors": {"action": "route", "sink": "bad"},
        "sql": {"out": "SELECT payload FROM src"},
    }
)


@pytest.fixture
def namespace(registry: Registry, line: CommandLine) -> Iterator[LogNamespace]:
    DataflowView(registry, "flow").submit(CONFIG, ["log:/logs/out"], SYSTEM_CLOCK.now_ms())
    with LogNamespace.open("/logs", registry=registry) as opened:
        for log in ("in/0", "in/1", "out/0", "out/1", "out/0/inner"):
            opened.create(log)
        yield opened


def append(namespace: LogNamespace, log: str, payloads: list[bytes]) -> None:
    with namespace.open_writer(log) as writer:
        writer.write_bulk(pa.record_batch([pa.array(payloads, pa.binary())], names=["payload"])).result(120)


def records(chunk: str, numbers: list[int]) -> list[bytes]:
    return [tracking_payload("g", chunk, number) for number in numbers]


def counts(told: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    keys = ("sent", "arrived", "lost", "duplicated", "out_of_order")
    return {chunk["stream"]: tuple(chunk[key] for key in keys) for chunk in told["chunks"]}


def test_what_came_through_whole_is_good_whatever_else_lies_there(line: CommandLine, namespace: LogNamespace) -> None:
    for log in ("in/0", "in/1"):
        append(namespace, log, [b"another record", *records(log, [0, 1, 2])])
    append(namespace, "out/0", [*records("in/0", [0, 1, 2]), *records("in/1", [0])])
    append(namespace, "out/1", [b"another record", *records("in/1", [1, 2])])
    append(namespace, "out/0/inner", records("in/1", [0, 1]))  # of somebody else
    done = line.ok("verify", "flow", "--json")
    assert done.json["good"] is True
    assert counts(done.json) == {"in/0": (3, 3, 0, 0, 0), "in/1": (3, 3, 0, 0, 0)}
    assert "1 other records were not looked at" in line.ok("verify", "flow").err


def test_what_is_missing_or_twice_or_late_is_told_by_stream(line: CommandLine, namespace: LogNamespace) -> None:
    for log in ("in/0", "in/1"):
        append(namespace, log, records(log, [0, 1, 2, 3]))
    append(namespace, "out/0", records("in/0", [0, 1, 1, 3]))
    append(namespace, "out/1", records("in/1", [1, 0, 2, 3]))
    done = line("verify", "flow", "--json")
    assert done.code == 1
    assert done.json["good"] is False
    assert counts(done.json) == {"in/0": (4, 3, 1, 1, 0), "in/1": (4, 4, 0, 0, 1)}
    shown = line("verify", "flow")
    assert shown.code == 1
    assert "OUT OF ORDER" in shown.out
    assert [row.split() for row in shown.out.splitlines()][1] == ["in/0", "g", "4", "3", "1", "1", "0"]


def test_late_records_have_arrived_and_bad_ones_have_not() -> None:
    late = {"watermarks": {"src": {"column": "at"}}, "late": {"sink": "late"}}
    sinks = {**CONFIG.model_dump(mode="json", exclude_none=True)["sinks"], "late": {"kind": "log", "log": "late"}}
    config = load_config({**CONFIG.model_dump(mode="json", exclude_none=True), "sinks": sinks, "state": late})
    assert [name for _, name, _ in ends_of_dataflow(config).sinks] == ["out", "late"]


def test_generated_records_go_to_every_stream_and_say_where(registry: Registry, namespace: LogNamespace) -> None:
    assert generate(registry, ends_of_dataflow(CONFIG), 7_000) == 2
    assert {log: namespace.count(log) for log in ("in/0", "in/1")} == {"in/0": 7_000, "in/1": 7_000}
    last = namespace.last_record("in/1")
    assert last is not None
    value = json.loads(last.payload)
    assert (value["chunk"], value["sequence"]) == ("in/1", 6_999)


def test_what_cannot_be_verified_is_refused_in_one_line(
    line: CommandLine, registry: Registry, namespace: LogNamespace, tmp_path: Path
) -> None:
    for command, said in (
        (("verify", "flow"), "'flow' has no tracking records: `scribengin verify flow --generate N` writes some"),
        (("verify", "flow", "--generate", "5"), "has no master any more"),
        (("verify", "none"), "none"),
    ):
        done = line(*command)
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert said in done.err
    assert namespace.count("in/0") == 0
    files = {"sources": {"src": {"kind": "hdfs", "path": str(tmp_path)}}, "name": "files"}
    config = load_config({**CONFIG.model_dump(mode="json", exclude_none=True), **files})
    with pytest.raises(ConfigInvalid, match="source 'src' of 'files' is of kind hdfs: records are generated in logs"):
        generate(registry, ends_of_dataflow(config), 1)


@pytest.mark.parametrize("payload", [True, False])
def test_files_of_columns_are_verified_by_their_payloads_or_refused_in_words(
    registry: Registry, namespace: LogNamespace, tmp_path: Path, *, payload: bool
) -> None:
    append(namespace, "in/0", records("in/0", [0, 1, 2]))
    config = load_config(
        {
            "name": "columns",
            "sources": {"src": {"kind": "log", "logs": "in/0"}},
            "sinks": {"out": {"kind": "hdfs", "path": str(tmp_path / "out"), "file_format": "parquet"}},
            "sql": "SELECT * FROM src",
        }
    )
    with OpenedDataflow(config, Environment(registry, "columns", STREAM_NODES)) as resources:
        sink = resources.sinks["out"]
        (stream,) = sink.streams(1)
        sink.create([stream])
        writer = sink.open_writer(stream, Attempt("owner", 1, "/commit-log"))
        writer.recover(None)
        texts = [record.decode() for record in records("in/0", [0, 1, 2])]
        writer.write(pa.record_batch({"n": [0, 1, 2], "payload" if payload else "text": texts}))
        prepared = writer.prepare_commit()
        assert prepared is not None
        writer.complete_commit(prepared)
        writer.close()
    if payload:
        assert verify(registry, ends_of_dataflow(config), 0).complete
        return
    with pytest.raises(ConfigInvalid, match="sink 'out' of 'columns' writes the columns n, text, and verify reads"):
        verify(registry, ends_of_dataflow(config), 0)
