"""A log is copied from one namespace to another, on whatever store: all places hold there, or nothing was made."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from scribengin.base.failpoints import set_hook
from scribengin.errors import ConfigInvalid, DamagedEntry, LogBusy, LogExists, LogNotFound
from scribengin.log import DLSN, LogConfig, LogNamespace, Time
from scribengin.testing.failpoints import at_failpoint, record_stops
from scribengin.testing.log_samples import bound_namespace, fill_log, payloads_read, segment_path
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryEnsemble, MemoryRegistry
from scribengin.testing.memory.segments import MEMORY_STORE
from scribengin_registry.contract import Registry
from scribengin_registry.errors import OutcomeUnknown
from tests.dying import Died
from tests.house.failpoints import failpoint_names

SMALL = LogConfig(segment_bytes_max=4096)
STOPS = [f"{name}:{side}" for name in failpoint_names("log.copy_") for side in ("before", "after")]


@pytest.fixture
def registry(memory_registry: MemoryRegistry) -> MemoryRegistry:
    return memory_registry


@pytest.fixture
def source(registry: Registry, tmp_path: Path) -> LogNamespace:
    """A namespace on files, with a log of several segments that hold all bytes, keys and channels."""
    namespace = bound_namespace(registry, tmp_path / "here", "a", config=SMALL)
    fill_log(namespace, "a", 7)
    with namespace.open_writer("a") as writer:
        writer.write(bytes(range(256)), txid=1000, key=b"key", channel="channel")
    return namespace


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk("copied to")


@pytest.fixture
def target(registry: Registry, disk: MemoryDisk) -> LogNamespace:
    LogNamespace.bind("/elsewhere", disk.name, registry=registry, store=MEMORY_STORE)
    return LogNamespace.open("/elsewhere", registry=registry)


def whole(namespace: LogNamespace, log: str, start: DLSN | Time | None = None) -> list[object]:
    with namespace.open_reader(log, start) as reader:
        return list(reader.read(1000))


def directories(disk: MemoryDisk) -> set[str]:
    """The directories of logs."""
    return {name for name in disk.list(".") if disk.is_directory(name)}


def test_every_record_stands_where_it_stood(source: LogNamespace, target: LogNamespace) -> None:
    source.truncate("a", DLSN(2, 1, 0))
    copied = source.copy("a", target)
    assert (copied.segments, copied.bytes) == (len(target.segments("a")), target.info("a").head.bytes)
    assert whole(target, "a") == whole(source, "a")
    for place in (DLSN(2, 1, 0), DLSN(3, 0, 0), Time(0)):
        assert whole(target, "a", place) == whole(source, "a", place)
    assert target.first_dlsn("a") == DLSN(2, 1, 0)
    assert target.inspect("a").metadata_check.findings == ()
    with target.open_writer("a") as writer, source.open_writer("a") as other:
        assert writer.write(b"next").result() == other.write(b"next").result()


@pytest.mark.parametrize("dropped", [False, True])
def test_of_a_compressed_segment_what_readers_open_is_copied(
    source: LogNamespace, target: LogNamespace, dropped: bool
) -> None:
    config = SMALL.model_copy(update={"copy_codec": "zstd", "raw_retention_hours": 0.0 if dropped else 1000.0})
    source.configure("a", config)
    source.compress("a")
    source.purge("a")
    assert any(segment.raw_dropped_ms is not None for segment in source.segments("a")) == dropped
    source.copy("a", target, "b", config=SMALL)
    assert whole(target, "b") == whole(source, "a")
    assert all(segment.compressed is None for segment in target.segments("b"))
    assert target.compress("b", "lz4") == len(target.segments("b"))
    assert whole(target, "b") == whole(source, "a")


def test_a_sealed_an_empty_and_a_truncated_log_stay_so(source: LogNamespace, target: LogNamespace) -> None:
    source.create("empty")
    assert source.copy("empty", target).segments == 0
    assert payloads_read(target, "empty") == []
    source.truncate("a", source.end_dlsn("a"))
    assert source.copy("a", target).segments <= 1
    assert target.count("a") == 0
    with source.open_writer("a") as writer:
        writer.write(b"last")
        writer.mark_end_of_stream()
    source.copy("a", target, "sealed")
    assert target.info("sealed").head.end_of_stream


def test_what_cannot_be_copied_is_refused_and_nothing_is_made(
    source: LogNamespace, target: LogNamespace, disk: MemoryDisk
) -> None:
    with source.open_writer("a") as writer:
        writer.write(b"more").result()
        with pytest.raises(LogBusy, match="scribengin log recover a"):
            source.copy("a", target)
    source.configure("a", SMALL.model_copy(update={"ensemble_size": None}))
    with pytest.raises(ConfigInvalid, match="leave them out"):
        source.copy("a", target, config=SMALL.model_copy(update={"ensemble_size": 3}))
    with pytest.raises(LogNotFound):
        source.copy("none", target)
    path = segment_path(source, "a", 2)
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedEntry):
        source.copy("a", target)
    assert target.names() == []
    assert directories(disk) == set()
    target.create("a")
    with pytest.raises(LogExists, match="choose another name"):
        source.copy("a", target)
    with pytest.raises(LogExists):
        source.copy("a", source)


def test_a_log_that_is_written_while_it_is_copied_is_not(source: LogNamespace, target: LogNamespace) -> None:
    def written(_stop: str) -> None:
        with source.open_writer("a") as writer:
            writer.write(b"late").result()

    with at_failpoint("log.copy_segments:after", written), pytest.raises(LogBusy, match="has changed"):
        source.copy("a", target)
    assert target.names() == []
    source.copy("a", target)
    assert whole(target, "a") == whole(source, "a")


def test_of_two_copies_that_are_made_at_once_the_first_stands_and_the_other_leaves_nothing(
    source: LogNamespace, target: LogNamespace, disk: MemoryDisk
) -> None:
    late_is_ready, first_is_nearly_there, late_has_ended = (threading.Event() for _event in range(3))
    errors: list[Exception] = []

    def copy_late() -> None:
        try:
            source.copy("a", target)
        except LogExists as error:
            errors.append(error)
        finally:
            late_has_ended.set()

    late = threading.Thread(target=copy_late)

    def passed(stop: str) -> None:
        if threading.current_thread() is late and stop == "log.copy_begin:before":
            late_is_ready.set()
            assert first_is_nearly_there.wait(60)
        elif threading.current_thread() is not late and stop == "log.copy_end:before":
            first_is_nearly_there.set()
            assert late_has_ended.wait(60)

    set_hook(passed)
    try:
        late.start()
        assert late_is_ready.wait(60)
        source.copy("a", target)
    finally:
        set_hook(None)
        first_is_nearly_there.set()
        late.join()
    assert len(errors) == 1
    assert whole(target, "a") == whole(source, "a")
    assert len(directories(disk)) == 1


def test_every_stop_is_passed(source: LogNamespace, target: LogNamespace) -> None:
    with record_stops() as passed:
        source.copy("a", target)
    assert [stop for stop in passed if stop.startswith("log.copy_")] == [
        f"log.copy_{name}:{side}" for name in ("begin", "segments", "end") for side in ("before", "after")
    ]
    assert len(STOPS) == 6


@pytest.mark.parametrize("stop", STOPS)
def test_a_copy_that_is_killed_is_whole_or_not_there_and_may_be_made_again(
    source: LogNamespace,
    target: LogNamespace,
    disk: MemoryDisk,
    ensemble: MemoryEnsemble,
    registry: MemoryRegistry,
    stop: str,
) -> None:
    def killed(_stop: str) -> None:
        registry.close()  # it can tidy up nothing
        raise Died

    with pytest.raises(BaseException), at_failpoint(stop, killed):  # noqa: B017,PT011  it dies, however
        source.copy("a", target)
    disk.crash(1)
    with ensemble.connect() as session:
        here = LogNamespace.open("/logs", registry=session)
        there = LogNamespace.open("/elsewhere", registry=session)
        if stop != "log.copy_end:after":
            assert not there.exists("a")
            assert there.names() == []
            here.copy("a", there)
        assert whole(there, "a") == whole(here, "a")
        with there.open_writer("a") as writer:
            writer.write(b"next").result()
        assert payloads_read(there, "a")[-1] == b"next"


@pytest.mark.parametrize("stop", STOPS)
def test_a_reply_that_is_lost_leaves_a_whole_copy_or_none(
    source: LogNamespace, target: LogNamespace, disk: MemoryDisk, stop: str
) -> None:
    def lost(_stop: str) -> None:
        raise OutcomeUnknown("lost")

    with at_failpoint(stop, lost):
        if stop == "log.copy_end:after":
            source.copy("a", target)
        else:
            with pytest.raises(OutcomeUnknown):
                source.copy("a", target)
            assert (target.names(), directories(disk)) == ([], set())
            source.copy("a", target)
    assert whole(target, "a") == whole(source, "a")
