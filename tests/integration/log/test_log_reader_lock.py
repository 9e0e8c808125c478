"""Of all readers that call themselves the same subscriber, one reads at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from scribengin.base.model import node_name
from scribengin.errors import LogNotFound, OwnershipAcquireFailed, PositionTruncated, ReadCancelled, ReaderLockLost
from scribengin.log import DLSN, LogNamespace, LogReader
from scribengin.testing.chaos_proxy import ChaosProxy
from scribengin.testing.log_samples import bound_namespace, fill_log, payloads_left
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry, WatchEvent
from scribengin_registry.errors import OutcomeUnknown, RegistryError, RegistryUnreachable
from scribengin_registry.opening import connect

LOG = "flights/0"


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    return bound_namespace(registry, tmp_path / "store", LOG)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def lock_path(namespace: LogNamespace, subscriber: str) -> str:
    return f"{namespace.path}/logs/{node_name(LOG)}/readers/{node_name(subscriber)}/lock"


def test_the_same_subscriber_does_not_lock_twice_and_others_do(
    namespace: LogNamespace, elsewhere: LogNamespace
) -> None:
    """DistributedLog's TestBKLogReadHandler: the same subscriber cannot lock twice, different ones can."""
    payloads = fill_log(namespace, LOG, 3)
    with namespace.open_reader(LOG, subscriber="billing/eu") as reader:
        for other in (namespace, elsewhere):
            with pytest.raises(OwnershipAcquireFailed, match=r"as subscriber 'billing/eu': no lock within 0\.05 s"):
                other.open_reader(LOG, subscriber="billing/eu", timeout_s=0.05)
        with elsewhere.open_reader(LOG, subscriber="audit") as second, elsewhere.open_reader(LOG) as third:
            assert payloads_left(second) == payloads_left(third) == payloads
        assert payloads_left(reader) == payloads
    with elsewhere.open_reader(LOG, subscriber="billing/eu", timeout_s=0) as reader:
        assert payloads_left(reader) == payloads
    with pytest.raises(LogNotFound):
        namespace.open_reader("none", subscriber="billing/eu")
    assert not namespace.exists("none")


