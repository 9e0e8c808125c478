"""What the writer of a store makes of logs that fail, and of a registry that does not answer. Its thread never runs."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future

import pyarrow as pa
import pytest

from scribengin.dafka import DafkaConfig
from scribengin.dafka.state import DafkaPartition, ProducerState, Send
from scribengin.dafka.store import StoredPartitions, StoreWriter
from scribengin.dafka.wire import Fetch, LiveRecord, StoreAck
from scribengin.errors import InconsistentLog, LogWriteFailed
from scribengin.log import DlsnRange, LogNamespace, LogWriter
from scribengin.testing.log_samples import bound_namespace
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryRegistry
from scribengin.testing.memory.segments import MEMORY_STORE
from scribengin.testing.waiting import wait_until
from scribengin_registry.errors import OutcomeUnknown, RegistryError, RegistryUnreachable, SessionLost

PRODUCER = "BB" * 16
FLIGHTS = DafkaPartition("flights", PRODUCER)
NOBODY = DafkaConfig.model_validate(
    {"beacon": {"sub_address": "tcp://127.0.0.1:9", "pub_address": "tcp://127.0.0.1:9"}}
)
REGISTRY_ERRORS = [RegistryUnreachable("away"), OutcomeUnknown("away"), SessionLost("away")]


class StillWriter(StoreWriter):
    """Without a thread: a test calls what would run on it, and looks at what is sent."""

    def start(self) -> None:
        self.acknowledged: list[int] = []
        self.fetched: list[Fetch] = []

    def send(self, instructions: object) -> None:
        for one in instructions:  # type: ignore[attr-defined]
            if isinstance(one, Send) and isinstance(one.message, StoreAck):
                self.acknowledged.append(one.message.sequence)
            elif isinstance(one, Send) and isinstance(one.message, Fetch):
                self.fetched.append(one.message)

    def publish(self, first: int, end: int, now_s: float = 0.0) -> None:
        """Records come."""
        records = [LiveRecord("flights", PRODUCER, "flights", n, b"%d" % n) for n in range(first, end)]
        self.on_messages(list(records), "", now_s)

    def all_written(self, appends: int) -> None:
        wait_until(lambda: len(self._written) == appends)
        self.on_wake()


@pytest.fixture
def logs(memory_registry: MemoryRegistry) -> Iterator[LogNamespace]:
    disk = MemoryDisk("writer")
    with bound_namespace(memory_registry, disk.name, store=MEMORY_STORE) as namespace:
        yield namespace


@pytest.fixture
def writer(logs: LogNamespace) -> Iterator[StillWriter]:
    made = still_writer(logs)
    yield made
    release(made)


def still_writer(logs: LogNamespace) -> StillWriter:
    return StillWriter(StoredPartitions(logs, "dafka", None, take_over=False, batches=True), NOBODY)


def release(writer: StillWriter) -> None:
    for log in writer._open_logs.values():
        log.writer.close()
    writer._release()


def fail_the_next_write(patch: pytest.MonkeyPatch) -> None:
    """Its future fails, as one does whose segment cannot be written."""
    real = LogWriter.write_bulk
    failed: list[Future[DlsnRange]] = []

    def write_bulk(self: LogWriter, batch: pa.RecordBatch) -> Future[DlsnRange]:
        if failed:
            return real(self, batch)
        future: Future[DlsnRange] = Future()
        failed.append(future)
        future.set_exception(LogWriteFailed("no room"))
        return future

    patch.setattr(LogWriter, "write_bulk", write_bulk)


def test_what_is_durable_before_a_failure_that_is_seen_with_it_is_not_wanted_again(
    writer: StillWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The producer has let go of what was acknowledged: it answers nobody who asks for that."""
    producer = ProducerState(FLIGHTS, acks_min=1, first=0)
    producer.publish([b"%d" % n for n in range(10)], 0.0)
    writer.publish(0, 5)
    writer.all_written(1)
    writer.publish(5, 8)
    wait_until(lambda: len(writer._written) == 1)
    fail_the_next_write(monkeypatch)
    writer.publish(8, 10)
    writer.all_written(2)
    assert writer.acknowledged == [4, 7]
    assert isinstance(writer.failures.failing[FLIGHTS], LogWriteFailed)
    for sequence in writer.acknowledged:
        producer.message(StoreAck(PRODUCER, "flights", sequence), "the store")
    later_s = 10.0**9
    writer.publish(9, 10, later_s)
    [fetch] = writer.fetched
    assert (fetch.sequence, fetch.records) == (8, 1)
    assert [*producer.message(fetch, "the store"), *producer.answers(10)], "it keeps that one"
    writer.publish(8, 10, later_s)
    writer.all_written(1)
    assert writer.acknowledged[-1] == 9
    assert writer.failures.failing == {}


