"""DistributedLog's tutorials that docs/tutorials does not show: each as a small program over our clients.

ConsoleProxyMultiWriter, RecordGenerator, and StreamRewinder where records have times of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scribengin.log import LogNamespace
from scribengin.log.clients import BalancedWriter, partition_logs, rewind
from scribengin.testing.clocks import ManualClock
from scribengin.testing.log_samples import bound_namespace, payload_batch, payloads_left, payloads_read
from scribengin_registry.contract import Registry

LOG = "messages"
LOGS = partition_logs("streams", 3)
LINES = [f"line {n}" for n in range(20)]


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    return bound_namespace(registry, tmp_path / "store", LOG, *LOGS)


def test_basic_multi_writer_writes_each_line_to_some_log(namespace: LogNamespace) -> None:
    with BalancedWriter(namespace, LOGS) as writer:
        for line in LINES:
            assert writer.write(line.encode()).result(120).log in LOGS
    found = [payload for log in LOGS for payload in payloads_read(namespace, log)]
    assert sorted(found) == sorted(line.encode() for line in LINES)


def test_basic_record_generator_writes_at_a_rate(namespace: LogNamespace) -> None:
    """It writes what is due at each tick, and what it missed while it was late."""
    clock = ManualClock()

    def due(records_per_s: int) -> Iterator[int]:
        generated = 0
        while True:
            wanted = int(clock.monotonic_s() * records_per_s)
            yield wanted - generated
            generated = wanted

    with namespace.open_writer(LOG) as writer:
        generator = due(100)
        for tick_s in (0.0, 0.25, 0.5, 1.0):
            clock.advance_s(tick_s)
            batch = payload_batch([b"generated"] * next(generator))
            if batch.num_rows:
                writer.write_bulk(batch)
        writer.flush()
        assert namespace.count(LOG) == 175


def test_basic_stream_rewinder_reads_the_last_seconds_again(namespace: LogNamespace, registry: Registry) -> None:
    clock = ManualClock()
    dated = LogNamespace.open(namespace.path, registry=registry, clock=clock)
    with dated.open_writer(LOG) as writer:
        for wait_s in (50, 40, 9, 1):
            writer.write(b"%d s before the next" % wait_s).result(120)
            clock.advance_s(wait_s)
    with rewind(dated, LOG, 30, clock=clock) as reader:
        assert payloads_left(reader) == [b"9 s before the next", b"1 s before the next"]
