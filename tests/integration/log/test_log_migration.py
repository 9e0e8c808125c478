"""A namespace's logs are moved to another store: the same records at the same places, wherever it is cut short."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from scribengin.base.failpoints import set_hook
from scribengin.base.model import node_name
from scribengin.errors import (
    InconsistentLog,
    LogBusy,
    NamespaceNotBound,
    OwnershipAcquireFailed,
    RecoveryRefused,
    ScribenginError,
    StoreNotMounted,
)
from scribengin.log import DLSN, LogConfig, LogNamespace, Migrated, migrate_namespace
from scribengin.log.retention import migration
from scribengin.testing.failpoints import at_failpoint, record_stops
from scribengin.testing.log_samples import bound_namespace, fill_log, payloads_read
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryEnsemble, MemoryRegistry
from scribengin.testing.memory.segments import MEMORY_STORE
from scribengin.testing.waiting import wait_until
from scribengin_registry.errors import RegistryUnreachable
from tests.dying import Died, die
from tests.registry_copies import restore, saved

SMALL = LogConfig(segment_bytes_max=4096, copy_codec="lz4")
LOGS = ("busy/0", "empty", "sealed")
PATH = "/logs"


class Place:
    """A namespace on one disk, and another disk that it may be moved to."""

    def __init__(self) -> None:
        self.ensemble = MemoryEnsemble()
        self.old, self.new = (MemoryDisk(f"{name} {id(self)}") for name in ("old", "new"))
        self.registry = self.ensemble.connect()
        self.logs = bound_namespace(self.registry, self.old.name, *LOGS, config=SMALL, store=MEMORY_STORE)
        self.records = {log: fill_log(self.logs, log, 5) for log in ("busy/0", "sealed")} | {"empty": []}
        with self.logs.open_writer("sealed") as writer:
            writer.mark_end_of_stream()
        self.logs.compress("busy/0")
        self.logs.truncate("busy/0", DLSN(1, 1, 0))
        del self.records["busy/0"][0]

    def migrate(self, session: MemoryRegistry | None = None, to: MemoryDisk | None = None) -> Migrated:
        where = (to or self.new).name
        return migrate_namespace(PATH, where, registry=session or self.registry, store=MEMORY_STORE, timeout_s=0)

    def opened(self) -> LogNamespace:
        return LogNamespace.open(PATH, registry=self.registry)

    def read(self) -> dict[str, list[bytes]]:
        logs = self.opened()
        return {log: payloads_read_to_end(logs, log) for log in logs.names()}


def payloads_read_to_end(logs: LogNamespace, log: str) -> list[bytes]:
    """All of a log, whether it was sealed or not."""
    end = logs.end_dlsn(log)
    payloads: list[bytes] = []
    with logs.open_reader(log) as reader:
        while reader.position < end:
            payloads += [record.payload for record in reader.read()]
    return payloads


@pytest.fixture
def place() -> Place:
    return Place()


def test_logs_are_read_and_written_in_the_new_place_where_they_were_in_the_old_one(place: Place) -> None:
    segments = place.logs.segments("busy/0")
    moved = place.migrate()
    assert (moved.logs, moved.descriptor.location) == (3, place.new.name)
    assert place.read() == place.records
    logs = place.opened()
    assert logs.segments("busy/0") == segments
    with logs.open_writer("busy/0") as writer:
        assert writer.write(b"more").result(60) > DLSN(segments[-1].segment, 0, 0)
    assert payloads_read(logs, "busy/0") == [*place.records["busy/0"], b"more"]
    assert [found for log in LOGS for report in logs.inspect(log).segments() for found in report.findings] == []
    assert place.migrate().logs == 0, "it is there already"


def test_who_had_opened_it_before_writes_nothing_to_the_old_place(place: Place) -> None:
    place.migrate()
    with pytest.raises(StoreNotMounted):
        place.logs.open_writer("busy/0")
    with pytest.raises(StoreNotMounted):
        place.logs.create("another")
    assert place.read() == place.records


@pytest.fixture
def uncopied(place: Place) -> Place:
    """Of its log `busy/0` no segment has a copy yet, and raw files go once they have one."""
    place.logs.create("plain", LogConfig(segment_bytes_max=4096))
    place.records["plain"] = fill_log(place.logs, "plain", 5)
    place.logs.configure("plain", LogConfig(segment_bytes_max=4096, copy_codec="zstd", raw_retention_hours=0))
    return place


def copies_of(logs: LogNamespace) -> list[bool]:
    return [segment.compressed is not None for segment in logs.segments("plain")]


def test_who_had_opened_it_before_names_no_copy_that_the_new_place_has_not(uncopied: Place) -> None:
    uncopied.migrate()
    with pytest.raises(StoreNotMounted):
        uncopied.logs.compress("plain")
    with pytest.raises(StoreNotMounted):
        uncopied.logs.purge("plain")
    logs = uncopied.opened()
    assert not any(copies_of(logs))
    logs.purge("plain")
    assert uncopied.read() == uncopied.records


def test_a_copy_that_is_named_while_a_namespace_is_moved_is_taken_along(uncopied: Place) -> None:
    def compress(_stop: str) -> None:
        uncopied.logs.compress("plain")
        uncopied.logs.purge("plain")

    with at_failpoint("log.migrate_begin:before", compress):
        uncopied.migrate()
    logs = uncopied.opened()
    assert all(copies_of(logs))
    assert all(segment.raw_dropped_ms is not None for segment in logs.segments("plain"))
    assert uncopied.read() == uncopied.records
    findings = [found for report in logs.inspect("plain").segments() for found in report.findings]
    assert findings == []


def test_a_copy_that_was_about_to_be_named_when_a_namespace_was_moved_is_not(uncopied: Place) -> None:
    """Its maker looked at the old place while that was the namespace's, and is slow to tell the registry."""
    other = LogNamespace.open(PATH, registry=uncopied.ensemble.connect())
    held, moved = threading.Event(), threading.Event()
    failures: list[ScribenginError] = []

    def compress() -> None:
        try:
            other.compress("plain")
        except ScribenginError as error:
            failures.append(error)

    maker = threading.Thread(target=compress)

    def hook(stop: str) -> None:
        if threading.current_thread() is maker and stop == "log.metadata:before" and not held.is_set():
            held.set()
            moved.wait(60)
        elif threading.current_thread() is not maker and stop == "log.migrate_begin:before":
            maker.start()
            assert held.wait(60)
        elif stop == "log.migrate_end:before":
            moved.set()
            maker.join(60)

    set_hook(hook)
    try:
        uncopied.migrate()
    finally:
        set_hook(None)
        moved.set()
    assert [type(failure) for failure in failures] == [StoreNotMounted]
    assert not any(copies_of(uncopied.opened()))
    assert uncopied.read() == uncopied.records


