"""One thread that writes for many logs. What each writer promises is tested with `log_place`."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import pytest

from scribengin.errors import Fenced, LogClosed, LogWriteFailed
from scribengin.log import DLSN, CommitThread, LogConfig, LogNamespace, LogWriter
from scribengin.log.write import commit_thread as module
from scribengin.log.write.file_syncs import FileSyncs
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


class _Recorded(FileSyncs):
    """Says which files were made durable together; some of them it refuses."""

    together: list[set[int]] = []
    refused: set[int] = set()

    def __init__(self, at_once: int) -> None:
        super().__init__(at_once)
        self._files: dict[int, int] = {}

    def begin(self, file: int, key: int) -> None:
        super().begin(file, key)
        self._files[key] = file

    def ended(self) -> Sequence[tuple[int, OSError | None]]:
        self.together.append(set(self._files.values()))
        found = super().ended()
        refusal = OSError(errno.EIO, "Input/output error")
        return [(key, refusal if self._files.pop(key) in self.refused else error) for key, error in found]


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> type[_Recorded]:
    _Recorded.together, _Recorded.refused = [], set()
    monkeypatch.setattr(module, "FileSyncs", _Recorded)
    monkeypatch.setattr(module, "WAITING_MIN", 1)
    return _Recorded


@pytest.fixture
def in_files(memory_registry: MemoryRegistry, commit_thread: CommitThread, tmp_path: Path) -> LogNamespace:
    return bound_namespace(memory_registry, tmp_path / "store", *LOGS[:10], commit_thread=commit_thread)


@contextmanager
def _thread_held(writer: LogWriter) -> Iterator[None]:
    """What is written within the block is due together when it ends."""
    entered, go = threading.Event(), threading.Event()

    def hold(_stop: str) -> None:
        entered.set()
        assert go.wait(120)

    with at_failpoint("log.segment_sync:before", hold):
        writer.write(b"held")
        assert entered.wait(120)
        try:
            yield
        finally:
            go.set()


def _begun(namespace: LogNamespace, logs: Sequence[str]) -> list[LogWriter]:
    """Their writers, each with one record in its segment."""
    writers = [namespace.open_writer(log) for log in logs]
    for writer in writers:
        writer.write(b"first").result(120)
    return writers


def _segment(log: str) -> int:
    """The descriptor that this process writes its segment to."""
    of_process = Path("/proc/self/fd")
    (found,) = [int(file) for file in os.listdir(of_process) if os.path.realpath(of_process / file).endswith(log)]
    return found


def test_many_logs_are_made_durable_together(in_files: LogNamespace, recorded: type[_Recorded]) -> None:
    logs = LOGS[:10]
    gate, *writers = _begun(in_files, logs)
    with _thread_held(gate):
        futures = [writer.write(b"%d" % number) for number, writer in enumerate(writers)]
    assert {future.result(120) for future in futures} == {DLSN(1, 1, 0)}
    assert len(recorded.together[0]) == 9
    for writer in (gate, *writers):
        writer.close()
    for number, log in enumerate(logs[1:]):
        assert payloads_read(in_files, log) == [b"first", b"%d" % number]


def test_of_several_logs_one_whose_file_is_refused_fails_and_no_other(
    in_files: LogNamespace, recorded: type[_Recorded]
) -> None:
    gate, one, other, third = _begun(in_files, LOGS[:4])
    recorded.refused = {_segment(f"{in_files.segments(LOGS[2])[0].file}.log")}
    with _thread_held(gate):
        futures = [writer.write(b"2") for writer in (one, other, third)]
    assert futures[0].result(120) == futures[2].result(120) == DLSN(1, 1, 0)
    with pytest.raises(LogWriteFailed, match="Input/output error"):
        futures[1].result(120)
    with pytest.raises(LogWriteFailed):
        other.write(b"3")
    assert one.write(b"3").result(120) == DLSN(1, 2, 0)
    other.abort()
    for writer in (gate, one, third):
        writer.close()


def test_of_several_logs_one_that_was_fenced_is_not_acknowledged(
    in_files: LogNamespace, recorded: type[_Recorded], tmp_path: Path
) -> None:
    gate, one, other = _begun(in_files, LOGS[:3])
    with _thread_held(gate):
        futures = [writer.write(b"2") for writer in (one, other)]
        (tmp_path / "store" / str(in_files.segments(LOGS[1])[0].file)).with_suffix(".fence").touch()
    with pytest.raises(Fenced):
        futures[0].result(120)
    assert futures[1].result(120) == DLSN(1, 1, 0)
    assert len(recorded.together[0]) == 2
    one.abort()
    for writer in (gate, other):
        writer.close()


def test_what_one_log_calls_back_may_abort_another_that_is_made_durable_with_it(
    in_files: LogNamespace, recorded: type[_Recorded]
) -> None:
    gate, *writers = _begun(in_files, LOGS[:3])
    aborted: list[LogWriter] = []

    def abort_the_other(done: Future[DLSN]) -> None:
        if not aborted:
            aborted.append(writers[1 - futures.index(done)])
            aborted[0].abort()

    with _thread_held(gate):
        futures = [writer.write(b"2") for writer in writers]
        for future in futures:
            future.add_done_callback(abort_the_other)
    at = 1 - writers.index(_first(aborted, futures))
    assert futures[at].result(120) == DLSN(1, 1, 0)
    with pytest.raises(LogClosed):
        futures[1 - at].result(120)
    assert writers[at].write(b"3").result(120) == DLSN(1, 2, 0)
    assert len(recorded.together[0]) == 2
    for writer in (gate, writers[at]):
        writer.close()


def _first(aborted: list[LogWriter], futures: list[Future[DLSN]]) -> LogWriter:
    for future in futures:
        future.exception(120)
    return aborted[0]
