"""The registry's contract, method by method and error by error, on a real server and in memory."""

from __future__ import annotations

import gc
import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin.testing.waiting import wait_until
from scribengin_registry.client import batches
from scribengin_registry.client.limits import REQUEST_BYTES_MAX
from scribengin_registry.contract import Check, Create, Delete, Operation, Registry, SessionState, Set, WatchEvent
from scribengin_registry.errors import (
    NodeExists,
    NodeMissing,
    NodeNotEmpty,
    NotAuthorised,
    RegistryClosed,
    RegistryError,
    RegistryUnreachable,
    VersionConflict,
)
from scribengin_registry.opening import AUTH_VARIABLE, connect
from tests.garbage import collect_garbage

Events = queue.SimpleQueue[WatchEvent]
Opens = Callable[..., Registry]
"""Opens a session of the same servers: below `chroot`, of `user` (as in `name:password`), with `session_timeout_s`."""


@pytest.fixture(params=["zookeeper", "memory"])
def opens(request: pytest.FixtureRequest) -> Opens:
    """Whoever opens sessions with servers that this test has for itself."""
    if request.param == "memory":
        return MemoryEnsemble().connect
    hosts = request.getfixturevalue("registry_hosts")

    def open_session(chroot: str = "/", *, session_timeout_s: float = 100.0, user: str | None = None) -> Registry:
        return connect(f"{hosts}{chroot.rstrip('/')}", session_timeout_s=session_timeout_s, auth=user)

    return open_session


@pytest.fixture
def registry(opens: Opens) -> Iterator[Registry]:
    """A session with a registry that is empty."""
    with opens() as session:
        yield session


def next_event(events: Events) -> WatchEvent:
    """The next event of a watch that put them into a queue."""
    return events.get(timeout=120)


def test_a_new_node_has_its_data_the_version_zero_and_the_time(registry: Registry) -> None:
    before_ms = SYSTEM_CLOCK.now_ms()
    assert registry.create("/a", b"one") == "/a"
    node = registry.get("/a")
    assert (node.data, node.version, node.owner_session, node.children_count) == (b"one", 0, 0, 0)
    assert before_ms - 1000 <= node.created_ms == node.modified_ms <= SYSTEM_CLOCK.now_ms() + 1000


def test_a_node_is_created_with_its_parents_on_request_only(registry: Registry) -> None:
    with pytest.raises(NodeMissing, match="/a/b/c") as failure:
        registry.create("/a/b/c", b"x")
    assert failure.value.path == "/a/b/c"
    assert registry.create("/a/b/c", b"x", parents=True) == "/a/b/c"
    assert registry.create("/a/b/d", b"y", parents=True) == "/a/b/d"
    assert registry.get("/a/b").children_count == 2
    assert registry.children("/a/b") == ["c", "d"]


def test_a_node_cannot_be_created_twice(registry: Registry) -> None:
    registry.create("/a", b"one")
    for parents in (False, True):
        with pytest.raises(NodeExists) as failure:
            registry.create("/a", b"two", parents=parents)
        assert failure.value.path == "/a"
    assert registry.get("/a").data == b"one"


def test_sequential_nodes_are_numbered_in_their_order(registry: Registry) -> None:
    paths = [registry.create("/queue/n-", sequential=True, parents=True) for _ in range(12)]
    assert paths == [f"/queue/n-{k:010}" for k in range(12)]
    assert [f"/queue/{name}" for name in registry.children("/queue")] == paths


def test_set_returns_the_new_version_and_refuses_an_old_one(registry: Registry) -> None:
    registry.create("/a")
    assert registry.set("/a", b"1") == 1
    assert registry.set("/a", b"2", 1) == 2
    with pytest.raises(VersionConflict) as failure:
        registry.set("/a", b"3", 1)
    assert failure.value.path == "/a"
    assert (registry.get("/a").data, registry.get("/a").version) == (b"2", 2)
    with pytest.raises(NodeMissing):
        registry.set("/b", b"")


def test_find_is_get_without_the_error(registry: Registry) -> None:
    assert registry.find("/a") is None
    registry.create("/a", b"x")
    found = registry.find("/a")
    assert found == registry.get("/a")
    registry.delete("/a")
    with pytest.raises(NodeMissing):
        registry.get("/a")
    with pytest.raises(NodeMissing):
        registry.children("/a")


