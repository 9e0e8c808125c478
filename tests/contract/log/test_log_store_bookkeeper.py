"""The store of BookKeeper keeps what every segment store promises, on real bookies; and what only it has."""

from __future__ import annotations

import pickle
import uuid
from pathlib import Path

import pytest

from scribengin.base.threads import background
from scribengin.errors import ConfigInvalid, Fenced, LogNotFound, LogWriteFailed, StoreNotMounted, StoreUnreachable
from scribengin.log.config import LedgerCopies
from scribengin.log.store.bookkeeper import client
from scribengin.log.store.bookkeeper.store import BookKeeperSegmentStore
from scribengin.log.store.contract import SegmentName
from scribengin.log.store.opening import open_store, store_kind
from scribengin.testing.conformance.segments import SEGMENT_STORE_CHECKS, Check, Stopped, Writing, entries_in, stop
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import records_entry
from scribengin.testing.waiting import wait_until
from scribengin_dev.servers.bookkeeper import BookKeeperServers

LOG = "a-log"
NAME = SegmentName(LOG, 1, 1)


@pytest.fixture
def location(bookkeeper: BookKeeperServers) -> str:
    """A place of the test's own."""
    return bookkeeper.log_location(f"logs-{uuid.uuid4().hex}")


@pytest.fixture
def store(location: str) -> BookKeeperSegmentStore:
    """One with a log."""
    made = BookKeeperSegmentStore(location, store_kind("bk").prepare(location))
    made.create_log(LOG)
    return made


@pytest.mark.parametrize("check", SEGMENT_STORE_CHECKS, ids=lambda check: check.__name__)
def test_a_segment_store_on_bookkeeper_keeps_its_promises(check: Check, store: BookKeeperSegmentStore) -> None:
    check(store, LOG)


def test_what_was_acknowledged_is_in_the_segment_that_another_writer_has_fenced(
    store: BookKeeperSegmentStore, location: str
) -> None:
    writing = Writing(store.create(NAME, fsync=True))
    for count in range(1, 6):
        writing.append(records_entry([b"x" * 1000] * count))
    acknowledged = writing.at
    writing.write(records_entry([b"in flight"]))
    BookKeeperSegmentStore(location).fence(NAME)
    view = store.open(NAME)
    assert view.size() >= acknowledged.end
    assert entries_in(view, acknowledged.end) == acknowledged.entries
    with pytest.raises(Fenced, match="another writer owns the log"):
        writing.late()


def test_a_writer_that_was_fenced_says_so_though_its_client_has_closed_the_ledger_by_then(
    store: BookKeeperSegmentStore, location: str
) -> None:
    appender = store.create(NAME, fsync=True)
    writing = Writing(appender)
    writing.append(records_entry([b"acknowledged"]))
    BookKeeperSegmentStore(location).fence(NAME)
    writing.write(records_entry([b"in flight"]))
    [(in_flight, _)] = appender._log._adding
    wait_until(in_flight.isDone, 30, "the bookies refuse what is in flight")
    for _ in range(2):
        with pytest.raises(Fenced, match="another writer owns the log"):
            writing.late()


def test_any_bytes_of_a_segment_of_many_entries_are_found(store: BookKeeperSegmentStore) -> None:
    writing = Writing(store.create(NAME, fsync=True))
    for number in range(300):
        writing.write(records_entry([b"%d" % number * (1 + number % 7 * 100)]))
    writing.append(records_entry([bytes(3 << 20)]))  # more than an entry of a ledger may have
    whole = store.open(NAME).read(0, writing.at.end).to_pybytes()
    assert len(whole) == writing.at.end
    for offset in range(0, writing.at.end, 400_009):
        assert store.open(NAME).read(offset, 100).to_pybytes() == whole[offset : offset + 100]
    view = store.open(NAME)
    for offset in (len(whole) - 10, 5, 2_000_000, 70_001, 70_000):
        assert view.read(offset, 3_000).to_pybytes() == whole[offset : offset + 3_000]


def test_a_place_is_sent_to_another_process(store: BookKeeperSegmentStore) -> None:
    writing = Writing(store.create(NAME, fsync=True))
    writing.append(records_entry([b"x"]))
    place = store.location(NAME)
    writing.appender.close()
    assert pickle.loads(pickle.dumps(place)).open().read(0, 10_000).size == writing.at.end