@pytest.mark.parametrize("error", REGISTRY_ERRORS, ids=lambda error: type(error).__name__)
def test_a_registry_that_does_not_answer_when_a_log_is_opened_is_a_failure_that_passes(
    writer: StillWriter, logs: LogNamespace, monkeypatch: pytest.MonkeyPatch, error: RegistryError
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(logs, "open_writer", raising(error))
        writer.publish(0, 5)
    assert writer.failures.failing == {FLIGHTS: error}
    writer.publish(0, 5, 10.0)
    writer.all_written(1)
    assert writer.acknowledged == [4]
    assert writer.failures.failing == {}


@pytest.mark.parametrize("error", REGISTRY_ERRORS, ids=lambda error: type(error).__name__)
def test_a_lock_that_cannot_be_given_back_yet_is_given_back_before_the_log_is_opened_again(
    writer: StillWriter, monkeypatch: pytest.MonkeyPatch, error: RegistryError
) -> None:
    writer.publish(0, 5)
    writer.all_written(1)
    real = LogWriter.abort
    with monkeypatch.context() as patch:
        fail_the_next_write(patch)
        patch.setattr(LogWriter, "abort", raising(error))
        writer.publish(5, 10)
        writer.all_written(1)
        assert isinstance(writer.failures.failing[FLIGHTS], LogWriteFailed)
        writer.publish(5, 10, 10.0**9)
        assert writer.failures.failing[FLIGHTS] is error
    assert LogWriter.abort is real
    writer.publish(5, 10, 2 * 10.0**9)
    writer.all_written(1)
    assert writer.acknowledged == [4, 9]


@pytest.mark.parametrize("error", REGISTRY_ERRORS, ids=lambda error: type(error).__name__)
def test_a_lock_is_given_back_though_nothing_more_comes_for_its_log(
    writer: StillWriter, logs: LogNamespace, monkeypatch: pytest.MonkeyPatch, error: RegistryError
) -> None:
    """The registry was away when the log had been idle for long."""
    writer.publish(0, 5)
    writer.all_written(1)
    with monkeypatch.context() as patch:
        patch.setattr(LogWriter, "close", raising(error))
        patch.setattr(LogWriter, "abort", raising(error))
        writer.on_tick(1_000.0)
        assert writer.failures.failing == {FLIGHTS: error}
    writer.on_tick(10.0**9)
    assert writer.failures.failing == {}
    logs.open_writer(writer._logs.name(FLIGHTS), timeout_s=0).close()


def test_a_registry_that_is_away_is_asked_about_one_log_at_a_time(
    logs: LogNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer is waited for, and with it all other logs."""
    before = still_writer(logs)
    for subject in ("a", "b", "c"):
        before.on_messages([LiveRecord(subject, PRODUCER, subject, 0, b"0")], "", 0.0)
    before.all_written(3)
    release(before)
    asked: list[str] = []

    def away(name: str, *_: object) -> None:
        asked.append(name)
        raise RegistryUnreachable("away")

    with monkeypatch.context() as patch:
        patch.setattr(logs, "open_reader", away)
        writer = still_writer(logs)
        asked.clear()
        writer.on_tick(1_000.0)
        assert len(asked) == 1
        assert len(writer._logs.unreadable.failing) == 3
    writer.on_tick(10.0**9)
    assert writer._logs.unreadable.failing == {}
    release(writer)


def raising(error: Exception) -> object:
    def fails(*_: object, **__: object) -> None:
        raise error

    return fails


def test_a_log_that_cannot_be_read_at_start_is_read_again_and_nothing_is_said_or_taken_of_it_until_then(
    logs: LogNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = still_writer(logs)
    before.publish(0, 10)
    before.all_written(1)
    release(before)
    asked = Fetch(PRODUCER, "CC" * 16, "flights", 0, 5)
    with monkeypatch.context() as patch:
        patch.setattr(logs, "open_reader", raising(LogWriteFailed("not now")))
        writer = still_writer(logs)
        partitions = writer._logs
        writer.publish(0, 3, 1.0)
        writer.publish(20, 23, 1.0)
        writer.on_tick(2.0)
        assert isinstance(partitions.unreadable.failing[FLIGHTS], LogWriteFailed)
        assert (writer.acknowledged, writer.fetched, writer._open_logs) == ([], [], {})
        assert partitions.state.asked(asked) == []
    writer.on_tick(3.0)
    assert FLIGHTS in partitions.unreadable.failing
    writer.on_tick(5.0)
    assert partitions.unreadable.failing == {}
    assert partitions.state.stored == {FLIGHTS: (0, 10)}
    writer.publish(10, 12, 5.0)
    writer.all_written(1)
    assert writer.acknowledged == [11]
    release(writer)


def test_a_hole_in_a_log_is_refused(writer: StillWriter) -> None:
    """Its state says more than the log has: whatever the reason, nothing is written behind the gap."""
    writer.publish(0, 5)
    writer.all_written(1)
    writer._open_logs.pop(FLIGHTS).writer.close()
    with writer._logs.lock:
        writer._logs.state.durable(FLIGHTS, 5, 8)
        writer._logs.state.refuse(FLIGHTS, 0.0)
    writer.publish(8, 10, 1.0)
    assert isinstance(writer.failures.failing[FLIGHTS], InconsistentLog)
    assert not writer._written