def test_find_all_is_find_for_each(registry: Registry, registry_hosts: str) -> None:
    paths = [f"/many/{number}" for number in range(1200)]
    registry.create("/many")
    creates: list[Operation] = [Create(path, path.encode()) for path in paths[::2]]
    for batch in batches(creates):
        registry.commit(batch)
    found = registry.find_all(paths)
    assert [None if node is None else node.data for node in found] == [
        path.encode() if at % 2 == 0 else None for at, path in enumerate(paths)
    ]
    assert found[0] == registry.find("/many/0")
    assert registry.find_all([]) == []
    with pytest.raises(RegistryError):
        registry.find_all(["/many/0", "no path"])
    other = connect(registry_hosts, session_timeout_s=100)
    other.close()
    with pytest.raises(RegistryClosed):
        other.find_all(["/many/0"])


def test_operations_are_batched_by_bytes_and_by_count() -> None:
    small: list[Operation] = [Delete(f"/{number}") for number in range(2500)]
    assert [len(batch) for batch in batches(small)] == [1000, 1000, 500]
    large: list[Operation] = [Create(f"/{number}", bytes(200_000)) for number in range(5)]
    assert [len(batch) for batch in batches(large)] == [2, 2, 1]
    mixed = [*small[:3], Create("/large", bytes(REQUEST_BYTES_MAX)), *small[3:5]]
    assert [len(batch) for batch in batches(mixed)] == [3, 1, 2]
    assert [operation for batch in batches(mixed) for operation in batch] == mixed
    assert list(batches([])) == []


def test_delete_minds_versions_and_children(registry: Registry) -> None:
    registry.create("/a/b", parents=True)
    registry.set("/a", b"x")
    with pytest.raises(NodeNotEmpty):
        registry.delete("/a")
    with pytest.raises(VersionConflict):
        registry.delete("/a/b", 7)
    registry.delete("/a/b", 0)
    registry.delete("/a", 1)
    with pytest.raises(NodeMissing):
        registry.delete("/a")


def test_a_recursive_delete_takes_everything_or_with_a_wrong_version_nothing(registry: Registry) -> None:
    for leaf in ("/a/b/c", "/a/b/d", "/a/e"):
        registry.create(leaf, parents=True)
    with pytest.raises(VersionConflict):
        registry.delete("/a", 3, recursive=True)
    assert registry.children("/a/b") == ["c", "d"]
    registry.delete("/a", 0, recursive=True)
    assert registry.find("/a") is None
    with pytest.raises(NodeMissing):
        registry.delete("/a", recursive=True)


def test_a_transaction_applies_everything_in_order(registry: Registry) -> None:
    registry.create("/a", b"old")
    registry.create("/gone")
    versions = registry.commit(
        [
            Check("/a", 0),
            Set("/a", b"new", 0),
            Create("/b", b"parent"),
            Create("/b/c", b"child", ephemeral=True),
            Set("/b/c", b"changed"),
            Delete("/gone", 0),
        ]
    )
    assert versions == [0, 1, 0, 0, 1, -1]
    assert registry.get("/a").data == b"new"
    assert registry.get("/b/c").data == b"changed"
    assert registry.get("/b/c").owner_session == registry.session_id
    assert registry.find("/gone") is None
    assert registry.commit([]) == []


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (Set("/there", b"x", 5), VersionConflict),
        (Set("/missing", b"x"), NodeMissing),
        (Check("/there", 5), VersionConflict),
        (Check("/missing", 0), NodeMissing),
        (Create("/there"), NodeExists),
        (Create("/missing/child"), NodeMissing),
        (Delete("/missing"), NodeMissing),
        (Delete("/there", 5), VersionConflict),
        (Delete("/parent"), NodeNotEmpty),
    ],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_wrong_operation_applies_nothing_and_is_named(
    registry: Registry, wrong: Operation, error: type[RegistryError], place: int
) -> None:
    registry.create("/there", b"before")
    registry.create("/parent/child", parents=True)
    operations: list[Operation] = [Create("/new"), Set("/parent", b"after")]
    operations.insert(place, wrong)
    with pytest.raises(error) as failure:
        registry.commit(operations)
    assert type(failure.value) is error
    assert failure.value.path == wrong.path
    assert registry.find("/new") is None
    assert registry.get("/parent").version == 0
    assert registry.get("/there").data == b"before"


def test_of_two_wrong_operations_the_first_is_named(registry: Registry) -> None:
    registry.create("/a")
    with pytest.raises(VersionConflict) as failure:
        registry.commit([Check("/a", 0), Set("/a", b"", 9), Delete("/missing")])
    assert failure.value.path == "/a"


