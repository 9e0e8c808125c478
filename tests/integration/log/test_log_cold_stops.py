"""Cold storage that stops half way, or comes late, and what is given up there: no record is lost, no file stays."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scribengin.errors import (
    ConfigInvalid,
    DamagedEntry,
    LogNotFound,
    PositionTruncated,
    RecoveryRefused,
    StoreUnreachable,
)
from scribengin.log import DLSN, LogConfig
from scribengin.log.clients import recover_log
from scribengin.log.retention import offloading
from scribengin.log.retention.offloading import drop_hot_segments
from scribengin.log.write.restored import aside_of
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import (
    fill_log,
    payload_batch,
    payloads_read,
)
from scribengin_registry.errors import RegistryUnreachable
from tests.dying import Stopped, stop_here
from tests.registry_copies import restore, saved
from tests.servers.cold import GRACE_S, HOUR_S, LOG, ColdLog

pytestmark = pytest.mark.usefixtures("unmaintained")

# -- what stops half way


def dying(cold_log: ColdLog) -> Callable[[str], None]:
    """What a failpoint calls: the process dies, and tidies nothing up."""

    def die(_name: str) -> None:
        def refuse(_operation: object) -> None:
            raise Stopped

        cold_log.files.hook = refuse
        raise Stopped

    return die


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(
    "where",
    [
        "log.metadata",
        "log.cold_write",
        "log.cold_index",
        "files.make_directory",
        "files.create",
        "files.append",
        "files.sync",
        "files.close",
        "files.sync_directory",
    ],
)
def test_a_copy_that_is_interrupted_is_made_again(cold_log: ColdLog, where: str, moment: str) -> None:
    payloads = fill_log(cold_log.namespace, LOG, 6, 30)
    with cold_log.namespace.open_writer(LOG) as writer:
        writer.write_bulk(payload_batch([bytes(700_000)] * 3)).result(120)  # long enough for an index
    payloads += [bytes(700_000)] * 3
    cold_log.namespace.configure(LOG, cold_log.config())
    with at_failpoint(f"{where}:{moment}", dying(cold_log)), pytest.raises(Stopped):
        cold_log.namespace.offload(LOG)
    cold_log.files.hook = lambda _operation: None
    assert payloads_read(cold_log.namespace, LOG) == payloads
    cold_log.namespace.offload(LOG)
    cold_log.drop_hot()
    assert (cold_log.hot(), cold_log.cold()) == ([], [1, 2, 3, 4])
    assert payloads_read(cold_log.namespace, LOG) == payloads
    assert cold_log.findings() == []


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_copy_whose_naming_is_interrupted_is_named_or_made_again(cold_log: ColdLog, moment: str) -> None:
    payloads = cold_log.offloaded(3) + cold_log.more(1)
    with at_failpoint(f"log.metadata:{moment}", dying(cold_log)), pytest.raises(Stopped):
        cold_log.namespace.offload(LOG)
    cold_log.files.hook = lambda _operation: None
    assert cold_log.cold() == [1, 2]
    assert (cold_log.namespace.segments(LOG)[1].cold is not None) == (moment == "after")
    cold_log.namespace.offload(LOG)
    cold_log.drop_hot()
    assert (cold_log.hot(), cold_log.cold()) == ([], [1, 2])
    assert payloads_read(cold_log.namespace, LOG) == payloads
    assert cold_log.findings() == []


@pytest.mark.parametrize("seed", range(5))
def test_power_that_fails_in_cold_storage_takes_no_record(cold_log: ColdLog, seed: int) -> None:
    payloads = cold_log.offloaded(3) + cold_log.more(1)
    with at_failpoint("files.sync:before", dying(cold_log)), pytest.raises(Stopped):
        cold_log.namespace.offload(LOG)
    cold_log.files.hook = lambda _operation: None
    cold_log.files.crash(seed)
    cold_log.namespace.offload(LOG)
    cold_log.drop_hot()
    assert (cold_log.hot(), cold_log.cold()) == ([], [1, 2])
    assert payloads_read(cold_log.namespace, LOG) == payloads
    cold_log.files.crash(seed)
    assert payloads_read(cold_log.namespace, LOG) == payloads


@pytest.mark.parametrize("where", ["log.metadata:before", "log.metadata:after", "log.segment_remove:before"])
def test_dropping_what_is_in_the_store_is_finished_after_an_interruption(cold_log: ColdLog, where: str) -> None:
    payloads = cold_log.offloaded()
    cold_log.clock.advance_s(2 * HOUR_S)
    if where.startswith("log.segment_remove"):
        cold_log.namespace.purge(LOG)
        cold_log.clock.advance_s(GRACE_S)
    with at_failpoint(where, dying(cold_log)), pytest.raises(Stopped):
        cold_log.namespace.purge(LOG)
    cold_log.files.hook = lambda _operation: None
    assert payloads_read(cold_log.namespace, LOG) == payloads
    cold_log.drop_hot()
    assert (cold_log.hot(), cold_log.cold()) == ([], [1, 2, 3])
    assert payloads_read(cold_log.namespace, LOG) == payloads


def test_of_two_copies_made_at_once_one_is_named_and_the_other_goes(cold_log: ColdLog) -> None:
    payloads = fill_log(cold_log.namespace, LOG, 3)
    cold_log.namespace.configure(LOG, cold_log.config())
    with at_failpoint("log.cold_write:after", lambda _stop: cold_log.namespace.offload(LOG) and None):
        assert cold_log.namespace.offload(LOG) == 0
    assert cold_log.cold() == [1]
    cold_log.drop_hot()
    assert payloads_read(cold_log.namespace, LOG) == payloads


def test_a_late_maintenance_names_nothing_in_a_log_that_was_made_anew(
    cold_log: ColdLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_log(cold_log.namespace, LOG, 3)
    cold_log.namespace.configure(LOG, cold_log.config())
    before = cold_log.place()

    def made_anew(*_copied: object) -> None:
        cold_log.namespace.delete(LOG)
        cold_log.namespace.create(LOG, LogConfig(segment_bytes_max=4096))
        fill_log(cold_log.namespace, LOG, 3)

    with at_failpoint("log.cold_write:after", made_anew):
        assert cold_log.namespace.offload(LOG) == 0
    cold_log.namespace.configure(LOG, cold_log.config())
    monkeypatch.setattr(offloading, "_keep_indexes", made_anew)  # the last that is done before it is named
    assert cold_log.namespace.offload(LOG) == 0
    (segment,) = cold_log.namespace.segments(LOG)
    assert segment.cold is None
    assert cold_log.namespace.info(LOG).head.cold_places == ()
    assert cold_log.files.names(f"/{before.partition('://')[2]}") == []


def test_a_copy_of_which_nobody_knows_whether_it_was_named_is_kept(cold_log: ColdLog) -> None:
    payloads = cold_log.offloaded(3) + cold_log.more(1)

    def away(_stop: str) -> None:
        raise RegistryUnreachable("the reply is lost")

    with at_failpoint("log.metadata:after", away), pytest.raises(RegistryUnreachable):
        cold_log.namespace.offload(LOG)
    assert cold_log.cold() == [1, 2]
    cold_log.drop_hot()
    assert payloads_read(cold_log.namespace, LOG) == payloads


def test_a_late_maintenance_drops_nothing_that_another_has_taken_back(cold_log: ColdLog) -> None:
    cold_log.offloaded(3)
    cold_log.damage(1, 100)
    cold_log.clock.advance_s(2 * HOUR_S)
    late = cold_log.namespace._metadata(LOG).whole()
    with pytest.raises(DamagedEntry):
        cold_log.namespace.purge(LOG)
    assert cold_log.namespace.offload(LOG) == 1
    namespace, now_ms = cold_log.namespace, cold_log.clock.now_ms()
    with pytest.raises(DamagedEntry):
        drop_hot_segments(namespace._metadata(LOG), namespace._store, late, cold_log.config(), now_ms)
    (segment,) = cold_log.namespace.segments(LOG)
    assert segment.cold is not None
    assert segment.hot_dropped_ms is None


# -- what is given up


def test_purge_and_deletion_take_cold_files_along(cold_log: ColdLog) -> None:
    payloads = cold_log.offloaded()
    cold_log.drop_hot()
    where = f"/{cold_log.place().partition('://')[2]}"
    cold_log.namespace.truncate(LOG, DLSN(3, 1, 0))
    found = cold_log.namespace.purge(LOG)
    assert found.segments == 2
    assert found.bytes > 6000
    assert cold_log.cold() == [3]
    assert payloads_read(cold_log.namespace, LOG) == payloads[7:]
    with pytest.raises(PositionTruncated):
        cold_log.namespace.open_reader(LOG, DLSN(2, 1, 0))
    cold_log.namespace.delete(LOG)
    assert cold_log.files.names(where) == []
    assert not cold_log.namespace.exists(LOG)


def test_retention_holds_for_cold_segments(cold_log: ColdLog) -> None:
    cold_log.offloaded(retention_hours=10)
    cold_log.drop_hot()
    assert cold_log.cold() == [1, 2, 3]
    cold_log.namespace.register_reader(LOG, "slow", DLSN(2, 0, 0))
    cold_log.clock.advance_s(20 * HOUR_S)
    assert cold_log.namespace.purge(LOG).segments == 1
    assert cold_log.cold() == [2, 3]
    cold_log.namespace.unregister_reader(LOG, "slow")
    assert cold_log.namespace.purge(LOG).segments == 2
    assert cold_log.cold() == []


@pytest.mark.parametrize("where", ["log.cold_remove:before", "log.cold_remove:after", "files.remove:after"])
def test_a_purge_that_is_interrupted_leaves_files_and_no_node_without_one(cold_log: ColdLog, where: str) -> None:
    payloads = cold_log.offloaded()
    cold_log.drop_hot()
    cold_log.namespace.truncate(LOG, DLSN(3, 0, 0))
    with at_failpoint(where, dying(cold_log)), pytest.raises(Stopped):
        cold_log.namespace.purge(LOG)
    cold_log.files.hook = lambda _operation: None
    assert payloads_read(cold_log.namespace, LOG) == payloads[6:]
    assert [segment.segment for segment in cold_log.namespace.segments(LOG)] == [3]
    cold_log.namespace.purge(LOG)
    assert cold_log.cold() == [3]
    assert cold_log.findings() == []


@pytest.mark.parametrize("where", ["log.delete:after", "log.cold_remove:before", "log.delete_rest:before"])
def test_a_deletion_that_is_interrupted_is_ended_by_the_next_or_by_who_makes_the_log_anew(
    cold_log: ColdLog, where: str
) -> None:
    cold_log.offloaded()
    cold_log.drop_hot()
    before = f"/{cold_log.place().partition('://')[2]}"
    with at_failpoint(where, dying(cold_log)), pytest.raises(Stopped):
        cold_log.namespace.delete(LOG)
    cold_log.files.hook = lambda _operation: None
    assert not cold_log.namespace.exists(LOG)
    cold_log.namespace.create(LOG)
    assert cold_log.files.names(before) == []
    assert payloads_read(cold_log.namespace, LOG) == []


def test_a_log_whose_cold_storage_is_away_is_gone_at_once_and_its_files_later(cold_log: ColdLog) -> None:
    cold_log.offloaded()
    cold_log.drop_hot()
    before = f"/{cold_log.place().partition('://')[2]}"
    cold_log.files.away = True
    with pytest.raises(StoreUnreachable):
        cold_log.namespace.delete(LOG)
    assert not cold_log.namespace.exists(LOG)
    cold_log.files.away = False
    cold_log.namespace.delete(LOG)
    assert cold_log.files.names(before) == []


def test_recovery_gives_up_no_segment_that_is_cold(cold_log: ColdLog) -> None:
    payloads = cold_log.offloaded()
    cold_log.drop_hot()
    payloads += cold_log.more(2)
    assert cold_log.namespace.inspect(LOG).missing() == []
    assert cold_log.namespace.recover(LOG).given_up == 0
    assert payloads_read(cold_log.namespace, LOG) == payloads


def test_a_log_is_copied_from_cold_storage_into_a_store(cold_log: ColdLog) -> None:
    payloads = cold_log.offloaded()
    cold_log.drop_hot()
    cold_log.namespace.copy(LOG, cold_log.namespace, "copied")
    assert payloads_read(cold_log.namespace, "copied") == payloads
    assert all(segment.cold is None for segment in cold_log.namespace.segments("copied"))
    cold_log.namespace.delete("copied")
    assert payloads_read(cold_log.namespace, LOG) == payloads


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"hot_hours": 1}, "go with cold_url"),
        ({"hot_bytes_max": 1}, "go with cold_url"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(wrong: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigInvalid, match=why):
        LogConfig.parse(wrong, source="test")


@pytest.mark.parametrize("url", ["relative/path", "nothing-opens-this://x", "http://host/path", "cold://x/"])
def test_cold_storage_that_nothing_can_be_kept_in_is_refused(cold_log: ColdLog, url: str) -> None:
    with pytest.raises(ConfigInvalid, match="cold_url"):
        cold_log.namespace.configure(LOG, cold_log.config(cold_url=url))
    with pytest.raises(ConfigInvalid, match="cold_url"):
        cold_log.namespace.create("another", cold_log.config(cold_url=url))


# -- a registry that went back


@pytest.mark.parametrize("moment", ["before the copies", "before the border"])
def test_a_registry_that_went_back_behind_the_border_finds_segments_in_cold_storage(
    cold_log: ColdLog, moment: str
) -> None:
    payloads = fill_log(cold_log.namespace, LOG, 9)
    cold_log.namespace.configure(LOG, cold_log.config())
    backup = saved(cold_log.registry)
    cold_log.namespace.offload(LOG)
    if moment == "before the border":
        backup = saved(cold_log.registry)
    cold_log.drop_hot()
    restore(cold_log.registry, backup)
    assert sum("in cold storage alone" in found for found in cold_log.findings()) == 3
    found = recover_log(cold_log.namespace, LOG)
    assert found is not None
    assert (found.restored.from_cold, found.restored.given_up) == (3, 0)
    assert payloads_read(cold_log.namespace, LOG) == payloads
    cold_log.namespace.purge(LOG)
    assert (cold_log.hot(), cold_log.cold()) == ([], [1, 2, 3])
    assert cold_log.findings() == []
    assert recover_log(cold_log.namespace, LOG) is None


@pytest.mark.parametrize(
    "where",
    ["", "log.segment_create:after", "log.segment_write:before", "log.segment_sync:after", "log.segment_move:before"],
)
def test_a_registry_that_went_back_behind_cold_segments_gets_them_back(cold_log: ColdLog, where: str) -> None:
    payloads = cold_log.offloaded(6)
    backup = saved(cold_log.registry)
    payloads += cold_log.more(2)
    cold_log.namespace.offload(LOG)
    cold_log.drop_hot()
    restore(cold_log.registry, backup)
    assert sum("in cold storage alone" in found for found in cold_log.findings()) == 4
    if where:
        with at_failpoint(where, dying(cold_log), occurrence=2), pytest.raises(Stopped):
            recover_log(cold_log.namespace, LOG)
        cold_log.files.hook = lambda _operation: None
        with cold_log.namespace.open_writer(LOG, steal=True):
            pass
    found = recover_log(cold_log.namespace, LOG, steal=True)
    assert found is not None
    assert found.restored.given_up == 0
    assert payloads_read(cold_log.namespace, LOG) == payloads
    cold_log.namespace.offload(LOG)
    cold_log.drop_hot()
    assert cold_log.hot() == []
    assert sorted(set(cold_log.cold())) == [1, 2, 3, 4]
    assert payloads_read(cold_log.namespace, LOG) == payloads
    assert cold_log.findings() == []


def test_records_that_went_cold_follow_those_that_were_written_since_the_registry_went_back(cold_log: ColdLog) -> None:
    payloads = cold_log.offloaded(3)
    backup = saved(cold_log.registry)
    lost = cold_log.more(2)
    cold_log.namespace.offload(LOG)
    cold_log.drop_hot()
    restore(cold_log.registry, backup)
    since = cold_log.more(1)
    for _ in range(2):
        recover_log(cold_log.namespace, LOG)
        assert payloads_read(cold_log.namespace, LOG) == payloads + since + lost
    cold_log.namespace.offload(LOG)
    cold_log.drop_hot()
    assert recover_log(cold_log.namespace, LOG) is None
    assert payloads_read(cold_log.namespace, LOG) == payloads + since + lost


def test_a_cold_segment_that_does_not_hold_is_neither_named_nor_given_up(cold_log: ColdLog) -> None:
    cold_log.offloaded()
    backup = saved(cold_log.registry)
    cold_log.drop_hot()
    restore(cold_log.registry, backup)
    cold_log.damage(1, 200)
    with pytest.raises(RecoveryRefused, match=r"segment 1 is in cold storage alone.*does not hold"):
        recover_log(cold_log.namespace, LOG)
    assert [segment.segment for segment in cold_log.namespace.segments(LOG)] == [1, 2, 3]
    assert cold_log.cold() == [1, 2, 3]


@pytest.mark.parametrize("a_writer_between", [True, False])
@pytest.mark.parametrize(
    "where",
    [
        "as an older version left it",
        *(f"log.take_back:{moment}" for moment in ("before", "after")),
        *(f"log.segment_create:{moment}" for moment in ("before", "after")),
        *(f"log.segment_write:{moment}" for moment in ("before", "after")),
        *(f"log.segment_sync:{moment}" for moment in ("before", "after")),
        *(f"log.metadata:{moment}" for moment in ("before", "after")),
        "log.segment_remove:before",
        "log.segment_remove:after",
    ],
)
def test_what_is_being_taken_back_beside_a_cold_segment_of_its_number_is_not_lost(
    cold_log: ColdLog, where: str, a_writer_between: bool
) -> None:
    payloads = fill_log(cold_log.namespace, LOG, 6)
    backup = saved(cold_log.registry)
    lost = cold_log.more(1)
    restore(cold_log.registry, backup)
    payloads += cold_log.more(1)  # under the number that `lost` had
    cold_log.namespace.configure(LOG, cold_log.config())
    cold_log.namespace.offload(LOG)
    cold_log.drop_hot()
    assert cold_log.hot() == []
    older = not where.startswith("log.")
    with at_failpoint("log.take_back:before" if older else where, dying(cold_log)), pytest.raises(Stopped):
        cold_log.namespace.recover(LOG)
    cold_log.files.hook = lambda _operation: None
    if older:
        store, directory = cold_log.namespace._store, cold_log.directory()
        (aside,) = store.names(aside_of(directory))
        store.move(aside, aside._replace(directory=directory))
    if a_writer_between:
        with cold_log.namespace.open_writer(LOG, steal=True) as writer:
            writer.write(b"since").result(120)
        cold_log.namespace.purge(LOG)
        payloads.append(b"since")
    assert payloads_read(cold_log.namespace, LOG)[:7] == payloads[:7]
    assert cold_log.namespace.inspect(LOG).unnamed() or payloads_read(cold_log.namespace, LOG).count(lost[0])
    recover_log(cold_log.namespace, LOG, steal=True)
    assert sorted(payloads_read(cold_log.namespace, LOG)) == sorted(payloads + lost)
    cold_log.namespace.offload(LOG)
    cold_log.drop_hot()
    assert cold_log.findings() == []


@pytest.mark.parametrize("swept_before", [True, False])
def test_a_registry_that_went_back_to_a_copy_that_did_not_hold_keeps_the_one_that_does(
    cold_log: ColdLog, swept_before: bool
) -> None:
    payloads = cold_log.offloaded(6)
    backup = saved(cold_log.registry)
    for number in (1, 2):
        cold_log.damage(number, 100)
    cold_log.clock.advance_s(2 * HOUR_S)
    with pytest.raises(DamagedEntry):
        cold_log.namespace.purge(LOG)
    assert cold_log.namespace.offload(LOG) == 2
    if swept_before:
        cold_log.drop_hot()
        assert cold_log.cold() == [1, 2]
    else:  # whoever swept died before it got to what is dead in cold storage
        with at_failpoint("log.cold_remove:before", stop_here), pytest.raises(Stopped):
            cold_log.drop_hot()
        cold_log.clock.advance_s(GRACE_S)
        with at_failpoint("log.cold_remove:before", stop_here), pytest.raises(Stopped):
            cold_log.namespace.purge(LOG)
        assert cold_log.cold() == [1, 1, 2, 2]
    assert cold_log.hot() == []
    restore(cold_log.registry, backup)
    for _ in range(2):
        with pytest.raises((DamagedEntry, LogNotFound)):
            cold_log.namespace.purge(LOG)
    recover_log(cold_log.namespace, LOG)
    assert payloads_read(cold_log.namespace, LOG) == payloads
    cold_log.drop_hot()
    assert payloads_read(cold_log.namespace, LOG) == payloads
    assert cold_log.cold() == [1, 2]
    assert cold_log.findings() == []
