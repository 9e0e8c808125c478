"""A message that names a command for a log names the log's namespace: elsewhere it would be done to another log."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from scribengin.errors import DamagedEntry, InconsistentLog, LogBusy, NamespaceNotBound, ReaderIdle
from scribengin.log import DLSN, LogConfig, LogNamespace, ReaderConfig
from scribengin.log.clients.repair import recover_log
from scribengin.log.metadata.segments import LogMetadata
from scribengin.log.read.reader import IdleWatch
from scribengin.log.retention.compression import RAW_GRACE_MS
from scribengin.log.retention.holds import ReaderDescriptor, RegisteredReaders
from scribengin.testing.clocks import ManualClock
from scribengin.testing.log_samples import fill_log
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.files import MemoryFiles
from scribengin.testing.memory.registry import MemoryEnsemble, MemoryRegistry
from scribengin.testing.memory.segments import MEMORY_STORE
from tests.registry_copies import restore, saved

ELSEWHERE = "--namespace /elsewhere`"


@pytest.fixture
def registry() -> Iterator[MemoryRegistry]:
    with MemoryEnsemble().connect() as session:
        yield session


@pytest.fixture
def namespace(registry: MemoryRegistry) -> Iterator[LogNamespace]:
    disk = MemoryDisk("elsewhere")
    LogNamespace.bind("/elsewhere", disk.name, registry=registry, store=MEMORY_STORE)
    with LogNamespace.open("/elsewhere", registry=registry) as opened:
        opened.create("a")
        fill_log(opened, "a", 3)
        yield opened


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles("cold")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cold(
    namespace: LogNamespace, files: MemoryFiles, registry: MemoryRegistry, clock: ManualClock
) -> Iterator[LogNamespace]:
    """Its log `b` has segments that are to be in cold storage alone by now, and are not there yet."""
    with files.opened_by("cold") as url, LogNamespace.open("/elsewhere", registry=registry, clock=clock) as opened:
        opened.create("b", LogConfig(segment_bytes_max=4096, cold_url=f"{url}kept", hot_hours=1))
        fill_log(opened, "b", 9)
        clock.advance_s(2 * 3600)
        yield opened


def test_one_that_is_written_is_not_copied(namespace: LogNamespace) -> None:
    with namespace.open_writer("a") as writer:
        writer.write(b"more").result()
        with pytest.raises(LogBusy, match=f"`scribengin log recover a {ELSEWHERE}"):
            namespace.copy("a", namespace, "b")


def test_metadata_that_contradicts_itself_is_looked_at(namespace: LogNamespace, registry: MemoryRegistry) -> None:
    metadata = LogMetadata(registry, "/elsewhere", "a")
    for segment in registry.children(metadata.segments_path):
        registry.delete(f"{metadata.segments_path}/{segment}")
    with pytest.raises(InconsistentLog, match=f"`scribengin log inspect a {ELSEWHERE}"):
        recover_log(namespace, "a")
    with pytest.raises(InconsistentLog, match=f"`scribengin log inspect a {ELSEWHERE}"):
        namespace.open_writer("a")


def test_a_registered_reader_behind_the_end_is_looked_for(namespace: LogNamespace, registry: MemoryRegistry) -> None:
    namespace.register_reader("a", "billing", None)
    readers = RegisteredReaders(LogMetadata(registry, "/elsewhere", "a"))
    registry.set(readers._node("billing"), ReaderDescriptor.of(DLSN(9, 0, 0)).to_bytes())
    told = [finding.what for finding in namespace.inspect("a").out_of_place()]
    assert [f"`scribengin log recover a {ELSEWHERE}" in text for text in told] == [True]


def test_one_that_is_bound_elsewhere_is_moved(namespace: LogNamespace, registry: MemoryRegistry) -> None:
    other = MemoryDisk("other")
    with pytest.raises(NamespaceNotBound, match=f"`scribengin log bind --migrate {other.name} {ELSEWHERE}"):
        LogNamespace.bind("/elsewhere", other.name, registry=registry, store=MEMORY_STORE)


def test_a_reader_whose_writer_has_died_says_how_to_end_it() -> None:
    clock = cast(Any, SimpleNamespace(monotonic_s=iter((0.0, 9.0, 9.0, 9.0)).__next__))
    catalog = cast(Any, SimpleNamespace(log=SimpleNamespace(name="a"), namespace="/elsewhere", writer=lambda: "died"))
    watch = IdleWatch(catalog, ReaderConfig(idle_error_s=5), clock)
    with pytest.raises(ReaderIdle, match=f"`scribengin log recover a {ELSEWHERE}"):
        watch.saw_nothing()


def test_a_cold_copy_that_does_not_hold_is_made_again(cold: LogNamespace, files: MemoryFiles) -> None:
    cold.offload("b")
    for copy in files.find("/kept"):
        files._inode(f"/kept/{copy.name}").content[100] ^= 0xFF
    with pytest.raises(DamagedEntry, match=f"`scribengin log offload b {ELSEWHERE}"):
        cold.purge("b")


def test_what_the_registry_has_forgotten_is_taken_from_cold_storage(
    cold: LogNamespace, registry: MemoryRegistry, clock: ManualClock
) -> None:
    backup = saved(registry, "/elsewhere")
    cold.offload("b")
    cold.purge("b")
    clock.advance_s(RAW_GRACE_MS / 1000)
    cold.purge("b")
    restore(registry, backup)
    told = [finding.what for finding in cold.inspect("b").out_of_place()]
    assert told
    assert all(f"`scribengin log recover b {ELSEWHERE}" in text for text in told)
