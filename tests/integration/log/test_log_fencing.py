"""One writer at a time: the lock makes the second wait, the fence makes the first stop."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scribengin.base.model import node_name
from scribengin.base.threads import BackgroundWork
from scribengin.errors import (
    Fenced,
    LogNotFound,
    OwnershipAcquireFailed,
)
from scribengin.log import LogConfig, LogNamespace, LogWriter
from scribengin.testing.chaos_proxy import ChaosProxy
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import bound_namespace, payloads_read
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry
from scribengin_registry.errors import OutcomeUnknown, RegistryClosed, RegistryUnreachable, SessionLost
from scribengin_registry.opening import connect
from tests.integration.log.log_writers import handmade_writer

LOG = "flights/0"


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    return bound_namespace(registry, tmp_path / "store", LOG)


def test_a_second_writer_waits_for_the_first(namespace: LogNamespace, elsewhere: LogNamespace) -> None:
    first = namespace.open_writer(LOG)
    first.write(b"first")
    with pytest.raises(OwnershipAcquireFailed, match=r"is being written by .*steal the log"):
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
        with pytest.raises(Fenced):
            stale.write(b"late").result(120)
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
    with at_failpoint(moment, lambda _stop: owners.append(elsewhere.open_writer(LOG, steal=True))):
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
    with at_failpoint("log.segment_write:before", lambda _stop: elsewhere.open_writer(LOG, steal=True).close()):
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

    class Slow(BackgroundWork):
        def close(self) -> None:
            free.append(namespace.info(LOG).writer is None)

    writer = handmade_writer(registry, namespace, LOG, maintenance=Slow(lambda _stopping: None, lambda: None))
    writer.write(b"one").result(120)
    writer.abort()
    assert free == [True]


@contextmanager
def short_session(registry_hosts: str) -> Iterator[tuple[ChaosProxy, Registry]]:
    """A session that can be cut off from its server until that expires it."""
    address, _, chroot = registry_hosts.partition("/")
    with ChaosProxy(address) as proxy, connect(f"{proxy.address}/{chroot}", session_timeout_s=4.0) as session:
        yield proxy, session


def expire(proxy: ChaosProxy, registry: Registry, path: str) -> None:
    """Cut the session off until the server has removed its ephemeral node."""
    proxy.cut()
    wait_until(lambda: registry.find(path) is None, 120, what="the session to expire")


def lock_of(namespace: LogNamespace) -> str:
    return f"{namespace.path}/logs/{node_name(LOG)}/lock"


@pytest.mark.parametrize("written", [True, False], ids=["written to", "idle"])
def test_a_writer_whose_session_expired_takes_its_lock_again(
    namespace: LogNamespace, registry: Registry, registry_hosts: str, written: bool
) -> None:
    with short_session(registry_hosts) as (proxy, session):
        writer = LogNamespace.open(namespace.path, registry=session).open_writer(LOG)
        epoch = writer.epoch
        if written:
            writer.write(b"before").result(120)
        expire(proxy, registry, lock_of(namespace))
        if written:
            writer.write(b"meanwhile").result(120)  # the segment needs no registry
        proxy.heal()
        wait_until(lambda: registry.find(lock_of(namespace)) is not None, 120, what="the lock to be taken again")
        with pytest.raises(OwnershipAcquireFailed):
            namespace.open_writer(LOG, timeout_s=0)
        assert writer.epoch == epoch
        writer.write(b"after").result(120)
        writer.close()
        assert registry.find(lock_of(namespace)) is None
    assert payloads_read(namespace, LOG) == ([b"before", b"meanwhile"] if written else []) + [b"after"]


def test_a_writer_whose_session_expired_ends_when_another_has_the_log(
    namespace: LogNamespace, registry: Registry, registry_hosts: str
) -> None:
    with short_session(registry_hosts) as (proxy, session):
        stale = LogNamespace.open(namespace.path, registry=session).open_writer(LOG)
        expire(proxy, registry, lock_of(namespace))
        with namespace.open_writer(LOG) as owner:
            proxy.heal()
            wait_until(lambda: stale.failed, 120, what="the stale writer to end")
            with pytest.raises(Fenced):
                stale.write(b"late")
            stale.close()  # it was told before
            owner.write(b"owner's").result(120)
            assert registry.find(lock_of(namespace)) is not None
    assert payloads_read(namespace, LOG) == [b"owner's"]


def test_a_closed_writer_never_takes_its_lock_again(namespace: LogNamespace, registry: Registry) -> None:
    for end in (LogWriter.close, LogWriter.abort, LogWriter.mark_end_of_stream):
        writer = namespace.open_writer(LOG, timeout_s=0)
        writer.write(b"x").result(120)
        end(writer)
        assert registry.find(lock_of(namespace)) is None
    assert not [thread for thread in threading.enumerate() if thread.name == f"log-lock {LOG}"]


def waiting(namespace: LogNamespace, registry: Registry) -> list[str]:
    path = f"{namespace.path}/logs/{node_name(LOG)}/waiting"
    return [] if registry.find(path) is None else registry.children(path)


def test_those_who_wait_get_the_log_in_the_order_in_which_they_came(
    namespace: LogNamespace, elsewhere: LogNamespace, registry: Registry
) -> None:
    first, order = namespace.open_writer(LOG), []

    def take_a_turn(number: int) -> None:
        with (elsewhere if number % 2 else namespace).open_writer(LOG, timeout_s=120):
            order.append(number)

    with ThreadPoolExecutor(8) as threads:
        turns = []
        for number in range(8):
            turns.append(threads.submit(take_a_turn, number))
            wait_until(lambda n=number: len(waiting(namespace, registry)) == n + 1, what="a turn")  # type: ignore[misc]
        with pytest.raises(OwnershipAcquireFailed):
            namespace.open_writer(LOG, timeout_s=0)
        first.close()
        for turn in turns:
            turn.result(120)
    assert order == list(range(8))
    assert waiting(namespace, registry) == []


def test_waiting_for_a_log_can_be_cancelled_and_lets_the_next_through(
    namespace: LogNamespace, elsewhere: LogNamespace, registry: Registry
) -> None:
    first, cancel = namespace.open_writer(LOG), threading.Event()
    with ThreadPoolExecutor(2) as threads:
        cancelled = threads.submit(elsewhere.open_writer, LOG, timeout_s=3600, cancel=cancel)
        wait_until(lambda: len(waiting(namespace, registry)) == 1, what="it to wait")
        following = threads.submit(namespace.open_writer, LOG, timeout_s=120)
        wait_until(lambda: len(waiting(namespace, registry)) == 2, what="the next to wait")
        cancel.set()
        with pytest.raises(OwnershipAcquireFailed, match="the wait was cancelled"):
            cancelled.result(120)
        first.close()
        following.result(120).close()
    assert waiting(namespace, registry) == []


def test_a_wait_ends_with_its_session(namespace: LogNamespace, registry: Registry, registry_hosts: str) -> None:
    with (
        namespace.open_writer(LOG),
        short_session(registry_hosts) as (proxy, session),
        ThreadPoolExecutor(2) as threads,
    ):
        away = LogNamespace.open(namespace.path, registry=session)
        lost = threads.submit(away.open_writer, LOG, timeout_s=3600)
        wait_until(lambda: len(waiting(namespace, registry)) == 1, what="it to wait")
        proxy.cut()
        wait_until(lambda: waiting(namespace, registry) == [], 120, what="its place to go")
        proxy.heal()
        with pytest.raises((SessionLost, RegistryUnreachable)):
            lost.result(120)
        again = threads.submit(away.open_writer, LOG, timeout_s=3600)
        wait_until(lambda: len(waiting(namespace, registry)) == 1, 120, what="it to wait")
        session.close()
        with pytest.raises(RegistryClosed):
            again.result(120)
    namespace.open_writer(LOG, timeout_s=120).close()


def test_a_place_whose_making_nobody_heard_of_is_given_up_by_who_waits_there_no_more(
    namespace: LogNamespace, elsewhere: LogNamespace, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session lives on, and whoever comes later would wait behind it."""

    create = elsewhere.registry.create

    def unheard(path: str, *args: Any, **options: Any) -> str:
        create(path, *args, **options)
        monkeypatch.setattr(elsewhere.registry, "sync", away)
        raise OutcomeUnknown("the reply was lost")

    def away(_path: str) -> None:
        monkeypatch.undo()
        raise RegistryUnreachable("no server answers")

    with namespace.open_writer(LOG):
        with pytest.raises(OwnershipAcquireFailed):
            elsewhere.open_writer(LOG, timeout_s=0)  # so that the line is there
        monkeypatch.setattr(elsewhere.registry, "create", unheard)
        with pytest.raises(RegistryUnreachable):
            elsewhere.open_writer(LOG, timeout_s=3600)
        wait_until(lambda: waiting(namespace, registry) == [], what="its place to go")


def test_a_wait_ends_with_its_log(namespace: LogNamespace, elsewhere: LogNamespace, registry: Registry) -> None:
    writer = namespace.open_writer(LOG)
    with ThreadPoolExecutor(1) as threads:
        lost = threads.submit(elsewhere.open_writer, LOG, timeout_s=3600)
        wait_until(lambda: len(waiting(namespace, registry)) == 1, what="it to wait")
        namespace.delete(LOG, force=True)
        with pytest.raises(LogNotFound):
            lost.result(120)
    writer.abort()
