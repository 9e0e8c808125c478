"""Our own sources pass the suite that users run on theirs, on a real registry."""

from __future__ import annotations

import gzip
import itertools
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scribengin.connectors import Environment, open_source
from scribengin.connectors.contract import RECORD_SCHEMA, RoundLimits, Source
from scribengin.connectors.files import FileSourceConfig
from scribengin.connectors.log.source import LogSourceConfig
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.filesystems.contract import DurableFileSystem
from scribengin.filesystems.paths import durable_file_system
from scribengin.log import LogConfig, LogNamespace
from scribengin.testing import check_source
from scribengin.testing.memory.files import MemoryFiles
from scribengin_dev.servers.hadoop.hdfs import HdfsServers
from scribengin_registry.contract import Registry

STREAMS = 2


@pytest.fixture
def environment(registry: Registry) -> Environment:
    return Environment(registry=registry, dataflow="conformance", nodes=STREAM_NODES)


@pytest.fixture
def files_in_memory() -> Iterator[str]:
    """The URL of a directory of MemoryFiles."""
    with MemoryFiles().opened_by("in-memory") as url:
        yield f"{url}in"


def name_in(stream: str, streams: int) -> str:
    """A file name that belongs to the stream."""
    names = (f"file-{number}.txt" for number in itertools.count())
    return next(name for name in names if zlib.crc32(name.encode()) % streams == int(stream))


def test_files_are_a_source(environment: Environment, tmp_path: Path) -> None:
    config = FileSourceConfig.parse({"kind": "hdfs", "path": str(tmp_path), "streams": STREAMS}, source="a test")

    def append(stream: str, payloads: Sequence[bytes]) -> None:
        with (tmp_path / name_in(stream, STREAMS)).open("ab") as file:
            file.write(b"".join(payload + b"\n" for payload in payloads))

    check_source(lambda: open_source("in", config, environment), append)


FORMATS = ("lines", "frames", "gz", "parquet")
ON_HDFS = [
    pytest.param(
        form, "hdfs", marks=[pytest.mark.servers] if form == "parquet" else [pytest.mark.servers, pytest.mark.full]
    )
    for form in FORMATS
]
IN_MEMORY = [(form, kind) for kind in ("memory", "in-memory") for form in FORMATS]


@pytest.mark.parametrize(("form", "kind"), [*ON_HDFS, *IN_MEMORY])
def test_files_of_every_format_are_a_source_wherever_they_are(
    environment: Environment, request: pytest.FixtureRequest, kind: str, form: str
) -> None:
    root = f"memory://{uuid.uuid4().hex}"
    if kind == "hdfs":
        hdfs: HdfsServers = request.getfixturevalue("hdfs")
        root = f"{hdfs.url}/source-conformance/{uuid.uuid4().hex}"
    elif kind == "in-memory":
        root = request.getfixturevalue("files_in_memory")
    files, path = durable_file_system(root)
    files.make_directories(path)
    settings = {"kind": "hdfs", "path": root, "settle_s": 0, **FORMS[form].settings}
    schema_file = f"{root}/_like.parquet"
    if form == "parquet":
        write_file(files, f"{path}/_like.parquet", FORMS[form].encode([]))
        settings["schema_file"] = schema_file
    config = FileSourceConfig.parse(settings, source="a test")
    numbers = itertools.count()

    def append(_stream: str, payloads: Sequence[bytes]) -> None:
        number = next(numbers)
        write_file(files, f"{path}/.{number}", FORMS[form].encode(payloads))
        files.rename(f"{path}/.{number}", f"{path}/in-{number:06d}{FORMS[form].suffix}")

    check_source(lambda: open_source("in", config, environment), append)


def write_file(files: DurableFileSystem, path: str, data: bytes) -> None:
    file = files.create(path)
    file.append(data)
    file.sync()
    file.close()


@dataclass(frozen=True)
class Form:
    """A format of files: how a test writes one, and what a source needs to read it."""

    encode: Callable[[Sequence[bytes]], bytes]
    suffix: str = ""
    settings: dict[str, Any] = field(default_factory=dict)


def lines(payloads: Sequence[bytes]) -> bytes:
    return b"".join(payload + b"\n" for payload in payloads)


def parquet(payloads: Sequence[bytes]) -> bytes:
    """Rows that are records: nothing says that a Parquet file cannot have the columns of a log."""
    nulls = {column.name: pa.nulls(len(payloads), column.type) for column in RECORD_SCHEMA}
    table = pa.table({**nulls, "payload": pa.array(payloads, pa.binary())}, schema=RECORD_SCHEMA)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue())


FORMS = {
    "lines": Form(lines),
    "frames": Form(
        lambda payloads: b"".join(len(p).to_bytes(4, "big") + p for p in payloads), settings={"file_format": "binary"}
    ),
    "gz": Form(lambda payloads: gzip.compress(lines(payloads)), ".gz"),
    "parquet": Form(parquet, ".parquet", {"file_format": "parquet"}),
}


def test_new_files_that_match_a_glob_are_a_source(environment: Environment, tmp_path: Path) -> None:
    config = FileSourceConfig.parse({"kind": "hdfs", "path": f"{tmp_path}/*/in*.txt"}, source="a test")
    numbers = itertools.count()

    def append(_stream: str, payloads: Sequence[bytes]) -> None:
        number = next(numbers)
        directory = tmp_path / f"day-{number % 3}"
        directory.mkdir(exist_ok=True)
        part = tmp_path / f"in-{number}.part"
        part.write_bytes(b"".join(payload + b"\n" for payload in payloads))
        part.rename(directory / f"in-{number:06d}.txt")

    check_source(lambda: open_source("in", config, environment), append)


def test_a_source_that_does_not_follow_ends(environment: Environment, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"kind": "hdfs", "path": str(tmp_path), "follow": False}
    config = FileSourceConfig.parse(settings, source="a test")
    (tmp_path / "a.txt").write_bytes(b"one\ntwo")
    source = open_source("in", config, environment)
    reader = source.open_reader(source.streams()[0])
    start = reader.initial_position()
    assert not reader.ended(start)
    plan = reader.plan(start, RoundLimits(100, 1000))
    assert plan is not None
    assert [payload for batch in plan.splits[0].read() for payload in batch["payload"].to_pylist()] == [b"one", b"two"]
    assert reader.ended(plan.end)


@pytest.mark.parametrize("segment_bytes_max", [256 * 1024 * 1024, 4096], ids=["one segment", "many segments"])
def test_logs_are_a_source(environment: Environment, tmp_path: Path, segment_bytes_max: int) -> None:
    LogNamespace.bind("/logs", tmp_path, registry=environment.registry)
    with LogNamespace.open("/logs", registry=environment.registry) as namespace:
        logs = ["in/2", "in/10"]
        for log in logs:
            namespace.create(log, LogConfig(segment_bytes_max=segment_bytes_max))
        writers = {log: namespace.open_writer(log) for log in logs}

        def append(stream: str, payloads: Sequence[bytes]) -> None:
            batch = pa.record_batch({"payload": pa.array(payloads, pa.binary())})
            writers[stream].write_bulk(batch).result(timeout=120)

        def make() -> Source:
            config = LogSourceConfig.parse({"kind": "log", "logs": "in/*"}, source="a test")
            return open_source("in", config, environment)

        assert [stream.name for stream in make().streams()] == logs
        check_source(make, append, seal=lambda stream: writers[stream].mark_end_of_stream())
        for writer in writers.values():
            writer.close()
