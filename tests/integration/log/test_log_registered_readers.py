"""Registered readers: what truncation and retention wait for (what they do then is in test_log_purge)."""

from __future__ import annotations

from pathlib import Path

import pytest

from scribengin.errors import LogBusy, LogError, LogNotFound, PositionTruncated
from scribengin.log import DLSN, LogConfig, LogNamespace
from scribengin.log.metrics import ReaderLag, ReaderLagCollector, exposition
from scribengin.testing.chaos_proxy import ChaosProxy
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import bound_namespace, damage_segment, fill_log
from scribengin_registry.contract import Registry
from scribengin_registry.opening import connect

LOG = "flights/0"


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    return bound_namespace(registry, tmp_path / "store", LOG, config=LogConfig(segment_bytes_max=4096))


def test_a_reader_is_registered_moved_and_forgotten(namespace: LogNamespace) -> None:
    fill_log(namespace, LOG, 6)
    assert namespace.registered_readers(LOG) == {}
    assert namespace.register_reader(LOG, "a/b ä", DLSN(1, 1, 0)) == DLSN(1, 1, 0)
    assert namespace.register_reader(LOG, "other") == DLSN.INITIAL
    assert namespace.register_reader(LOG, "a/b ä", DLSN(2, 0, 0)) == DLSN(2, 0, 0)
    assert namespace.register_reader(LOG, "a/b ä") == DLSN(2, 0, 0)
    assert namespace.registered_readers(LOG) == {"a/b ä": DLSN(2, 0, 0), "other": DLSN.INITIAL}
    assert namespace.info(LOG).readers == {"a/b ä": 3, "other": 6}
    assert namespace.unregister_reader(LOG, "other")
    assert not namespace.unregister_reader(LOG, "other")
    assert namespace.registered_readers(LOG) == {"a/b ä": DLSN(2, 0, 0)}


def test_a_registered_reader_does_not_go_back(namespace: LogNamespace) -> None:
    fill_log(namespace, LOG, 6)
    namespace.register_reader(LOG, "a", DLSN(2, 0, 0))
    with pytest.raises(LogError, match="cannot go back"):
        namespace.register_reader(LOG, "a", DLSN(1, 1, 0))
    namespace.unregister_reader(LOG, "a")
    assert namespace.register_reader(LOG, "a", DLSN(1, 1, 0)) == DLSN(1, 1, 0)
    with pytest.raises(LogError, match="cannot be the name of a reader"):
        namespace.register_reader(LOG, "")


def test_a_reader_is_not_registered_at_what_is_gone(namespace: LogNamespace) -> None:
    fill_log(namespace, LOG, 6)
    namespace.truncate(LOG, DLSN(1, 2, 0))
    with pytest.raises(PositionTruncated):
        namespace.register_reader(LOG, "a", DLSN(1, 1, 0))
    assert namespace.register_reader(LOG, "a") == DLSN(1, 2, 0)


def test_a_subscriber_that_only_holds_its_lock_has_no_position(namespace: LogNamespace) -> None:
    payloads = fill_log(namespace, LOG, 6)
    with namespace.open_reader(LOG, DLSN(1, 1, 0), subscriber="a") as reader:
        assert namespace.registered_readers(LOG) == {}
        assert namespace.truncate(LOG, DLSN(1, 1, 0))
        assert namespace.register_reader(LOG, "a", DLSN(1, 1, 0)) == DLSN(1, 1, 0)
        assert namespace.registered_readers(LOG) == {"a": DLSN(1, 1, 0)}
        with pytest.raises(LogBusy, match="is reading just now"):
            namespace.unregister_reader(LOG, "a")
        assert [record.payload for record in reader.read(1)] == payloads[1:2]
    assert namespace.unregister_reader(LOG, "a")


def test_a_deleted_log_takes_its_readers_with_it(namespace: LogNamespace) -> None:
    namespace.register_reader(LOG, "a")
    namespace.delete(LOG)
    with pytest.raises(LogNotFound):
        namespace.registered_readers(LOG)
    namespace.create(LOG)
    assert namespace.registered_readers(LOG) == {}


@pytest.mark.parametrize("reply", ["lost", "never sent"])
@pytest.mark.parametrize("stop", ["log.metadata:before", "log.reader_move:before", "log.reader_unregister:before"])
def test_a_lost_reply_is_settled(registry_hosts: str, tmp_path: Path, stop: str, reply: str) -> None:
    address, _slash, chroot = registry_hosts.partition("/")
    with ChaosProxy(address) as proxy, connect(f"{proxy.address}/{chroot}") as registry:
        namespace = bound_namespace(registry, tmp_path, LOG)
        fill_log(namespace, LOG, 3)
        lose = proxy.drop_next_reply if reply == "lost" else proxy.drop_next_request
        with at_failpoint(stop, lambda _stop: lose()):
            assert namespace.register_reader(LOG, "a", DLSN(1, 1, 0)) == DLSN(1, 1, 0)
            assert namespace.register_reader(LOG, "a", DLSN(1, 2, 0)) == DLSN(1, 2, 0)
            assert namespace.registered_readers(LOG) == {"a": DLSN(1, 2, 0)}
            assert namespace.unregister_reader(LOG, "a")
        assert namespace.registered_readers(LOG) == {}


def test_the_lag_of_registered_readers_is_a_metric(namespace: LogNamespace) -> None:
    fill_log(namespace, LOG, 6)
    namespace.create("empty")
    namespace.register_reader(LOG, "a", DLSN(1, 2, 0))
    namespace.register_reader("empty", "b")
    assert namespace.reader_lags() == [ReaderLag("empty", "b", 0), ReaderLag(LOG, "a", 4)]
    collector = ReaderLagCollector(namespace.path, namespace.reader_lags)
    try:
        wanted = 'scribengin_log_reader_lag_records{log="flights/0",namespace="/logs",reader="a"} 4.0'
        assert wanted in exposition().decode().splitlines()
    finally:
        collector.close()


def test_damage_does_not_hide_the_lag(namespace: LogNamespace) -> None:
    fill_log(namespace, LOG, 9)
    namespace.register_reader(LOG, "a", DLSN(2, 2, 0))
    damage_segment(namespace, LOG, 2, 10)
    assert namespace.info(LOG).readers == {"a": 6}


def test_a_log_that_cannot_be_read_hides_the_lags_of_no_other_one(namespace: LogNamespace) -> None:
    namespace.create("a-broken-one", LogConfig(segment_bytes_max=4096))
    for log in (LOG, "a-broken-one"):
        fill_log(namespace, log, 6)
        namespace.register_reader(log, "a")
    namespace.registry.delete("/logs/logs/a-broken-one/segments/logrecs_000000000000000001")
    assert namespace.reader_lags() == [ReaderLag(LOG, "a", 6)]
