"""Positions that outlive their reader: the stores, and readers that start where they were."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from scribengin.errors import (
    DescriptorUnreadable,
    EndOfStream,
    LogError,
    LogWriteFailed,
    OwnershipAcquireFailed,
    PositionTruncated,
    ReaderBehind,
)
from scribengin.log import DLSN, LogConfig, LogNamespace, TransactionId
from scribengin.log.clients import (
    FileOffsetStore,
    LogOffset,
    MultiReader,
    OffsetStore,
    RegistryOffsetStore,
    StoredReader,
    rewind,
)
from scribengin.testing.clocks import ManualClock
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import bound_namespace, fill_log, payload_batch, payloads_left, payloads_of
from scribengin_registry.contract import Registry

LOG, OTHER = "clicks/0", "clicks/1"
AT = LogOffset(directory="clicks-1", position=DLSN(2, 5, 1))
LATER = LogOffset(directory="clicks-1", position=DLSN(3, 0, 0))
MakeStore = Callable[[Registry, Path], OffsetStore]


def in_files(_registry: Registry, directory: Path) -> OffsetStore:
    return FileOffsetStore(directory / "offsets" / "deeper")


def in_registry(registry: Registry, _directory: Path) -> OffsetStore:
    return RegistryOffsetStore(registry, "/offsets/deeper")


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    return bound_namespace(registry, tmp_path / "store", LOG, OTHER)


@pytest.fixture(params=[in_files, in_registry])
def store(request: pytest.FixtureRequest, registry: Registry, tmp_path: Path) -> OffsetStore:
    make: MakeStore = request.param
    return make(registry, tmp_path)


def written(namespace: LogNamespace, log: str, *payloads: bytes) -> None:
    with namespace.open_writer(log) as writer:
        for payload in payloads:
            writer.write_bulk(payload_batch([payload])).result(120)


def payloads(reader: StoredReader, batches: int) -> list[bytes]:
    found = [reader.read_batch(timeout_s=120) for _ in range(batches)]
    return [payload for batch in found if batch is not None for payload in payloads_of(batch)]


def test_a_store_gives_back_what_was_stored_last_for_each_reader(store: OffsetStore) -> None:
    assert store.load("billing") == {}
    store.store("billing", {LOG: AT})
    store.store("a/../b", {OTHER: AT})
    store.store("billing", {LOG: LATER, OTHER: AT})
    assert store.load("billing") == {LOG: LATER, OTHER: AT}
    assert store.load("a/../b") == {OTHER: AT}
    store.store("billing", {})
    assert store.load("billing") == {}
    store.delete("a/../b")
    store.delete("a/../b")
    assert store.load("a/../b") == {}


def test_what_is_stored_can_be_read_and_edited(registry: Registry, tmp_path: Path) -> None:
    FileOffsetStore(tmp_path / "offsets").store("billing", {LOG: AT})
    path = tmp_path / "offsets" / "billing.json"
    assert '"position": "2/5/1"' in path.read_text()
    path.write_text(path.read_text().replace("2/5/1", AT.position.to_base64()))
    assert FileOffsetStore(tmp_path / "offsets").load("billing") == {LOG: AT}
    path.write_text("{}")
    with pytest.raises(DescriptorUnreadable, match=r"billing\.json does not hold"):
        FileOffsetStore(tmp_path / "offsets").load("billing")
    registry.create("/offsets/billing", b"nonsense", parents=True)
    with pytest.raises(DescriptorUnreadable, match="/offsets/billing"):
        RegistryOffsetStore(registry, "/offsets/").load("billing")


@pytest.mark.parametrize("stop", ["write:before", "write:after", "rename:before", "rename:after"])
def test_a_crash_while_a_position_is_stored_leaves_the_old_one_or_the_new_one(tmp_path: Path, stop: str) -> None:
    store = FileOffsetStore(tmp_path)
    store.store("billing", {LOG: AT})
    with at_failpoint(f"log.offsets_{stop}", _crash), pytest.raises(_Crashed):
        store.store("billing", {LOG: LATER})
    again = FileOffsetStore(tmp_path)
    assert again.load("billing") == {LOG: LATER if stop == "rename:after" else AT}
    again.store("billing", {LOG: LATER})
    assert again.load("billing") == {LOG: LATER}


def test_a_disk_that_refuses_is_reported_and_leaves_nothing_behind(tmp_path: Path) -> None:
    store = FileOffsetStore(tmp_path)

    def full(_stop: str) -> None:
        raise OSError(28, "No space left on device")

    with at_failpoint("log.offsets_rename:before", full), pytest.raises(LogWriteFailed, match="No space left"):
        store.store("billing", {LOG: AT})
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(LogWriteFailed, match="cannot make the directory"):
        FileOffsetStore(tmp_path / "file" / "offsets")


@pytest.mark.parametrize(
    ("act", "what"),
    [
        (lambda store: store.load("billing"), "read"),
        (lambda store: store.delete("billing"), "delete"),
        (lambda store: store.store("billing", {LOG: AT}), "store"),
    ],
)
def test_a_position_that_the_disk_refuses_is_told_in_one_line(
    tmp_path: Path, act: Callable[[OffsetStore], object], what: str
) -> None:
    store = FileOffsetStore(tmp_path)
    (tmp_path / "billing.json").mkdir()
    with pytest.raises(LogError, match=rf"cannot {what} the position of 'billing' in .*/billing\.json: "):
        act(store)
    assert [path.name for path in tmp_path.iterdir()] == ["billing.json"]


def test_a_reader_starts_where_it_was_and_a_crashed_one_reads_again_what_it_had_not_committed(
    namespace: LogNamespace, store: OffsetStore
) -> None:
    written(namespace, LOG, b"0", b"1", b"2", b"3", b"4")
    with StoredReader(namespace, [LOG], "billing", store) as reader:
        assert payloads(reader, 2) == [b"0", b"1"]
    with StoredReader(namespace, [LOG], "billing", store) as reader:  # a clean end: nothing comes twice
        assert payloads(reader, 1) == [b"2"]
    reader = StoredReader(namespace, [LOG], "billing", store)
    assert payloads(reader, 1) == [b"3"]
    reader.commit()
    assert payloads(reader, 1) == [b"4"]
    reader.abort()  # as a crash: what came after the commit comes again
    with pytest.raises(ZeroDivisionError):
        _fail_after_reading(StoredReader(namespace, [LOG], "billing", store), b"4")
    with StoredReader(namespace, [LOG], "billing", store) as reader:
        assert payloads(reader, 1) == [b"4"]
        assert reader.read_batch() is None
    with StoredReader(namespace, [LOG], "another", store) as reader:
        assert payloads(reader, 1) == [b"0"]


def test_positions_are_stored_every_so_many_seconds_or_records_and_only_of_what_was_processed(
    namespace: LogNamespace, store: OffsetStore
) -> None:
    written(namespace, LOG, b"0", b"1", b"2", b"3", b"4", b"5")
    clock = ManualClock()

    def stored() -> DLSN | None:
        at = store.load("billing").get(LOG)
        return None if at is None else at.position

    reader = StoredReader(namespace, [LOG], "billing", store, commit_s=10, commit_records=3, clock=clock)
    payloads(reader, 2)
    assert stored() is None
    clock.advance_s(10)
    assert stored() is None
    payloads(reader, 1)  # the two before are processed, since the caller came back
    assert stored() == DLSN(1, 2, 0)
    payloads(reader, 2)
    assert stored() == DLSN(1, 2, 0)
    payloads(reader, 1)
    assert stored() == DLSN(1, 5, 0)
    reader.abort()
    assert stored() == DLSN(1, 5, 0)


def test_the_position_stands_in_the_middle_of_an_entry_if_the_reader_does(
    namespace: LogNamespace, store: OffsetStore
) -> None:
    with namespace.open_writer(LOG) as writer:
        writer.write_bulk(payload_batch([b"0", b"1", b"2"])).result(120)
    with StoredReader(namespace, [LOG], "billing", store) as reader:
        assert payloads_of(reader.read_batch(2)) == [b"0", b"1"]
    with StoredReader(namespace, [LOG], "billing", store) as reader:
        assert payloads(reader, 1) == [b"2"]


def test_several_logs_have_their_positions_stored_together_and_those_left_out_are_kept(
    namespace: LogNamespace, store: OffsetStore
) -> None:
    written(namespace, LOG, b"a", b"b")
    written(namespace, OTHER, b"c", b"d")
    with StoredReader(namespace, [LOG, OTHER], "billing", store, wait_s=0) as reader:
        assert len(payloads(reader, 2)) >= 2
        positions = reader.positions
    assert {log: at.position for log, at in store.load("billing").items()} == positions
    written(namespace, LOG, b"e")
    with StoredReader(namespace, [LOG], "billing", store) as reader:
        while reader.read_batch() is not None:
            pass
    assert store.load("billing")[LOG].position > positions[LOG]
    assert store.load("billing")[OTHER].position == positions[OTHER]


def test_a_log_that_was_created_again_is_read_from_its_beginning(namespace: LogNamespace, store: OffsetStore) -> None:
    written(namespace, LOG, b"old 0", b"old 1")
    with StoredReader(namespace, [LOG], "billing", store) as reader:
        payloads(reader, 1)
    namespace.delete(LOG)
    namespace.create(LOG)
    written(namespace, LOG, b"new 0", b"new 1")
    with StoredReader(namespace, [LOG], "billing", store) as reader:
        assert payloads(reader, 2) == [b"new 0", b"new 1"]


def test_the_end_of_a_sealed_log_is_stored(namespace: LogNamespace, store: OffsetStore) -> None:
    with namespace.open_writer(LOG) as writer:
        writer.write(b"last")
        writer.mark_end_of_stream()
    for expected in ([b"last"], []):
        reader = StoredReader(namespace, [LOG], "billing", store)
        assert payloads(reader, len(expected)) == expected
        with pytest.raises(EndOfStream):
            reader.read_batch()
        reader.abort()


def test_a_position_that_was_truncated_is_refused(registry: Registry, tmp_path: Path, store: OffsetStore) -> None:
    namespace = bound_namespace(registry, tmp_path / "store", LOG, config=LogConfig(segment_bytes_max=4096))
    fill_log(namespace, LOG, 9)
    with StoredReader(namespace, [LOG], "billing", store) as reader:
        payloads(reader, 1)
    namespace.truncate(LOG, DLSN(3, 0, 0))
    with pytest.raises(PositionTruncated):
        StoredReader(namespace, [LOG], "billing", store)
    store.delete("billing")
    with StoredReader(namespace, [LOG], "billing", store) as reader:
        assert reader.read_batch() is not None


def test_a_registered_reader_holds_truncation_back_until_it_has_stored_its_position(
    registry: Registry, tmp_path: Path, store: OffsetStore
) -> None:
    namespace = bound_namespace(registry, tmp_path / "store", LOG, config=LogConfig(segment_bytes_max=4096))
    fill_log(namespace, LOG, 9)
    with StoredReader(namespace, [LOG], "billing", store, register=True) as reader:
        payloads(reader, 4)
        with pytest.raises(ReaderBehind, match="billing"):
            namespace.truncate(LOG, DLSN(2, 0, 0))
        reader.commit()
        assert namespace.registered_readers(LOG) == {"billing": reader.positions[LOG]}
        assert namespace.truncate(LOG, DLSN(2, 0, 0))
    with StoredReader(namespace, [LOG], "billing", store, register=True) as reader:
        assert len(payloads(reader, 5)) == 5
    namespace.unregister_reader(LOG, "billing")
    assert namespace.truncate(LOG, namespace.end_dlsn(LOG))


def test_of_two_readers_with_one_name_only_one_reads_if_they_subscribe(
    namespace: LogNamespace, store: OffsetStore
) -> None:
    with StoredReader(namespace, [LOG, OTHER], "billing", store, subscriber="billing"):
        with pytest.raises(OwnershipAcquireFailed):
            StoredReader(namespace, [OTHER], "billing", store, subscriber="billing", timeout_s=0.05)
        StoredReader(namespace, [OTHER], "audit", store, subscriber="audit", timeout_s=0.05).close()
    StoredReader(namespace, [OTHER], "billing", store, subscriber="billing", timeout_s=0.05).close()


def test_a_store_that_fails_leaves_the_reader_as_it_was(namespace: LogNamespace, tmp_path: Path) -> None:
    written(namespace, LOG, b"0", b"1")
    store = FileOffsetStore(tmp_path / "offsets")
    reader = StoredReader(namespace, [LOG], "billing", store, commit_records=1)
    payloads(reader, 1)

    def full(_stop: str) -> None:
        raise OSError(28, "No space left on device")

    with at_failpoint("log.offsets_write:before", full), pytest.raises(LogWriteFailed):
        reader.read_batch()
    assert payloads(reader, 1) == [b"1"]
    reader.close()
    assert store.load("billing")[LOG].position == DLSN(1, 2, 0)


def test_rewinding_starts_so_many_seconds_back(namespace: LogNamespace, registry: Registry) -> None:
    clock = ManualClock()
    with LogNamespace.open(namespace.path, registry=registry, clock=clock) as dated:
        with dated.open_writer(LOG) as writer:
            for n in range(10):
                writer.write(b"%d" % n).result(120)
                clock.advance_s(60)
        with rewind(namespace, LOG, 180, clock=clock) as reader:
            assert payloads_left(reader) == [b"7", b"8", b"9"]
        with rewind(namespace, LOG, 10_000, clock=clock) as reader:
            assert len(payloads_left(reader)) == 10
        with rewind(namespace, LOG, 0, clock=clock) as reader:
            assert reader.read(1) == []


def test_rewound_readers_start_several_logs_at_one_time(namespace: LogNamespace) -> None:
    for log in (LOG, OTHER):
        with namespace.open_writer(log) as writer:
            for txid in range(10):
                writer.write(b"%d" % txid, txid=txid)
            writer.mark_end_of_stream()
    start = {log: TransactionId(8) for log in (LOG, OTHER)}
    with MultiReader(namespace, [LOG, OTHER], start=start) as reader:
        batch = reader.read_batch(timeout_s=120)
    assert batch is not None
    assert payloads_of(batch)[0] == b"8"


class _Crashed(BaseException):
    """Stands for the end of the process at a stop: nothing catches it."""


def _crash(_stop: str) -> None:
    raise _Crashed


def _fail_after_reading(reader: StoredReader, expected: bytes) -> None:
    with reader:
        assert payloads(reader, 1) == [expected]
        raise ZeroDivisionError
