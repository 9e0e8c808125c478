"""Our own sources pass the suite that users run on theirs, on a real registry."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from scribengin.connectors import Environment, open_source
from scribengin.connectors.contract import RoundLimits, Source
from scribengin.connectors.files import FileSourceConfig
from scribengin.connectors.log import LogSourceConfig
from scribengin.log import LogConfig, LogNamespace
from scribengin.testing import check_source
from scribengin_registry.contract import Registry

STREAMS = 2


@pytest.fixture
def environment(registry: Registry) -> Environment:
    return Environment(registry=registry, dataflow="conformance")


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
            writers[stream].write_bulk(batch).result(timeout=30)

        def make() -> Source:
            config = LogSourceConfig.parse({"kind": "log", "logs": "in/*"}, source="a test")
            return open_source("in", config, environment)

        assert [stream.name for stream in make().streams()] == logs
        check_source(make, append, seal=lambda stream: writers[stream].mark_end_of_stream())
        for writer in writers.values():
            writer.close()
