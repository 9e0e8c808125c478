"""One writer at a time: the lock makes the second wait, the fence makes the first stop."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from scribengin.errors import (
    Fenced,
    LogNotFound,
    OwnershipAcquireFailed,
)
from scribengin.log import LogConfig, LogNamespace, LogWriter
from scribengin.log.upkeep import Upkeep
from scribengin.testing.failpoints import failpoint
from scribengin.testing.log_samples import bound_namespace, payloads_read
from scribengin_registry.contract import Registry
from scribengin_registry.kazoo_registry import connect
from tests.integration.log_writers import handmade_writer

LOG = "flights/0"


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    return bound_namespace(registry, tmp_path / "store", LOG)


def test_a_second_writer_waits_for_the_first(namespace: LogNamespace, elsewhere: LogNamespace) -> None:
    first = namespace.open_writer(LOG)
    first.write(b"first")
    with pytest.raises(OwnershipAcquireFailed, match=r"is being written by .*steal=True"):
        elsewhere.open_writer(LOG, timeout_s=0.05)
    with pytest.raises(OwnershipAcquireFailed):
        namespace.open_writer(LOG, timeout_s=0)
    opened: list[object] = []
    waiting = threading.Thread(target=lambda: opened.append(elsewhere.open_writer(LOG, timeout_s=120)))
    waiting.start()
    first.close()
    waiting.join(120)
    assert len(opened) == 1
    assert first.epoch < opened[0].epoch  # type: ignore[attr-defined]  # it is the writer that the thread opened
    opened[0].close()  # type: ignore[attr-defined]  # the same


def test_stealing_fences_the_owner_at_once(namespace: LogNamespace, elsewhere: LogNamespace) -> None:
    stale = namespace.open_writer(LOG)
    stale.write(b"acknowledged").result(120)
    with elsewhere.open_writer(LOG, steal=True) as owner:
        late = stale.write(b"late")
        with pytest.raises(Fenced):
            late.result(120)
        owner.write(b"owner's").result(120)
        with pytest.raises(Fenced):
            stale.write(b"later still")
        with pytest.raises(Fenced):
            stale.flush()
        stale.close()
        assert elsewhere.info(LOG).writer is not None
    assert payloads_read(namespace, LOG) == [b"acknowledged", b"owner's"]


@pytest.mark.parametrize("moment", ["log.segment_sync:before", "log.segment_sync:after"])
def test_a_log_that_is_stolen_while_a_group_is_on_its_way_to_the_disk_acknowledges_nothing_of_it(
    namespace: LogNamespace, elsewhere: LogNamespace, moment: str
) -> None:
    stale = namespace.open_writer(LOG)
    stale.write(b"acknowledged").result(120)
    owners: list[LogWriter] = []
    with failpoint(moment, lambda _stop: owners.append(elsewhere.open_writer(LOG, steal=True))):
        late = stale.write(b"late")
        with pytest.raises(Fenced):
            late.result(120)
    with owners[0] as owner:
        owner.write(b"owner's").result(120)
    stale.abort()
    found = payloads_read(namespace, LOG)
    assert [payload for payload in found if payload != b"late"] == [b"acknowledged", b"owner's"]


def test_a_fenced_writer_says_so_when_it_is_closed(namespace: LogNamespace, elsewhere: LogNamespace) -> None:
    stale = namespace.open_writer(LOG)
    stale.write(b"acknowledged").result(120)
    elsewhere.open_writer(LOG, steal=True).close()
    stale.write(b"late")
    with pytest.raises(Fenced):
        stale.close()
    assert payloads_read(namespace, LOG) == [b"acknowledged"]


def test_a_stale_writer_cannot_open_or_complete_a_segment(namespace: LogNamespace, elsewhere: LogNamespace) -> None:
    idle, rolling = namespace.open_writer(LOG), None
    elsewhere.open_writer(LOG, steal=True).close()
    with pytest.raises(Fenced, match="replaced by that of epoch"):
        idle.write(b"first of all").result(120)
    assert namespace.segments(LOG) == ()
    namespace.create("rolling", LogConfig(segment_bytes_max=4096))
    rolling = namespace.open_writer("rolling")
    rolling.write(bytes(5000)).result(120)
    elsewhere.open_writer("rolling", steal=True).close()
    with pytest.raises(Fenced):
        rolling.write(b"after the roll").result(120)
    with elsewhere.open_writer("rolling") as owner:
        owner.write(b"owner's").result(120)
    assert payloads_read(namespace, "rolling") == [bytes(5000), b"owner's"]
    directory = Path(namespace.descriptor.location) / namespace.segments("rolling")[0].directory
    assert len(list(directory.glob("*.log"))) == 2


def test_the_owner_cannot_be_fenced_by_whoever_it_replaced(namespace: LogNamespace, elsewhere: LogNamespace) -> None:
    stale = namespace.open_writer(LOG)
    with elsewhere.open_writer(LOG, steal=True) as owner:
        stale.abort()
        owner.write(b"x").result(120)
        assert namespace.info(LOG).writer is not None
        with pytest.raises(OwnershipAcquireFailed):
            namespace.open_writer(LOG, timeout_s=0.05)


def test_a_dead_session_frees_the_lock(namespace: LogNamespace, registry_hosts: str) -> None:
    session = connect(registry_hosts, session_timeout_s=2.0)
    abandoned = LogNamespace.open(namespace.path, registry=session).open_writer(LOG)
    abandoned.write(b"acknowledged").result(120)
    session.close()
    with namespace.open_writer(LOG, timeout_s=120) as writer:
        writer.write(b"next").result(120)
    assert payloads_read(namespace, LOG) == [b"acknowledged", b"next"]


def test_a_deleted_log_fences_its_writer(namespace: LogNamespace, elsewhere: LogNamespace) -> None:
    writer = namespace.open_writer(LOG)
    writer.write(b"x").result(120)
    elsewhere.delete(LOG, force=True)
    with pytest.raises(Fenced):
        writer.write(b"y").result(120)
    writer.abort()
    with pytest.raises(LogNotFound):
        namespace.open_writer(LOG)


def test_a_writer_of_a_deleted_log_does_not_write_into_its_namesake(
    namespace: LogNamespace, elsewhere: LogNamespace
) -> None:
    stale = namespace.open_writer(LOG)
    elsewhere.delete(LOG, force=True)
    elsewhere.create(LOG)
    namesake = elsewhere.open_writer(LOG)
    assert namesake.epoch == stale.epoch
    with pytest.raises(Fenced):
        stale.write(b"late").result(120)
    stale.abort()
    namesake.write(b"x").result(120)
    namesake.close()
    assert payloads_read(namespace, LOG) == [b"x"]


def test_the_next_writer_does_not_wait_for_the_upkeep_of_the_one_before(
    namespace: LogNamespace, registry: Registry
) -> None:
    free: list[bool] = []

    class Slow(Upkeep):
        def close(self) -> None:
            free.append(namespace.info(LOG).writer is None)

    writer = handmade_writer(registry, namespace, LOG, upkeep=Slow(lambda _stopping: None, lambda: None))
    writer.write(b"one").result(120)
    writer.abort()
    assert free == [True]