def test_an_ephemeral_node_lives_as_long_as_its_session(registry: Registry, opens: Opens) -> None:
    with opens() as other:
        other.create("/mark", b"x", ephemeral=True)
        assert registry.get("/mark").owner_session == other.session_id
        assert other.session_id != registry.session_id
        with pytest.raises(RegistryError, match="ephemeral"):
            registry.create("/mark/below")
    assert registry.find("/mark") is None


def test_a_watch_of_the_data_fires_once(registry: Registry) -> None:
    registry.create("/a")
    events: Events = queue.SimpleQueue()
    registry.get("/a", events.put)
    registry.set("/a", b"1")
    assert next_event(events) == WatchEvent("changed", "/a")
    registry.set("/a", b"2")
    registry.get("/a", events.put)
    registry.delete("/a")
    assert next_event(events) == WatchEvent("deleted", "/a")
    assert events.empty()


def test_a_watch_of_a_missing_node_fires_when_it_is_created(registry: Registry) -> None:
    events: Events = queue.SimpleQueue()
    assert registry.find("/a", events.put) is None
    registry.create("/a")
    assert next_event(events) == WatchEvent("created", "/a")


def test_get_of_a_missing_node_sets_no_watch(registry: Registry) -> None:
    events: Events = queue.SimpleQueue()
    with pytest.raises(NodeMissing):
        registry.get("/a", events.put)
    registry.create("/a")
    assert registry.find("/a", events.put) is not None
    registry.set("/a", b"1")
    assert next_event(events) == WatchEvent("changed", "/a")
    assert events.empty()


def test_a_watch_of_the_children_fires_for_children_only(registry: Registry) -> None:
    registry.create("/a/b", parents=True)
    events: Events = queue.SimpleQueue()
    registry.children("/a", events.put)
    registry.set("/a", b"x")
    registry.set("/a/b", b"x")
    registry.create("/a/c")
    assert next_event(events) == WatchEvent("children", "/a")
    assert events.empty()
    registry.children("/a/c", events.put)
    registry.delete("/a/c")
    assert next_event(events) == WatchEvent("deleted", "/a/c")


@pytest.mark.parametrize(
    "write",
    [
        lambda registry: registry.set("/a/b", b"1"),
        lambda registry: registry.create("/a/b/c"),
        lambda registry: registry.delete("/a/b"),
        lambda registry: registry.commit([Check("/a", 0), Set("/a/b", b"1")]),
    ],
    ids=["set", "create", "delete", "commit"],
)
def test_a_write_returns_after_the_watches_that_it_fired(registry: Registry, write: Callable[[Registry], Any]) -> None:
    registry.create("/a/b", parents=True)
    returned = threading.Event()
    told: list[bool] = []

    def slow(_event: WatchEvent) -> None:
        told.append(returned.wait(0.5))

    registry.get("/a/b", slow)
    registry.children("/a/b", slow)
    write(registry)
    returned.set()
    assert told
    assert not any(told)


def test_a_write_of_a_session_that_is_closed_meanwhile_waits_for_no_watch(opens: Opens) -> None:
    session = opens(session_timeout_s=100)
    session.create("/a")
    closing = threading.Thread(target=session.close)
    returned = threading.Event()
    told: list[bool] = []

    def close(_event: WatchEvent) -> None:
        closing.start()
        told.append(returned.wait(120))

    session.get("/a", close)
    session.set("/a", b"1")
    returned.set()
    closing.join(120)
    assert told == [True]


class Listening:
    """A watch of which can be told whether anybody keeps it."""

    def __init__(self) -> None:
        self.told: list[WatchEvent] = []

    def __call__(self, event: WatchEvent) -> None:
        self.told.append(event)


def test_a_watch_that_was_taken_back_is_not_called_and_not_kept(registry: Registry) -> None:
    registry.create("/a/b", parents=True)
    stays = Listening()
    kept: list[weakref.ref[Listening]] = []
    for _number in range(100):
        gone = Listening()
        kept.append(weakref.ref(gone))
        registry.get("/a", gone)
        registry.find("/a/b", gone)
        registry.find("/missing", gone)
        registry.children("/a", gone)
        registry.get("/a", stays)
        registry.unwatch(gone)
        registry.unwatch(gone)
    never_set = Listening()
    registry.unwatch(never_set)
    del gone
    collect_garbage()
    assert [ref for ref in kept if ref() is not None] == []
    registry.create("/missing")
    registry.create("/a/c")
    registry.set("/a/b", b"1")
    assert stays.told == []
    registry.set("/a", b"1")
    assert stays.told == [WatchEvent("changed", "/a")]


