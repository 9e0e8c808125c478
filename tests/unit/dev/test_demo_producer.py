"""The demo's producer appends every record once, whatever becomes of the store meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.errors import LogWriteFailed, StoreUnreachable
from scribengin.log import LogNamespace
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import bound_namespace, payload_batch, payloads_read
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryRegistry
from scribengin.testing.memory.segments import MEMORY_STORE
from scribengin.testing.waiting import wait_until
from scribengin_dev.harness.producer import Producer

LOGS = ("flights/0", "flights/1")
PAYLOADS = [b"%d" % number for number in range(50)]


@pytest.fixture
def namespace(memory_registry: MemoryRegistry) -> LogNamespace:
    disk = MemoryDisk("disk of the demo")
    namespace = bound_namespace(memory_registry, disk.name, LOGS[0], store=MEMORY_STORE)
    namespace.create(LOGS[1])
    return namespace


@pytest.fixture
def producer(namespace: LogNamespace) -> Iterator[Producer]:
    """One that appends them all as soon as it is told to go on."""
    batches = [payload_batch(PAYLOADS)] * 2
    producer = Producer(namespace, LOGS, batches, first=5, duration_s=0.001, clock=SYSTEM_CLOCK)
    yield producer
    producer.stop()


@pytest.mark.parametrize("stop", ["log.segment_write:before", "log.segment_sync:before", "log.segment_sync:after"])
def test_a_store_that_does_not_answer_for_a_while_makes_nothing_missing_or_double(
    namespace: LogNamespace, producer: Producer, stop: str
) -> None:
    def refuse(_stop: str) -> None:  # once, as failpoints do
        refused.append(stop)
        raise StoreUnreachable("1 of its DataNodes is left")

    refused: list[str] = []

    producer.start()
    wait_until(lambda: producer.appended == 10, what="the first records")
    with at_failpoint(stop, refuse):
        producer.go_on()
        wait_until(lambda: producer.done, what="all records")
    producer.check()
    assert refused == [stop]
    assert [payloads_read(namespace, log) for log in LOGS] == [PAYLOADS, PAYLOADS]


def test_a_disk_that_refuses_ends_it(producer: Producer) -> None:
    def refuse(_stop: str) -> None:
        raise LogWriteFailed("the disk is gone")

    def fails() -> bool:
        try:
            producer.check()
        except LogWriteFailed:
            return True
        return False

    with at_failpoint("log.segment_sync:before", refuse):
        producer.start()
        wait_until(fails, what="the failure")