def test_a_lock_that_a_reader_has_taken_unheard_goes_with_the_reader_that_was_never_opened(
    namespace: LogNamespace, elsewhere: LogNamespace, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session lives on, and no reader of that subscriber would get it."""
    elsewhere.open_reader(LOG, subscriber="billing").close()  # so that there is a place for the lock
    create = elsewhere.registry.create

    def unheard(path: str, *args: Any, **options: Any) -> str:
        create(path, *args, **options)
        monkeypatch.setattr(elsewhere.registry, "sync", away)
        monkeypatch.setattr(elsewhere.registry, "find", away_at_last)
        raise OutcomeUnknown("the reply was lost")

    def away(_path: str) -> None:
        raise RegistryUnreachable("no server answers")

    def away_at_last(_path: str, *_args: Any) -> None:
        monkeypatch.undo()
        raise RegistryUnreachable("no server answers")

    monkeypatch.setattr(elsewhere.registry, "create", unheard)
    with pytest.raises(RegistryUnreachable):
        elsewhere.open_reader(LOG, subscriber="billing")
    wait_until(lambda: registry.find(lock_path(namespace, "billing")) is None, what="the lock to go")


def test_a_second_reader_waits_until_the_first_is_closed(
    namespace: LogNamespace, elsewhere: LogNamespace, threads: ThreadPoolExecutor
) -> None:
    """DistributedLog's TestAsyncReaderLock: exclusive, and acquired while others wait."""
    fill_log(namespace, LOG, 3)
    first = namespace.open_reader(LOG, subscriber="billing")
    waiting = [threads.submit(elsewhere.open_reader, LOG, subscriber="billing", timeout_s=60) for _ in range(3)]
    order: list[LogReader] = []
    first.close()
    while len(order) < 3:
        wait_until(lambda: sum(future.done() for future in waiting) > len(order), what="the next to get the lock")
        assert sum(future.done() for future in waiting) == len(order) + 1, "one at a time"
        reader = next(future.result() for future in waiting if future.done() and future.result() not in order)
        assert reader.read(1)
        order.append(reader)
        reader.close()


def test_waiting_for_the_lock_can_be_cancelled(
    namespace: LogNamespace, elsewhere: LogNamespace, registry: Registry, threads: ThreadPoolExecutor
) -> None:
    """DistributedLog's TestAsyncReaderLock: cancelled while waiting."""
    with namespace.open_reader(LOG, subscriber="billing"):
        cancel = threading.Event()
        waiting = threads.submit(elsewhere.open_reader, LOG, subscriber="billing", timeout_s=60, cancel=cancel)
        assert not waiting.done()
        cancel.set()
        with pytest.raises(ReadCancelled, match="was cancelled"):
            waiting.result(120)
    assert registry.find(lock_path(namespace, "billing")) is None
    with elsewhere.open_reader(LOG, subscriber="billing", timeout_s=0):
        assert registry.find(lock_path(namespace, "billing")) is not None


def test_a_reader_that_cannot_start_keeps_no_lock(namespace: LogNamespace, registry: Registry) -> None:
    fill_log(namespace, LOG, 3, 3)
    namespace.truncate(LOG, DLSN(1, 1, 0))
    with pytest.raises(PositionTruncated):
        namespace.open_reader(LOG, DLSN(1, 0, 1), subscriber="billing")
    assert registry.find(lock_path(namespace, "billing")) is None


def test_a_reader_whose_session_expired_fails_and_another_takes_over(
    namespace: LogNamespace, registry: Registry, registry_hosts: str
) -> None:
    """DistributedLog's TestAsyncReaderLock: the session expires; ours does not take the lock again by itself."""
    payloads = fill_log(namespace, LOG, 3)
    address, _, chroot = registry_hosts.partition("/")
    with (
        ChaosProxy(address) as proxy,
        connect(f"{proxy.address}/{chroot}", session_timeout_s=5.0) as session,
    ):
        cut_off = LogNamespace.open(namespace.path, registry=session).open_reader(LOG, subscriber="billing")
        assert [record.payload for record in cut_off.read(1)] == payloads[:1]
        proxy.cut()
        with namespace.open_reader(LOG, subscriber="billing", timeout_s=60) as successor:
            proxy.heal()
            for _ in range(2):
                with pytest.raises((ReaderLockLost, RegistryError)):
                    cut_off.read(1)
            cut_off.close()
            assert payloads_left(successor) == payloads
            assert registry.find(lock_path(namespace, "billing")) is not None, "the lock is the successor's"


def test_a_lost_reply_leaves_no_doubt_who_has_the_lock(
    namespace: LogNamespace, registry: Registry, registry_hosts: str
) -> None:
    payloads = fill_log(namespace, LOG, 3)
    address, _, chroot = registry_hosts.partition("/")
    with ChaosProxy(address) as proxy, connect(f"{proxy.address}/{chroot}") as session:
        shaky = LogNamespace.open(namespace.path, registry=session)
        for lose in (proxy.drop_next_reply, proxy.drop_next_request):
            for there in ("nothing", "the node of all readers", "the reader's"):
                name = f"{lose.__name__} {there}"
                parents = [lock_path(namespace, name).rsplit("/", levels)[0] for levels in (2, 1)]
                if there == "nothing" and registry.find(parents[0]) is not None:
                    registry.delete(parents[0], recursive=True)
                elif there == "the reader's":
                    registry.create(parents[1])
                lose()
                reader = shaky.open_reader(LOG, subscriber=name)
                assert payloads_left(reader) == payloads
                with pytest.raises(OwnershipAcquireFailed):
                    namespace.open_reader(LOG, subscriber=name, timeout_s=0)
                lose()
                reader.close()
                with namespace.open_reader(LOG, subscriber=name, timeout_s=0) as reader:
                    assert payloads_left(reader) == payloads


def test_a_lock_that_was_removed_is_lost(namespace: LogNamespace, registry: Registry) -> None:
    fill_log(namespace, LOG, 3)
    with namespace.open_reader(LOG, subscriber="billing") as reader:
        assert len(reader.read(1)) == 1
        gone: list[WatchEvent] = []
        registry.find(lock_path(namespace, "billing"), gone.append)
        registry.delete(lock_path(namespace, "billing"))
        wait_until(lambda: gone, what="the removal to be told")
        with pytest.raises(ReaderLockLost, match="nobody has it now"):
            reader.read(1)


def test_a_lock_and_a_registered_position_share_a_node(namespace: LogNamespace) -> None:
    fill_log(namespace, LOG, 3)
    with namespace.open_reader(LOG, subscriber="billing") as reader:
        namespace.register_reader(LOG, "billing", DLSN(1, 1, 0))
        assert namespace.registered_readers(LOG) == {"billing": DLSN(1, 1, 0)}
        assert len(reader.read()) == 3
    namespace.register_reader(LOG, "audit", DLSN(1, 2, 0))
    with namespace.open_reader(LOG, subscriber="audit"):
        assert namespace.registered_readers(LOG) == {"billing": DLSN(1, 1, 0), "audit": DLSN(1, 2, 0)}
    namespace.delete(LOG)
