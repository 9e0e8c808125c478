"""Cold storage that is away: a disk that is not mounted, another one in its place. It is never taken for empty."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from scribengin.errors import DamagedEntry, LogNotFound, RecoveryRefused, StoreUnreachable
from scribengin.log import DLSN, LogConfig, LogNamespace
from scribengin.log.clients.repair import recover_log
from scribengin.log.retention.compression import RAW_GRACE_MS
from scribengin.log.store.cold import MARK
from scribengin.testing.clocks import ManualClock
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import bound_namespace, fill_log, payloads_read
from scribengin.testing.memory.files import MemoryFiles
from scribengin.testing.memory.registry import MemoryRegistry
from scribengin_tools.logs.checks import checks
from tests.dying import Stopped, stop_here
from tests.registry_copies import restore, saved
from tests.servers.cold import HOUR_S, LOG, ColdLog

pytestmark = pytest.mark.usefixtures("unmaintained")


def read_from_a_position(namespace: LogNamespace) -> None:
    with namespace.open_reader(LOG, DLSN(2, 1, 0)) as reader:
        reader.read(1)


Work = Callable[[LogNamespace], object]
OPERATIONS: dict[str, Work] = {
    "purge": lambda namespace: namespace.purge(LOG),
    "offload": lambda namespace: namespace.offload(LOG),
    "recover": lambda namespace: namespace.recover(LOG),
    "recover what is missing": lambda namespace: recover_log(namespace, LOG),
    "delete": lambda namespace: namespace.delete(LOG),
    "read": lambda namespace: payloads_read(namespace, LOG),
    "read from a position": read_from_a_position,
}


def half_cold(cold_log: ColdLog) -> list[bytes]:
    """Three segments that are cold alone, one that has a copy, one that has none."""
    payloads = cold_log.offloaded()
    cold_log.drop_hot()
    payloads += cold_log.more(1)
    cold_log.namespace.offload(LOG)
    return payloads + cold_log.more(1)


def unmount(away: AbstractContextManager[MemoryFiles]) -> None:
    """For a failpoint."""
    away.__enter__()


def check_all_there(cold_log: ColdLog, payloads: list[bytes]) -> None:
    """All is read, and goes cold as ever."""
    assert payloads_read(cold_log.namespace, LOG) == payloads
    cold_log.namespace.recover(LOG)
    cold_log.namespace.offload(LOG)
    cold_log.drop_hot()
    assert payloads_read(cold_log.namespace, LOG) == payloads
    assert (cold_log.hot(), cold_log.cold()) == ([], [1, 2, 3, 4, 5])
    assert len(cold_log.marks()) == 1
    assert cold_log.findings() == []


@pytest.mark.parametrize("mount_point", [True, False])
def test_a_directory_that_is_not_mounted_takes_no_record_with_it(
    memory_registry: MemoryRegistry, tmp_path: Path, mount_point: bool
) -> None:
    mount, elsewhere, clock = tmp_path / "mount", tmp_path / "elsewhere", ManualClock()
    mount.mkdir()
    bound_namespace(memory_registry, tmp_path / "hot", "other")
    namespace = LogNamespace.open("/logs", registry=memory_registry, clock=clock)
    namespace.create(LOG, LogConfig(segment_bytes_max=4096, cold_url=str(mount), hot_hours=1))
    payloads = fill_log(namespace, LOG, 9)
    namespace.offload(LOG)
    for wait_s in (2 * HOUR_S, RAW_GRACE_MS / 1000):
        clock.advance_s(wait_s)
        namespace.purge(LOG)
    with namespace.open_writer(LOG) as writer:
        payloads += [b"hot", bytes(5000)]
        for payload in payloads[-2:]:
            writer.write(payload).result(120)
    mount.rename(elsewhere)
    if mount_point:
        mount.mkdir()
    clock.advance_s(2 * HOUR_S)
    for work in ("recover", "recover what is missing", "purge", "offload", "read"):
        with pytest.raises(StoreUnreachable, match=rf"cold storage {mount}/.* is not there.*\{MARK}"):
            OPERATIONS[work](namespace)
    assert not mount_point or list(mount.iterdir()) == []
    if mount_point:
        mount.rmdir()
    elsewhere.rename(mount)
    assert payloads_read(namespace, LOG) == payloads
    namespace.purge(LOG)
    assert payloads_read(namespace, LOG) == payloads


@pytest.mark.parametrize(
    ("work", "older"),
    [(work, older) for work in OPERATIONS for older in (True, False) if work != "delete"],
)
def test_nothing_is_given_up_forgotten_or_made_while_it_is_away(cold_log: ColdLog, work: str, older: bool) -> None:
    payloads = half_cold(cold_log)
    if older:
        cold_log.as_before_marks()
    cold_log.clock.advance_s(2 * HOUR_S)
    before = cold_log.namespace.segments(LOG)
    with cold_log.unmounted() as below:
        for _ in range(2):
            if older and work.startswith("recover"):  # it misses nothing, for what is named as cold is not missed
                OPERATIONS[work](cold_log.namespace)
                continue
            with pytest.raises(StoreUnreachable, match=r"cold storage cold://kept.* is not there"):
                OPERATIONS[work](cold_log.namespace)
        assert below.names("/") == []
    after = cold_log.namespace.segments(LOG)
    assert [segment.cold for segment in after] == [segment.cold for segment in before]
    assert [segment.hot_dropped_ms for segment in after] == [segment.hot_dropped_ms for segment in before]
    check_all_there(cold_log, payloads)


@pytest.mark.parametrize("older", [True, False])
def test_a_log_that_is_deleted_while_it_is_away_leaves_no_file(cold_log: ColdLog, older: bool) -> None:
    half_cold(cold_log)
    if older:
        cold_log.as_before_marks()
    where = cold_log.where()
    with cold_log.unmounted():
        for work in (cold_log.namespace.delete, cold_log.namespace.delete, cold_log.namespace.create):
            with pytest.raises(StoreUnreachable, match="is not there"):
                work(LOG)
    assert not cold_log.namespace.exists(LOG)
    cold_log.namespace.create(LOG)
    assert cold_log.files.names(where) == []


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("older", [True, False])
@pytest.mark.parametrize("where", ["log.cold_mark", "log.cold_emptied", "log.cold_unmark", "log.delete_rest"])
def test_a_deletion_that_is_interrupted_knows_what_it_has_emptied(
    cold_log: ColdLog, where: str, moment: str, older: bool
) -> None:
    half_cold(cold_log)
    if older:
        cold_log.as_before_marks()
    place = cold_log.where()
    if where == "log.cold_mark" and not older:
        cold_log.namespace.delete(LOG)
    else:
        with at_failpoint(f"{where}:{moment}", stop_here), pytest.raises(Stopped):
            cold_log.namespace.delete(LOG)
    if any(name.endswith(".log") for name in cold_log.files.names(place)):
        with cold_log.unmounted(), pytest.raises(StoreUnreachable):
            cold_log.namespace.create(LOG)
    cold_log.namespace.create(LOG)
    assert cold_log.files.names(place) == []


def test_what_goes_away_while_a_log_is_deleted_keeps_its_nodes(cold_log: ColdLog) -> None:
    half_cold(cold_log)
    where = cold_log.where()
    away = cold_log.unmounted()
    with (
        at_failpoint("log.cold_remove:before", lambda _stop: unmount(away), occurrence=2),
        pytest.raises(StoreUnreachable),
    ):
        cold_log.namespace.delete(LOG)
    away.__exit__(None, None, None)
    cold_log.namespace.create(LOG)
    assert cold_log.files.names(where) == []


def test_a_disk_that_another_log_was_copied_to_is_not_the_place(cold_log: ColdLog) -> None:
    payloads = half_cold(cold_log)
    where = cold_log.where()
    with cold_log.unmounted() as other:
        other.put(f"{where}/{MARK}0123456789ab", b"")
        cold_log.clock.advance_s(2 * HOUR_S)
        for work in ("purge", "offload", "recover"):
            with pytest.raises(StoreUnreachable, match=f"should hold the file {MARK}(?!0123456789ab)"):
                OPERATIONS[work](cold_log.namespace)
    check_all_there(cold_log, payloads)


def test_a_person_who_makes_the_mark_that_is_missing_is_believed(cold_log: ColdLog) -> None:
    payloads = half_cold(cold_log)
    (mark,) = cold_log.marks()
    cold_log.files.remove(f"{cold_log.where()}/{MARK}{mark}")
    with pytest.raises(StoreUnreachable, match="make that file in it") as raised:
        cold_log.namespace.purge(LOG)
    assert f"{MARK}{mark}" in str(raised.value)
    cold_log.files.create(f"{cold_log.where()}/{MARK}{mark}").close()
    check_all_there(cold_log, payloads)


@pytest.mark.parametrize("work", ["recover", "delete"])
def test_a_place_that_is_gone_for_good_is_given_up_by_the_command_that_the_error_names(
    memory_registry: MemoryRegistry, tmp_path: Path, work: str
) -> None:
    cold, clock = tmp_path / "cold disk", ManualClock()
    bound_namespace(memory_registry, tmp_path / "hot", "other")
    namespace = LogNamespace.open("/logs", registry=memory_registry, clock=clock)
    namespace.create(LOG, LogConfig(segment_bytes_max=4096, cold_url=str(cold), hot_hours=1))
    fill_log(namespace, LOG, 9)
    namespace.offload(LOG)
    for wait_s in (2 * HOUR_S, RAW_GRACE_MS / 1000):
        clock.advance_s(wait_s)
        namespace.purge(LOG)
    with namespace.open_writer(LOG) as writer:
        writer.write(b"hot").result(120)
    shutil.rmtree(cold)
    with pytest.raises(StoreUnreachable, match=r"gone for good .*`scribengin log inspect`.* make that file") as raised:
        OPERATIONS[work](namespace)
    if work == "recover":
        (check,) = checks(namespace, [LOG], None, bodies=False)
        assert [report.segment.hot_dropped_ms is not None for report in check.segments] == [True, True, True, False]
    command = re.search(r"make that file in it: `([^`]*)`", str(raised.value))
    assert command is not None
    subprocess.run(command[1], shell=True, check=True)
    if work == "recover":
        OPERATIONS[work](namespace)
        with pytest.raises(DamagedEntry, match="truncate the log behind it"):
            payloads_read(namespace, LOG)
        namespace.truncate(LOG, DLSN(4, 0, 0))
        namespace.purge(LOG)
        assert payloads_read(namespace, LOG) == [b"hot"]
    else:
        namespace.create(LOG)
        assert payloads_read(namespace, LOG) == []


# -- how a place gets its mark


@pytest.mark.parametrize("maintained_by", ["purge", "offload"])
def test_a_place_that_was_used_before_there_were_marks_gets_one(cold_log: ColdLog, maintained_by: str) -> None:
    payloads = half_cold(cold_log)
    cold_log.as_before_marks()
    assert payloads_read(cold_log.namespace, LOG) == payloads
    assert cold_log.namespace.recover(LOG).given_up == 0
    OPERATIONS[maintained_by](cold_log.namespace)
    (mark,) = cold_log.marks()
    assert cold_log.namespace.info(LOG).head.cold_tokens == {cold_log.place(): mark}
    check_all_there(cold_log, payloads)


@pytest.mark.parametrize(
    "seed", [0, 1, pytest.param(2, marks=pytest.mark.full), pytest.param(3, marks=pytest.mark.full)]
)
@pytest.mark.parametrize(
    ("where", "occurrence"),
    [
        *((f"log.metadata:{moment}", number) for moment in ("before", "after") for number in (1, 2)),
        *((f"log.cold_mark:{moment}", 1) for moment in ("before", "after")),
        *((f"files.{name}:{moment}", 1) for name in ("create", "append", "sync") for moment in ("before", "after")),
        *((f"files.sync_directory:{moment}", number) for moment in ("before", "after") for number in (1, 2, 3)),
    ],
)
def test_who_dies_while_a_place_is_marked_harms_nothing(
    cold_log: ColdLog, where: str, occurrence: int, seed: int
) -> None:
    payloads = fill_log(cold_log.namespace, LOG, 15)
    cold_log.namespace.configure(LOG, cold_log.config())
    with at_failpoint(where, stop_here, occurrence=occurrence), pytest.raises(Stopped):
        cold_log.namespace.offload(LOG)
    if seed:
        cold_log.files.crash(seed)
    assert payloads_read(cold_log.namespace, LOG) == payloads
    assert cold_log.namespace.recover(LOG).given_up == 0
    cold_log.namespace.offload(LOG)
    cold_log.files.crash(seed)
    check_all_there(cold_log, payloads)
    place = cold_log.where()
    cold_log.namespace.delete(LOG)
    assert cold_log.files.names(place) == []


def test_of_two_who_mark_a_place_at_once_one_counts(cold_log: ColdLog) -> None:
    payloads = fill_log(cold_log.namespace, LOG, 15)
    cold_log.namespace.configure(LOG, cold_log.config())

    def another(_stop: str) -> None:
        cold_log.files.remove(f"{cold_log.where()}/{MARK}{cold_log.marks()[0]}")  # as if both had looked before
        cold_log.namespace.offload(LOG)

    with at_failpoint("log.cold_mark:after", another):
        cold_log.namespace.offload(LOG)
    check_all_there(cold_log, payloads)


def test_a_mark_of_a_log_that_is_deleted_meanwhile_goes(cold_log: ColdLog) -> None:
    fill_log(cold_log.namespace, LOG, 3)
    cold_log.namespace.configure(LOG, cold_log.config())
    place = cold_log.where()
    with at_failpoint("log.cold_mark:before", lambda _stop: cold_log.namespace.delete(LOG)):
        assert cold_log.namespace.offload(LOG) == 0
    assert cold_log.files.names(place) == []


@pytest.mark.parametrize("stop", ["log.cold_write:before", "log.cold_write:after"])
def test_a_copy_of_a_log_that_is_deleted_while_it_is_made_goes(cold_log: ColdLog, stop: str) -> None:
    """The deletion has emptied the place by then, and nobody looks there again."""
    cold_log.offloaded()
    cold_log.more(1)
    place = cold_log.where()
    with at_failpoint(stop, lambda _stop: cold_log.namespace.delete(LOG)):
        assert cold_log.namespace.offload(LOG) == 0
    assert cold_log.files.names(place) == []


def test_cold_storage_that_goes_away_while_a_copy_is_made_gets_no_directory(cold_log: ColdLog) -> None:
    payloads = half_cold(cold_log)
    away = cold_log.unmounted()
    with (
        at_failpoint("log.cold_write:before", lambda _stop: unmount(away)),
        pytest.raises(StoreUnreachable, match="is not there"),
    ):
        cold_log.namespace.offload(LOG)
    with pytest.raises(StoreUnreachable, match="is not there"):
        cold_log.namespace.recover(LOG)
    away.__exit__(None, None, None)
    check_all_there(cold_log, payloads)


# -- a registry that went back


@pytest.mark.parametrize("moment", ["before it was configured", "before the copies", "before the border"])
def test_a_registry_that_went_back_gives_up_nothing_that_may_be_cold(cold_log: ColdLog, moment: str) -> None:
    payloads = fill_log(cold_log.namespace, LOG, 9)
    backup = saved(cold_log.registry)
    cold_log.namespace.configure(LOG, cold_log.config())
    if moment == "before the copies":
        backup = saved(cold_log.registry)
    cold_log.namespace.offload(LOG)
    if moment == "before the border":
        backup = saved(cold_log.registry)
    cold_log.drop_hot()
    payloads += cold_log.more(2)
    restore(cold_log.registry, backup)
    payloads_since = [b"since"]
    with cold_log.namespace.open_writer(LOG) as writer:
        writer.write(b"since").result(120)
    cold_log.namespace.configure(LOG, cold_log.config())
    with cold_log.unmounted() as below:
        for _ in range(2):
            with pytest.raises((RecoveryRefused, StoreUnreachable), match=r"cold storage cold://kept.* is not there"):
                cold_log.namespace.recover(LOG)
            with pytest.raises((LogNotFound, StoreUnreachable)):
                cold_log.namespace.offload(LOG)
            assert below.names("/") == []
    found = recover_log(cold_log.namespace, LOG)
    assert found is not None
    assert found.restored.given_up == 0
    assert payloads_read(cold_log.namespace, LOG) == payloads[:9] + payloads_since + payloads[9:]


def test_a_place_that_was_never_used_is_not_taken_for_one_that_is_empty_unless_somebody_says_so(
    cold_log: ColdLog,
) -> None:
    payloads = fill_log(cold_log.namespace, LOG, 12)
    cold_log.namespace.configure(LOG, cold_log.config())
    backup = saved(cold_log.registry)
    cold_log.namespace.truncate(LOG, DLSN(3, 0, 0))
    cold_log.namespace.purge(LOG)
    restore(cold_log.registry, backup)
    with pytest.raises(RecoveryRefused, match=r"of segments 1 to 2, and they are not given up.*make that file in it"):
        recover_log(cold_log.namespace, LOG)
    assert [segment.segment for segment in cold_log.namespace.segments(LOG)] == [1, 2, 3, 4]
    cold_log.files.put(f"{cold_log.where()}/{MARK}0123456789ab", b"")
    found = recover_log(cold_log.namespace, LOG)
    assert found is not None
    assert found.restored.given_up == 2
    assert payloads_read(cold_log.namespace, LOG) == payloads[6:]
    cold_log.namespace.offload(LOG)
    assert cold_log.marks() == ["0123456789ab"]


# -- a place that is in no use any more


def test_a_place_that_no_segment_is_in_any_more_may_go(cold_log: ColdLog) -> None:
    cold_log.offloaded()
    cold_log.drop_hot()
    cold_log.namespace.configure(LOG, LogConfig(segment_bytes_max=4096))
    cold_log.more(2)
    with cold_log.unmounted(), pytest.raises(StoreUnreachable):
        cold_log.namespace.purge(LOG)
    cold_log.namespace.truncate(LOG, DLSN(4, 0, 0))
    with cold_log.unmounted():
        assert cold_log.namespace.purge(LOG).segments == 3
        cold_log.namespace.purge(LOG)
    assert cold_log.cold() == [1, 2, 3]
    cold_log.namespace.purge(LOG)
    assert cold_log.cold() == []