@pytest.mark.parametrize("set_aside", [False, True])
def test_what_the_registry_does_not_name_is_taken_back_before_a_log_is_moved(place: Place, set_aside: bool) -> None:
    """It went back, as to an older backup: records that were acknowledged since are in files that no node names."""
    place.logs.compress("busy/0")
    backup = saved(place.registry)
    with place.logs.open_writer("busy/0") as writer:
        writer.write(b"acknowledged", txid=900).result(60)
    restore(place.registry, backup)
    if set_aside:
        place.logs.open_writer("busy/0").close()
    with pytest.raises(InconsistentLog, match=r"the registry does not name.*scribengin log recover busy/0"):
        place.migrate()
    assert place.opened().descriptor.location == place.old.name
    assert place.logs.recover("busy/0").segments
    place.migrate()
    assert place.read() == {**place.records, "busy/0": [*place.records["busy/0"], b"acknowledged"]}


@pytest.mark.usefixtures("unmaintained")
def test_it_goes_back_as_it_went(place: Place) -> None:
    place.migrate()
    with place.opened().open_writer("empty") as writer:
        writer.write(b"there").result(60)
    assert place.migrate(to=place.old).copied == 1, "the rest is there, and was compared"
    assert place.read() == {**place.records, "empty": [b"there"]}


def test_what_is_written_or_was_left_unfinished_is_not_moved(place: Place) -> None:
    with place.logs.open_writer("busy/0") as writer:
        with pytest.raises(OwnershipAcquireFailed):
            place.migrate()
        writer.write(b"more").result(60)
    dying = place.ensemble.connect()
    abandoned = LogNamespace.open(PATH, registry=dying).open_writer("empty")
    abandoned.write(b"more").result(60)
    abandoned.abort()
    with pytest.raises(LogBusy):
        place.migrate()
    assert place.opened().descriptor.location == place.old.name


def test_a_log_that_is_made_meanwhile_is_taken_along(place: Place) -> None:
    def make(_stop: str) -> None:
        if not place.logs.exists("late"):
            place.logs.create("late")

    with at_failpoint("log.migrate_begin:before", make):
        assert place.migrate().logs == 4
    with place.opened().open_writer("late") as writer:
        writer.write(b"1").result(60)
    assert place.read() == {**place.records, "late": [b"1"]}


def test_a_namespace_that_is_being_moved_is_opened_by_nobody_and_moved_nowhere_else(place: Place) -> None:
    with pytest.raises(Died), at_failpoint("log.unmark:before", die):
        place.migrate(place.ensemble.connect())
    with pytest.raises(NamespaceNotBound, match="--migrate"):
        place.opened()
    with pytest.raises(NamespaceNotBound, match="finish it by"):
        place.migrate(to=MemoryDisk(f"third {id(place)}"))
    place.migrate()
    assert place.read() == place.records


def left_unfinished(place: Place, log: str, logs: LogNamespace) -> None:
    """By a writer that dies behind an acknowledged record, in the old place."""
    writer = logs.open_writer(log)
    writer.write(b"acknowledged").result(60)
    writer.abort()
    assert logs.info(log).head.in_progress
    place.records[log] = [*place.records.get(log, []), b"acknowledged"]


