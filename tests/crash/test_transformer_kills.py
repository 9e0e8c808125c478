"""A transformer that is killed again and again writes each record once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from scribengin.log import LogConfig
from scribengin.log.clients import without_envelope
from scribengin.testing.log_samples import bound_namespace, fill_log, payloads_of
from scribengin_registry.contract import Registry
from tests.crash.processes import finish
from tests.crash.stops import FINISHED, KILLED
from tests.crash.transforming import SOURCE, TARGET, start_transformer

# One after the other, each in a process that goes on where the one before was killed.
KILLS = [
    ("log.segment_create:after", 1),
    ("log.segment_write:after", 2),
    ("log.segment_sync:before", 2),
    ("log.segment_sync:after", 2),
    ("log.tail_write:after", 2),
    ("log.metadata:before", 3),
    ("log.metadata:after", 3),
]


def test_a_transformer_killed_again_and_again_writes_each_record_once(
    registry: Registry, registry_hosts: str, tmp_path: Path
) -> None:
    config = LogConfig(segment_bytes_max=8192)
    namespace = bound_namespace(registry, tmp_path / "store", SOURCE, TARGET, config=config)
    written = fill_log(namespace, SOURCE, 40, rows=3)
    with namespace.open_writer(SOURCE) as writer:
        writer.mark_end_of_stream()
    copied: list[pa.RecordBatch] = []
    for stop, occurrence in KILLS:
        assert finish(start_transformer(registry_hosts, stop, occurrence)) == KILLED, stop
    assert finish(start_transformer(registry_hosts, "", 1)) == FINISHED
    with namespace.open_reader(TARGET) as reader:
        while (batch := reader.read_batch()) is not None:
            copied.append(without_envelope(batch))
    assert [payload for batch in copied for payload in payloads_of(batch)] == written
    assert len(namespace.segments(TARGET)) > len(KILLS) - 2
