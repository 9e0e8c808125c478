"""The error route takes what a sink refuses, whatever it is, and everything else is delivered in order."""

from __future__ import annotations

import gzip
import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scribengin.connectors import Environment
from scribengin.connectors.contract import ReadSplit
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.round.rounds import RoundOutcome
from scribengin.errors import TransformationFailed
from scribengin.log import LogConfig, LogNamespace
from scribengin.testing.memory.kafka import MemoryKafka
from scribengin_registry.contract import Registry
from tests.integration.owners import owners_of

SMALL = LogConfig(record_bytes_max=1_000)
ALL_BYTES = bytes(byte for byte in range(256) if byte != ord("\n"))
GOOD = [b"", "Grüße, 世界".encode(), ALL_BYTES, b"x" * 999, b"last"]
LARGE = "ü".encode() * 5_000
ERRORS = {"kind": "log", "log": "errors"}
TWO_LINES = b"two\nlines"


class Copy:
    """Every record to the sink `out`, with the columns that the test adds."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self._columns = columns

    def run(self, inputs: Mapping[str, Sequence[ReadSplit]]) -> dict[str, list[pa.RecordBatch]]:
        batches = [batch for split in inputs["in"] for batch in split.read()]
        return self.run_tables({"in": pa.Table.from_batches(batches)})

    def undecodable(self, _inputs: Mapping[str, pa.Table]) -> dict[str, dict[int, str]]:
        return {}

    def raising(self, _inputs: Mapping[str, pa.Table]) -> dict[str, dict[int, str]]:
        return {}

    def run_tables(self, inputs: Mapping[str, pa.Table]) -> dict[str, list[pa.RecordBatch]]:
        rows = inputs["in"].select(["payload"])
        for name, make in self._columns.items():
            rows = rows.append_column(name, make(rows.column("payload")))
        return {"out": rows.to_batches()}


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> Iterator[LogNamespace]:
    """The namespace that the dataflows below read and write; its log `errors/0` takes small records only."""
    LogNamespace.bind("/logs", tmp_path / "logs", registry=registry)
    with LogNamespace.open("/logs", registry=registry) as opened:
        opened.create("in/0")
        opened.create("errors/0", SMALL)
        yield opened


def routed(
    namespace: LogNamespace,
    registry: Registry,
    sink: Mapping[str, Any],
    records: Sequence[bytes],
    errors: Mapping[str, Any] = ERRORS,
    **columns: Any,
) -> tuple[RoundOutcome, list[bytes], list[dict[str, Any]]]:
    """One round of the records to the sink: its outcome, what the sink has, and what the error route has."""
    with namespace.open_writer("in/0") as writer:
        writer.write_bulk(pa.record_batch({"payload": pa.array(records, pa.binary())})).result(120)
    with opened(registry, sink, errors, {"action": "route", "sink": "errors"}) as resources:
        (owner,) = owners_of(registry, resources, Copy(columns))
        owner.take_over()
        outcome = owner.run_round()
        owner.release()
        owner.close()
        assert outcome is not None
        return outcome, seen(resources, "out"), [json.loads(record) for record in seen(resources, "errors")]


def opened(
    registry: Registry,
    sink: Mapping[str, Any],
    errors: Mapping[str, Any],
    route: Mapping[str, Any],
    source: Mapping[str, Any] | None = None,
) -> OpenedDataflow:
    config = DataflowConfig.parse(
        {
            "name": "flow",
            "sources": {"in": dict(source or {"kind": "log", "logs": "in/*"})},
            "sinks": {"out": dict(sink), **({"errors": dict(errors)} if errors else {})},
            "sql": {"out": "SELECT payload FROM in"},
            "errors": route,
        },
        source="the test",
    )
    return OpenedDataflow(config, Environment(registry=registry, dataflow="flow", nodes=STREAM_NODES))


def seen(resources: OpenedDataflow, sink: str) -> list[bytes]:
    stream = resources.sink_streams(1)[sink][0]
    return [p for batch in resources.sinks[sink].committed(stream) for p in batch.column("payload").to_pylist()]


def constant(value: Any, kind: pa.DataType) -> Any:
    return lambda payloads: pa.array([value] * len(payloads), kind)


def where(bad: bytes, value: Any, otherwise: Any, kind: pa.DataType) -> Any:
    """A column that says `value` beside the record `bad`, and something else beside the others."""
    return lambda payloads: pa.array([value if p == bad else otherwise for p in payloads.to_pylist()], kind)


def test_a_record_too_large_for_a_log_is_routed_and_its_error_record_is_cut_to_fit(
    namespace: LogNamespace, registry: Registry
) -> None:
    namespace.create("out/0", SMALL)
    records = [*GOOD[:2], LARGE, *GOOD[2:]]
    outcome, out, (error,) = routed(namespace, registry, {"kind": "log", "log": "out"}, records)
    assert (outcome.records_in, outcome.records_bad, out) == (6, 1, GOOD)
    assert outcome.written == {"out": 5, "errors": 1}
    assert outcome.records_out == 5, "what was rejected did not go out"
    assert (error["stream"], error["index"], error["place"]) == ("in/0", 2, "log in/0, DLSN 1/0/2")
    assert "log 'out/0': a payload of 10000 bytes, the log takes 1000" in error["reason"]
    assert error["cut"]["payload"]["bytes"] == len(LARGE)
    assert error["payload"].startswith("üü")


@pytest.fixture(params=["memory", pytest.param("broker", marks=pytest.mark.servers)])
def small_topic(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """A topic that takes small records only, on a Kafka in memory or a broker."""
    topic = {"kind": "kafka", "topic": f"small-{uuid.uuid4().hex}", "create": {"config": {"max.message.bytes": 1_200}}}
    if request.param == "broker":
        yield topic | {"bootstrap": request.getfixturevalue("kafka").bootstrap}
        return
    with MemoryKafka("in-memory:5").serving() as memory:
        yield topic | {"bootstrap": memory.bootstrap}


@pytest.mark.parametrize("large", [LARGE, bytes(range(256)) * 40, b"\0" * 2_000_000], ids=["text", "bytes", "zeros"])
def test_an_error_record_that_is_too_large_for_a_topic_is_cut_to_fit(
    namespace: LogNamespace, registry: Registry, small_topic: dict[str, Any], large: bytes
) -> None:
    namespace.create("out/0", SMALL)
    namespace.delete("in/0", force=True)
    namespace.create("in/0", LogConfig(record_bytes_max=3_000_000))
    sink = {"kind": "log", "log": "out"}
    records = [*GOOD[:2], large, *GOOD[2:]]
    outcome, out, (error,) = routed(namespace, registry, sink, records, small_topic)
    assert (outcome.records_bad, outcome.written, out) == (1, {"out": 5, "errors": 1}, GOOD)
    assert error["cut"]["payload"] == {"bytes": len(large), "sha256": hashlib.sha256(large).hexdigest()}


@pytest.mark.parametrize(
    "settings", [{}, {"codec": "zstd"}, {"format": "json"}, {"partition": {"columns": ["kind"]}}], ids=str
)
def test_a_record_with_a_newline_is_routed_by_a_file_of_lines(
    namespace: LogNamespace, registry: Registry, tmp_path: Path, settings: dict[str, Any]
) -> None:
    sink = {"kind": "hdfs", "path": str(tmp_path / "out"), **settings}
    columns = {"kind": constant("a", pa.string())} if "partition" in settings else {}
    outcome, out, (error,) = routed(namespace, registry, sink, [TWO_LINES, *GOOD], **columns)
    assert (outcome.records_bad, out) == (1, GOOD)
    assert (error["index"], error["payload"]) == (0, "two\nlines")
    assert "a payload holds a newline" in error["reason"]


def test_a_file_of_frames_takes_any_bytes(namespace: LogNamespace, registry: Registry, tmp_path: Path) -> None:
    sink = {"kind": "hdfs", "path": str(tmp_path / "out"), "file_format": "binary"}
    records = [*GOOD, TWO_LINES, bytes(range(256)), LARGE]
    outcome, out, errors = routed(namespace, registry, sink, records)
    assert (outcome.records_bad, out, errors) == (0, records, [])


@pytest.mark.parametrize(
    ("column", "value", "otherwise", "kind", "said"),
    [
        ("key", b"k" * 1_001, b"k", pa.binary(), "a key of 1001 bytes"),
        ("channel", "c" * 1_001, "c", pa.string(), "a channel of 1001 bytes"),
        ("channel", b"\xff", b"c", pa.binary(), "column 'channel' is binary and not string"),
        ("txid", -7, None, pa.int64(), "transaction id -7 after"),
    ],
)
def test_a_log_refuses_a_record_for_what_it_carries_and_it_is_routed(
    namespace: LogNamespace,
    registry: Registry,
    column: str,
    value: Any,
    otherwise: Any,
    kind: pa.DataType,
    said: str,
) -> None:
    namespace.create("out/0", SMALL)
    columns = {column: where(b"bad", value, otherwise, kind)}
    outcome, out, (error,) = routed(namespace, registry, {"kind": "log", "log": "out"}, [b"bad", *GOOD], **columns)
    assert (outcome.records_bad, out, error["index"]) == (1, GOOD, 0)
    assert said in error["reason"]


@pytest.mark.parametrize(
    ("partition", "value", "otherwise", "kind", "said"),
    [
        ({"columns": ["name"]}, "ü" * 250, "ok", pa.string(), "is too long for a partition's name"),
        ({"time": "at"}, 2**61, 0, pa.timestamp("s"), "column 'at'"),
    ],
)
def test_a_record_that_has_no_partition_is_routed(
    namespace: LogNamespace,
    registry: Registry,
    tmp_path: Path,
    partition: dict[str, Any],
    value: Any,
    otherwise: Any,
    kind: pa.DataType,
    said: str,
) -> None:
    (column,) = {"name", "at"} & {*partition.get("columns", []), partition.get("time")}
    sink = {"kind": "hdfs", "path": str(tmp_path / "out"), "partition": partition}
    columns = {column: where(b"bad", value, otherwise, kind)}
    outcome, out, (error,) = routed(namespace, registry, sink, [b"bad", *GOOD], **columns)
    assert (outcome.records_bad, out) == (1, GOOD)
    assert said in error["reason"]


def test_a_record_without_a_payload_is_routed(namespace: LogNamespace, registry: Registry, tmp_path: Path) -> None:
    class Without(Copy):
        def run_tables(self, inputs: Mapping[str, pa.Table]) -> dict[str, list[pa.RecordBatch]]:
            payloads = [None if p == b"bad" else p for p in inputs["in"].column("payload").to_pylist()]
            return {"out": [pa.record_batch({"payload": pa.array(payloads, pa.binary())})]}

    sinks: list[dict[str, Any]] = [
        {"kind": "log", "log": "out"},
        {"kind": "hdfs", "path": str(tmp_path / "lines")},
        {"kind": "hdfs", "path": str(tmp_path / "frames"), "file_format": "binary"},
    ]
    for number, sink in enumerate(sinks):
        with opened(registry, sink, {"kind": "log", "log": "errors"}, {"action": "route", "sink": "errors"}) as found:
            (owner,) = owners_of(registry, found, Without({}), generation=number + 1)
            with namespace.open_writer("in/0") as writer:
                writer.write_bulk(pa.record_batch({"payload": [b"bad", *GOOD]})).result(120)
            owner.take_over()
            outcome = owner.run_round()
            assert outcome is not None
            assert outcome.records_bad == 1
            assert seen(found, "out") == GOOD
            owner.release()
            owner.close()


@pytest.mark.parametrize(
    ("name", "settings"), [("a.txt", {}), ("a.txt.gz", {}), ("a.parquet", {"file_format": "parquet"})]
)
def test_a_record_that_is_too_long_for_its_source_is_routed(
    namespace: LogNamespace, registry: Registry, tmp_path: Path, name: str, settings: dict[str, Any]
) -> None:
    directory = tmp_path / "in"
    directory.mkdir()
    text = b"".join(record + b"\n" for record in [*GOOD, LARGE, b"behind"])
    if settings:
        pq.write_table(pa.table({"payload": pa.array([*GOOD, LARGE, b"behind"], pa.binary())}), directory / name)
    else:
        (directory / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    source = {"kind": "hdfs", "path": str(directory), "settle_s": 0, "record_bytes_max": 2_000, **settings}
    errors = {"kind": "log", "log": "errors"}
    route = {"action": "route", "sink": "errors"}
    with opened(registry, {"kind": "log", "log": "out"}, errors, route, source) as resources:
        (owner,) = owners_of(registry, resources, Copy({}))
        owner.take_over()
        outcomes = list(iter(owner.run_round, None))
        owner.release()
        owner.close()
        assert sum(outcome.records_bad for outcome in outcomes) == 1
        assert seen(resources, "out") == [*GOOD, b"behind"]
        (error,) = [json.loads(record) for record in seen(resources, "errors")]
    called = "row" if settings else "line"
    assert error["place"] == f"{directory / name}, {called} 6"
    assert error["cut"]["payload"] == {"bytes": len(LARGE), "sha256": hashlib.sha256(LARGE).hexdigest()}
    assert error["payload"].startswith("üü")
    assert "record_bytes_max" in error["reason"]


def test_a_route_that_was_ended_stops_the_task_and_nothing_goes_there(
    namespace: LogNamespace, registry: Registry, tmp_path: Path
) -> None:
    with namespace.open_writer("in/0") as writer:
        writer.write_bulk(pa.record_batch({"payload": [*GOOD, TWO_LINES]})).result(120)
    sink, ended = {"kind": "hdfs", "path": str(tmp_path / "out")}, {"action": "stop", "sink": "errors"}
    with opened(registry, sink, {"kind": "log", "log": "errors"}, ended) as resources:
        (owner,) = owners_of(registry, resources, Copy({}))
        owner.take_over()
        with pytest.raises(TransformationFailed, match="holds a newline"):
            owner.run_round()
        assert owner.owning
        assert seen(resources, "errors") == []
        owner.close()


def test_with_errors_that_stop_it_is_told_which_record_a_sink_refuses(
    namespace: LogNamespace, registry: Registry, tmp_path: Path
) -> None:
    with namespace.open_writer("in/0") as writer:
        writer.write_bulk(pa.record_batch({"payload": [*GOOD, TWO_LINES]})).result(120)
    with opened(registry, {"kind": "hdfs", "path": str(tmp_path / "out")}, {}, {"action": "stop"}) as resources:
        (owner,) = owners_of(registry, resources, Copy({}))
        owner.take_over()
        with pytest.raises(TransformationFailed, match=r"(?s)holds a newline.*at log in/0, DLSN 1/0/5, of in/in/0"):
            owner.run_round()
        assert owner.owning, "nothing was staged, so the task is still owned"
        owner.close()