def test_a_segment_says_which_bookies_have_it(store: BookKeeperSegmentStore) -> None:
    store.create(NAME, fsync=True).close()
    assert len(store.machines(NAME)) == 3
    with pytest.raises(LogNotFound, match="is gone"):
        store.machines(SegmentName(LOG, 2, 1))


def test_who_waits_for_the_tail_is_told_by_the_bookies(store: BookKeeperSegmentStore) -> None:
    writing = Writing(store.create(NAME, fsync=True))
    for _ in range(2):
        writing.append(records_entry([b"x"]))
    reader = store._ledgers.open(store._nodes.find(NAME).log)  # type: ignore[union-attr]
    assert reader.await_confirmed(-1, 10) == 0
    assert reader.await_confirmed(0, 0.05) == 0
    told: list[int] = []
    waiting = background("waits", lambda: told.append(reader.await_confirmed(0, 60)))
    waiting.start()
    writing.append(records_entry([b"x"]))
    waiting.join(60)
    assert told == [1]


def test_settings_of_bookkeepers_own_client_go_before_ours(
    store: BookKeeperSegmentStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client._settings("zk+hierarchical://here/ledgers").getThrottleValue() == 0
    said = tmp_path / "bookkeeper.conf"
    said.write_text("firstSpeculativeReadTimeout=77\nthrottle=5\nmetadataServiceUri=zk+null://elsewhere/ledgers\n")
    monkeypatch.setenv(client.SETTINGS_VARIABLE, str(said))
    settings = client._settings("zk+hierarchical://here/ledgers")
    assert (settings.getFirstSpeculativeReadTimeout(), settings.getThrottleValue()) == (77, 5)
    assert str(settings.getMetadataServiceUri()) == "zk+hierarchical://here/ledgers"
    monkeypatch.setenv(client.SETTINGS_VARIABLE, str(tmp_path / "none"))
    with pytest.raises(ConfigInvalid, match="which is no file"):
        client._settings("zk+hierarchical://here/ledgers")


def test_too_few_bookies_make_no_segment(location: str) -> None:
    store = BookKeeperSegmentStore(location, copies=LedgerCopies(4, 4, 3))
    store.create_log(LOG)
    with pytest.raises(StoreUnreachable, match="too few bookies"):
        store.create(NAME, fsync=True)
    assert store.names(LOG) == []


def test_a_ledger_that_no_segment_has_is_told(store: BookKeeperSegmentStore, location: str) -> None:
    store.create(NAME, fsync=True).close()
    assert list(store.orphans()) == []
    with at_failpoint("log.segment_create:after", stop), pytest.raises(Stopped):
        store.create(SegmentName(LOG, 2, 1), fsync=True)
    store._nodes.remove(SegmentName(LOG, 2, 1))  # as if it had died before that was there
    assert {orphan.segment for orphan in store.orphans()} == {str(SegmentName(LOG, 2, 1))}
    other = BookKeeperSegmentStore(f"{location.partition('?')[0]}-other?{location.partition('?')[2]}", "0" * 32)
    assert list(other.orphans()) == []


def test_a_segment_that_is_gone_cannot_be_made_durable(store: BookKeeperSegmentStore) -> None:
    with pytest.raises(LogWriteFailed, match="it is gone"):
        store.make_durable(NAME)
    with pytest.raises(LogNotFound, match="is gone"):
        store.location(NAME).open()


def test_a_place_of_another_namespace_is_told(location: str) -> None:
    kind = store_kind("bk")
    token = kind.prepare(location)
    assert kind.prepare(location) == token
    open_store("bk", location, token).check_mounted()
    with pytest.raises(StoreNotMounted, match=r"should hold 0000.*open the namespace again"):
        open_store("bk", location, "0" * 32).check_mounted()
    open_store("bk", location, token).create_log(LOG)
    with pytest.raises(StoreNotMounted):
        open_store("bk", location, "0" * 32).create(NAME, fsync=True)


@pytest.mark.parametrize("wrong", ["/logs", "bk://host/logs", "bk://host:1", "bk://host:1/", "bk://host:1/a?x=/b"])
def test_a_place_that_is_none_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigInvalid, match="no place of BookKeeper"):
        store_kind("bk").resolved(wrong)
