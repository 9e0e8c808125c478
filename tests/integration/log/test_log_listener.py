"""The listener of a namespace: it sees logs come and go, also across a lost session."""

from __future__ import annotations

from pathlib import Path

import pytest

from scribengin.base.model import node_name
from scribengin.errors import LogNotFound
from scribengin.log import DLSN, LogConfig, LogNamespace, SegmentDescriptor
from scribengin.log.metadata.segments import LogDescriptor
from scribengin.testing.chaos_proxy import ChaosProxy
from scribengin.testing.log_samples import bound_namespace
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry
from scribengin_registry.opening import connect


class Heard:
    """What a listener was told, and the names that follow from it."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[str], list[str]]] = []
        self.names: set[str] = set()

    def __call__(self, added: list[str], removed: list[str]) -> None:
        assert not self.names & set(added)
        assert self.names >= set(removed)
        self.calls.append((added, removed))
        self.names = (self.names | set(added)) - set(removed)

    def wait_for(self, *names: str) -> None:
        wait_until(lambda: self.calls and self.names == set(names), what=f"{names}, not {self.names}")


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    return bound_namespace(registry, tmp_path / "store")


def test_a_listener_hears_of_the_logs_there_are_then_of_those_that_come_and_go(namespace: LogNamespace) -> None:
    namespace.create("b/0")
    namespace.create("a")
    heard = Heard()
    with namespace.listen(heard) as listener:
        heard.wait_for("a", "b/0")
        assert heard.calls == [(["a", "b/0"], [])]
        namespace.create("c")
        heard.wait_for("a", "b/0", "c")
        namespace.delete("a")
        heard.wait_for("b/0", "c")
        assert heard.calls[1:] == [(["c"], []), ([], ["a"])]
    namespace.create("d")
    assert heard.names == {"b/0", "c"}
    assert listener.error is None
    listener.close()


def test_a_listener_of_an_empty_namespace_is_told_so(namespace: LogNamespace) -> None:
    heard = Heard()
    with namespace.listen(heard):
        heard.wait_for()
        assert heard.calls == [([], [])]


def test_a_listener_with_a_prefix_hears_of_nothing_else(namespace: LogNamespace) -> None:
    heard = Heard()
    with namespace.listen(heard, "flights/"):
        heard.wait_for()
        for name in ("other", "flights/0", "flights-late"):
            namespace.create(name)
        heard.wait_for("flights/0")
    assert heard.calls == [([], []), (["flights/0"], [])]


def test_a_listener_survives_its_session(registry: Registry, registry_hosts: str, namespace: LogNamespace) -> None:
    address, _slash, chroot = registry_hosts.partition("/")
    heard = Heard()
    with ChaosProxy(address) as proxy, connect(f"{proxy.address}/{chroot}", session_timeout_s=6.0) as session:
        namespace.create("before")
        session.create("/expires", ephemeral=True)
        with LogNamespace.open(namespace.path, registry=session).listen(heard):
            heard.wait_for("before")
            proxy.cut()
            namespace.create("meanwhile")
            namespace.delete("before")
            wait_until(lambda: registry.find("/expires") is None, 60, what="the session to expire")
            proxy.heal()
            wait_until(lambda: heard.names == {"meanwhile"}, 60, what="the logs to be listed again")
            namespace.create("after")
            wait_until(lambda: heard.names == {"meanwhile", "after"}, 60, what="the watch to be set again")


def test_a_log_whose_deletion_was_cut_short_is_neither_listed_nor_told_of(
    namespace: LogNamespace, registry: Registry
) -> None:
    for name in ("a", "cut/kürzer", "unreadable"):
        namespace.create(name)
    path = f"{namespace.path}/logs/{node_name('cut/kürzer')}"
    log = LogDescriptor.from_bytes(registry.get(path).data, path=path)
    registry.set(path, log.model_copy(update={"deleting": True}).to_bytes())
    registry.set(f"{namespace.path}/logs/unreadable", bytes(range(256)))
    assert not namespace.exists("cut/kürzer")
    assert namespace.names() == ["a", "unreadable"]
    assert namespace.names("cut") == []
    heard = Heard()
    with namespace.listen(heard):
        heard.wait_for("a", "unreadable")
        namespace.create("b")
        heard.wait_for("a", "b", "unreadable")
        namespace.create("cut/kürzer")
        heard.wait_for("a", "b", "cut/kürzer", "unreadable")
    assert namespace.names("cut") == ["cut/kürzer"]


def test_what_a_callback_raises_is_kept(namespace: LogNamespace) -> None:
    def fail(_added: list[str], _removed: list[str]) -> None:
        raise ValueError("not today")

    with namespace.listen(fail) as listener:
        wait_until(lambda: listener.error is not None, what="the error")
    assert str(listener.error) == "not today"


def test_a_listener_of_a_log_hears_of_its_segments(namespace: LogNamespace) -> None:
    """DistributedLog's LogSegmentListener."""
    namespace.create("a", LogConfig(segment_bytes_max=4096))
    heard: list[tuple[SegmentDescriptor, ...]] = []

    def state() -> list[tuple[int, bool]]:
        return [(segment.segment, segment.in_progress) for segment in heard[-1]]

    with namespace.listen_segments("a", heard.append) as listener:
        wait_until(lambda: heard == [()], 120, what="the first call")
        writer = namespace.open_writer("a")
        writer.write(bytes(5000)).result(120)
        wait_until(lambda: state() == [(1, True)], 120, what="the first segment")
        writer.write(b"x").result(120)
        wait_until(lambda: state() == [(1, False), (2, True)], 120, what="the second segment")
        writer.close()
        wait_until(lambda: state() == [(1, False), (2, False)], 120, what="the end of the second segment")
        namespace.truncate("a", DLSN(2, 0, 0))
        namespace.purge("a")
        wait_until(lambda: state() == [(2, False)], 120, what="the purge")
        namespace.delete("a")
        wait_until(lambda: isinstance(listener.error, LogNotFound), 120, what="the end")
    with pytest.raises(LogNotFound):
        namespace.listen_segments("a", heard.append)