@pytest.mark.parametrize(
    "ask",
    [
        lambda registry, watch: registry.find("/missing", watch),
        lambda registry, watch: registry.get("/missing", watch),
        lambda registry, watch: registry.children("/missing", watch),
        lambda registry, _watch: registry.find_all(["/missing"]),
        lambda registry, _watch: registry.set("/missing", b""),
        lambda registry, _watch: registry.create("/missing/a"),
        lambda registry, _watch: registry.create("/missing/b", parents=True),
        lambda registry, _watch: registry.commit([Delete("/missing")]),
    ],
    ids=["find", "get", "children", "find_all", "set", "create", "create with parents", "commit"],
)
def test_who_asked_for_what_is_not_there_is_forgotten_without_a_garbage_collector(
    registry: Registry, ask: Callable[[Registry, Listening], object]
) -> None:
    """That may look late, and keeps until then whatever callers had in their hands."""

    def asked() -> weakref.ref[Listening]:
        watch = Listening()
        with suppress(NodeMissing):
            ask(registry, watch)
        registry.unwatch(watch)
        return weakref.ref(watch)

    gc.disable()
    try:
        assert asked()() is None
    finally:
        gc.enable()


def test_everybody_who_watches_a_node_is_told_and_may_watch_again(registry: Registry) -> None:
    registry.create("/a")
    watches = [Listening() for _number in range(20)]
    for times in range(3):
        for watch in watches:
            registry.get("/a", watch)
        if times == 1:
            registry.unwatch(watches[3])
        registry.set("/a", b"%d" % times)
    assert [len(watch.told) for watch in watches] == [3, 3, 3, 2, *[3] * 16]


def test_a_read_that_raises_leaves_the_watches_that_were_set_before(registry: Registry) -> None:
    watch = Listening()
    assert registry.find("/a", watch) is None
    for read in (registry.get, registry.children):
        with pytest.raises(NodeMissing):
            read("/a", watch)
    registry.create("/a")
    assert watch.told == [WatchEvent("created", "/a")]
    registry.create("/a/b")
    assert watch.told == [WatchEvent("created", "/a")]


def test_another_session_sees_a_change_after_sync(registry: Registry, opens: Opens) -> None:
    with opens() as other:
        registry.create("/a", b"x")
        other.sync()
        assert other.get("/a").data == b"x"


def test_everybody_reads_what_a_user_created_and_nobody_else_changes_it(registry: Registry, opens: Opens) -> None:
    with (
        opens(user="ada:s:ecret") as ada,
        opens(user="ada:s:ecret") as ada_elsewhere,
        opens(user="bob:other") as bob,
    ):
        ada.create("/a/b", b"x", parents=True)
        ada.commit([Create("/a/c", b"y")])
        for stranger in (bob, registry):
            assert stranger.get("/a/b").data == b"x"
            assert stranger.children("/a") == ["b", "c"]
            for change in (Set("/a/b", b"mine"), Delete("/a/b"), Create("/a/d")):
                with pytest.raises(NotAuthorised, match=change.path):
                    stranger.commit([Check("/a", 0), change])
            with pytest.raises(NotAuthorised, match="/a/b"):
                stranger.set("/a/b", b"mine")
            with pytest.raises(NotAuthorised, match="/a/b"):
                stranger.delete("/a/b")
            with pytest.raises(NotAuthorised, match=r"/a/d: .*`scribengin sandbox` has printed the line"):
                stranger.create("/a/d")
        assert ada_elsewhere.set("/a/b", b"ours") == 1
        ada_elsewhere.delete("/a", recursive=True)


def test_what_was_made_without_a_user_becomes_one_s(registry_hosts: str) -> None:
    with (
        connect(registry_hosts) as nobody,  # and first: the chroot is nobody's
        connect(registry_hosts, auth="ada:secret") as ada,
        connect(registry_hosts, auth="bob:other") as bob,
    ):
        nobody.create("/a/b/c", b"x", parents=True)
        bob.create("/a/b/of-bob")
        assert ada.is_open("/a/b")
        assert not ada.is_open("/a/b/of-bob")
        assert not ada.is_open("/nowhere")
        with pytest.raises(RegistryError, match="nobody's"):
            nobody.protect("/a")
        assert ada.protect("/a") == 3
        assert ada.protect("/a") == 0
        for stranger in (bob, nobody):
            assert stranger.get("/a/b/c").data == b"x"
            with pytest.raises(NotAuthorised):
                stranger.set("/a/b/c", b"mine")
            with pytest.raises(NotAuthorised):
                stranger.create("/a/d")
        bob.set("/a/b/of-bob", b"still")
        ada.set("/a/b/c", b"ours")
        ada.delete("/a", recursive=True)


