"""Readers of a file sink while it is written and merged by two masters at once: at every moment a prefix, each once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.connectors.contract import Attempt, RoundLimits
from scribengin.connectors.files import FileSink, FileSinkConfig, FileSource, FileSourceConfig
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin_registry.contract import Registry

ROUNDS = 60
WANTED = [f"{number}" for number in range(3 * ROUNDS)]


def test_readers_see_a_growing_prefix_whatever_is_going_on(registry: Registry, tmp_path: Path) -> None:
    config = FileSinkConfig(kind="hdfs", path=str(tmp_path / "out"), merge_bytes=40, merge_age_s=0)

    def open_sink() -> FileSink:
        return FileSink("out", config, registry, STREAM_NODES, SYSTEM_CLOCK)

    stream = open_sink().streams(1)[0]
    open_sink().create([stream])
    written = threading.Event()

    def write() -> None:
        writer = open_sink().open_writer(stream, Attempt("owner", 1, "/commit-log"))
        writer.recover(None)
        for start in range(0, len(WANTED), 3):
            writer.write(pa.record_batch({"payload": WANTED[start : start + 3]}))
            prepared = writer.prepare_commit()
            assert prepared is not None
            writer.complete_commit(prepared)
        written.set()

    def until_written(act: Callable[[], None]) -> None:
        while not written.is_set():
            act()
        act()

    def read_ours() -> None:
        seen = 0

        def look() -> None:
            nonlocal seen
            batches = open_sink().committed(stream)
            found = [payload.decode() for batch in batches for payload in batch["payload"].to_pylist()]
            assert found == WANTED[: len(found)]
            assert len(found) >= seen
            seen = len(found)

        until_written(look)

    def merge() -> None:
        sink = open_sink()
        until_written(lambda: sink.maintain(registry, idle=False))

    with ThreadPoolExecutor(5) as threads:
        running = [threads.submit(act) for act in (write, merge, merge, read_ours, read_ours)]
        try:
            for future in running:
                future.result(timeout=120)
        finally:
            written.set()
    open_sink().maintain(registry, idle=True)
    assert as_a_source(tmp_path / "out") == WANTED


def as_a_source(path: Path) -> list[str]:
    """The final files, as the next dataflow reads them."""
    source = FileSource("in", FileSourceConfig(kind="hdfs", path=str(path)), SYSTEM_CLOCK)
    reader = source.open_reader(source.streams()[0])
    plan = reader.plan(reader.initial_position(), RoundLimits(10**6, 10**9))
    assert plan is not None
    batches = [batch for split in plan.splits for batch in split.read()]
    return [payload.decode() for batch in batches for payload in batch["payload"].to_pylist()]