def test_what_was_left_unfinished_while_a_move_lay_cut_short_is_completed_by_its_end(place: Place) -> None:
    """Whoever had opened the namespace before wrote on, since the old place had its token; and nobody opens it now."""
    with pytest.raises(Died), at_failpoint("log.unmark:before", die):
        place.migrate(place.ensemble.connect())
    left_unfinished(place, "empty", place.logs)
    place.migrate()
    assert place.read() == place.records


def test_a_log_that_is_made_meanwhile_and_left_unfinished_is_completed_and_taken_along(place: Place) -> None:
    def make(_stop: str) -> None:
        if not place.logs.exists("late"):
            place.logs.create("late")
            left_unfinished(place, "late", place.logs)

    with at_failpoint("log.migrate_begin:before", make):
        place.migrate()
    assert place.read() == place.records


@pytest.mark.parametrize("stop", ["log.unmark:before", "log.unmark:after", "log.migrate_end:before"])
def test_a_move_that_was_cut_short_is_taken_back_by_a_move_to_where_it_was(place: Place, stop: str) -> None:
    with pytest.raises(Died), at_failpoint(stop, die):
        place.migrate(place.ensemble.connect())
    with pytest.raises(NamespaceNotBound, match=rf"take it back by .*--migrate '?{place.old.name}"):
        place.opened()
    place.migrate(to=place.old)
    assert place.opened().descriptor.location == place.old.name
    assert place.read() == place.records
    with place.opened().open_writer("empty") as writer:
        writer.write(b"more").result(60)
    place.records["empty"].append(b"more")
    place.migrate()
    assert place.read() == place.records


def test_who_ends_a_move_that_a_damaged_log_stops_is_told_to_take_it_back(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the line says to do to the log needs the namespace, which nobody opens."""

    def refuse(*_: object) -> None:
        raise RecoveryRefused("log 'empty': damaged; `log recover` with what is lost")

    with pytest.raises(Died), at_failpoint("log.unmark:before", die):
        place.migrate(place.ensemble.connect())
    left_unfinished(place, "empty", place.logs)
    with monkeypatch.context() as damaged:
        damaged.setattr(migration, "recover_unfinished", refuse)
        with pytest.raises(RecoveryRefused, match=rf"lost\. Nobody opens .* by .*--migrate '?{place.old.name}"):
            place.migrate()
    place.migrate(to=place.old)
    assert place.read() == place.records


def test_who_moves_what_is_taken_back_meanwhile_is_told_and_takes_nothing_from_it(place: Place) -> None:
    def take_back(_stop: str) -> None:
        place.migrate(place.ensemble.connect(), to=place.old)

    with pytest.raises(NamespaceNotBound, match="by somebody else"), at_failpoint("log.migrate_begin:after", take_back):
        place.migrate()
    assert place.read() == place.records
    place.opened().open_writer("busy/0").close()


def test_the_locks_of_a_move_are_given_back_though_the_registry_is_away_when_it_ends(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever moves goes on with the same session, and the locks stay for as long as that."""
    mover = place.ensemble.connect()

    def away(_operations: object) -> None:
        monkeypatch.undo()
        raise RegistryUnreachable("no server answers")

    with at_failpoint("log.migrate_end:after", lambda _stop: monkeypatch.setattr(mover, "commit", away)):
        place.migrate(mover)
    for log in LOGS:
        lock = f"{PATH}/logs/{node_name(log)}/lock"
        wait_until(lambda lock=lock: place.registry.find(lock) is None, what="the lock to go")  # type: ignore[misc]


def stops_of(migrate: Callable[[], object]) -> list[str]:
    with record_stops() as passed:
        migrate()
    return sorted(set(passed))


def test_it_may_be_cut_short_anywhere_and_done_again() -> None:
    stops = stops_of(Place().migrate)
    assert {
        f"log.{name}:{side}" for name in ("migrate_begin", "migrate_end", "unmark") for side in ("before", "after")
    } < {*stops}
    for stop in stops:
        place = Place()
        dying = place.ensemble.connect()
        with pytest.raises(Died), at_failpoint(stop, die):
            place.migrate(dying)
        place.ensemble.expire(dying)
        with suppress(NamespaceNotBound):  # it is being moved: done again, it is there
            assert place.read() == place.records, stop
        place.migrate()
        assert place.read() == place.records, stop
        assert place.opened().descriptor.location == place.new.name
        place.new.crash(0)
        assert place.read() == place.records, f"{stop}: what the power failure left"


def test_a_directory_is_moved_to_another_one(place: Place, tmp_path: Path) -> None:
    registry = place.ensemble.connect("/elsewhere")
    logs = bound_namespace(registry, tmp_path / "old", "a", config=SMALL)
    records = fill_log(logs, "a", 5)
    migrate_namespace(PATH, tmp_path / "new", registry=registry)
    told = r"open the namespace again: its logs may have been moved \(if that ends here, too, mount .* write that token"
    with pytest.raises(StoreNotMounted, match=told):
        logs.open_writer("a")
    assert payloads_read(LogNamespace.open(PATH, registry=registry), "a") == records