def test_the_user_of_a_deployment_is_taken_from_its_environment(
    registry_hosts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(registry_hosts) as nobody:
        monkeypatch.setenv(AUTH_VARIABLE, "ada:secret")
        with connect(registry_hosts) as ada:
            ada.create("/a", b"x")
        with pytest.raises(NotAuthorised, match="/a"):
            nobody.set("/a", b"mine")
        with connect(registry_hosts, auth="") as again:
            again.create("/b")
        nobody.set("/b", b"everybody's")


def test_what_is_too_large_is_refused_by_name_and_the_session_goes_on(registry: Registry) -> None:
    registry.create("/a", b"x" * REQUEST_BYTES_MAX)
    assert len(registry.get("/a").data) == REQUEST_BYTES_MAX
    session_id = registry.session_id
    large = b"x" * (REQUEST_BYTES_MAX + 1)
    for attempt in (
        lambda: registry.create("/large", large),
        lambda: registry.set("/large", large),
        lambda: registry.commit([Create("/small", b"x" * 1000), Create("/large", large[:-100])]),
    ):
        with pytest.raises(RegistryError, match=r"/large: 92\d,\d\d\d bytes") as failure:
            attempt()
        assert failure.value.path == "/large"
    assert registry.find("/large") is None
    assert registry.session_id == session_id


@pytest.mark.parametrize("path", ["", "a", "a/b", "/a/", "//a", "/a//b", "/a/./b", "/..", "/a\0b"])
def test_a_path_that_is_none_is_refused(registry: Registry, path: str) -> None:
    for attempt in (
        lambda: registry.get(path),
        lambda: registry.create(path),
        lambda: registry.children(path),
        lambda: registry.delete(path, recursive=True),
        lambda: registry.commit([Create(path)]),
    ):
        with pytest.raises(RegistryError, match="is not a registry path"):
            attempt()


def test_a_chroot_is_created_and_separates(registry: Registry, opens: Opens) -> None:
    with opens("/deep/er") as inner:
        assert inner.hosts == f"{registry.hosts}/deep/er"
        events: Events = queue.SimpleQueue()
        inner.find("/a", events.put)
        assert inner.create("/a", b"x") == "/a"
        assert next_event(events) == WatchEvent("created", "/a")
        assert inner.children("/") == ["a"]
        assert registry.get("/deep/er/a").data == b"x"


def test_a_closed_registry_refuses_everything_and_says_so(registry: Registry) -> None:
    states: list[SessionState] = []
    registry.on_session(states.append)
    registry.close()
    assert registry.state is SessionState.CLOSED
    wait_until(lambda: states == [SessionState.CLOSED], what="the listener to hear of it")
    for attempt in (lambda: registry.get("/a"), lambda: registry.create("/a"), lambda: registry.sync()):
        with pytest.raises(RegistryClosed, match="connect again"):
            attempt()


def test_a_listener_that_was_taken_back_hears_nothing_more(registry: Registry) -> None:
    heard: list[SessionState] = []
    last: list[SessionState] = []
    registry.on_session(heard.append)
    registry.on_session(last.append)
    registry.off_session(heard.append)
    registry.off_session(heard.append)
    registry.close()
    wait_until(lambda: last == [SessionState.CLOSED], what="the other listener to hear of it")
    assert heard == []


def test_a_watch_that_raises_keeps_nobody_else_from_being_told(
    registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_event: WatchEvent) -> None:
        raise ZeroDivisionError("of a watch")

    events: Events = queue.SimpleQueue()
    for path in ("/a", "/b"):
        registry.find(path, broken)
        registry.find(path, events.put)
        registry.create(path)
    assert [next_event(events).path for _ in range(2)] == ["/a", "/b"]
    wait_until(lambda: caplog.text.count("ZeroDivisionError: of a watch") == 2, what="both to be told of")
    registry.set("/a", b"x")
    assert registry.get("/a").data == b"x"


@pytest.mark.parametrize("hosts", ["127.0.0.1:1", "127.0.0.1:1/chroot", "no-such-host.invalid:2181"])
def test_a_registry_that_is_not_there_is_named(hosts: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RegistryUnreachable, match=hosts.split("/")[0]):
        connect(hosts, connect_timeout_s=0.3)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("hosts", "auth"), [("host:port", None), ("", None), ("127.0.0.1:1", "ada"), ("127.0.0.1:1", ":")]
)
def test_hosts_and_users_that_make_no_sense_are_refused(hosts: str, auth: str | None) -> None:
    with pytest.raises(RegistryError, match=r"host:port|user:password"):
        connect(hosts, auth=auth)
