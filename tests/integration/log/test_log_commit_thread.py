"""One thread that writes for many logs. What each writer promises is tested with `log_place`."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from scribengin.errors import LogClosed, LogWriteFailed
from scribengin.log import CommitThread, LogConfig, LogNamespace
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import bound_namespace, payloads_read
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryRegistry
from scribengin.testing.memory.segments import MEMORY_STORE
from scribengin.testing.waiting import wait_until

LOGS = [f"log-{number}" for number in range(100)]


@pytest.fixture
def commit_thread() -> Iterator[CommitThread]:
    with CommitThread() as thread:
        yield thread


def bound(registry: MemoryRegistry, commit_thread: CommitThread, *logs: str, config: LogConfig) -> LogNamespace:
    disk = MemoryDisk(f"disk {id(registry)}")
    namespace = bound_namespace(
        registry, disk.name, *logs, config=config, store=MEMORY_STORE, commit_thread=commit_thread
    )
    namespace.keep = disk  # type: ignore[attr-defined]  # disks are known as long as somebody has them
    return namespace


@pytest.fixture
def namespace(memory_registry: MemoryRegistry, commit_thread: CommitThread) -> LogNamespace:
    return bound(memory_registry, commit_thread, *LOGS, config=LogConfig())


def test_many_logs_are_written_by_one_thread(namespace: LogNamespace) -> None:
    before = set(threading.enumerate())
    writers = [namespace.open_writer(log) for log in LOGS]
    for writer in writers:
        writer.write(b"first").result(120)
    names = [thread.name for thread in set(threading.enumerate()) - before]
    assert names.count("log-commit") == 1
    assert not [name for name in names if name.startswith("log-writer")]
    for number in range(5):
        for writer in writers:
            writer.write(b"%d" % number)
    for writer in writers:
        writer.close()
    for log in LOGS:
        assert payloads_read(namespace, log) == [b"first", b"0", b"1", b"2", b"3", b"4"]


def test_what_gathers_while_the_thread_is_at_another_log_becomes_one_entry(namespace: LogNamespace) -> None:
    one, other = namespace.open_writer(LOGS[0]), namespace.open_writer(LOGS[1])
    entered, go = threading.Event(), threading.Event()

    def hold(_stop: str) -> None:
        entered.set()
        assert go.wait(120)

    with at_failpoint("log.segment_sync:before", hold):
        one.write(b"held")
        assert entered.wait(120)
        futures = [other.write(b"%d" % number) for number in range(10)]
        go.set()
        assert len({future.result(120).entry for future in futures}) == 1
    one.close()
    other.close()


def test_the_failure_of_one_log_is_no_other_ones(namespace: LogNamespace) -> None:
    one, other = namespace.open_writer(LOGS[0]), namespace.open_writer(LOGS[1])

    def fail(_stop: str) -> None:
        raise LogWriteFailed("the disk refused")

    with at_failpoint("log.segment_sync:before", fail), pytest.raises(LogWriteFailed):
        one.write(b"1").result(120)
    other.write(b"1").result(120)
    one.abort()
    other.close()


def test_aborting_waits_for_the_group_that_is_being_written(namespace: LogNamespace) -> None:
    writer = namespace.open_writer(LOGS[0])
    entered, go = threading.Event(), threading.Event()

    def hold(_stop: str) -> None:
        entered.set()
        assert go.wait(120)

    with at_failpoint("log.segment_sync:before", hold):
        held = writer.write(b"held")
        assert entered.wait(120)
        late = writer.write(b"late")
        aborting = threading.Thread(target=writer.abort)
        aborting.start()
        with pytest.raises(LogClosed):
            late.result(120)
        assert aborting.is_alive()
        go.set()
        aborting.join(120)
    assert held.result(0)
    assert payloads_read(namespace, LOGS[0]) == [b"held"]


def test_what_waits_for_its_time_is_sent_then_and_keep_alives_are(
    memory_registry: MemoryRegistry, commit_thread: CommitThread
) -> None:
    config = LogConfig(transmit_interval_ms=20, keep_alive_ms=20)
    namespace = bound(memory_registry, commit_thread, "timed", config=config)
    with namespace.open_writer("timed") as writer:
        first = writer.write(b"1").result(120)

        def later() -> bool:
            return writer.write(b"2").result(120).entry > first.entry + 2

        wait_until(later, what="keep-alives stand between the records")


def test_a_thread_that_is_closed_takes_nobody(namespace: LogNamespace, commit_thread: CommitThread) -> None:
    writer = namespace.open_writer(LOGS[0])
    commit_thread.close()
    with pytest.raises(LogClosed, match="close their writers before it"):
        writer.write(b"1")
    writer.abort()
