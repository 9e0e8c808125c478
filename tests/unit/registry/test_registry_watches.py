"""Who is told of a node's next change: one registration for each node, whatever comes in between."""

from __future__ import annotations

import threading

import pytest

from scribengin_registry.client.watches import SharedWatch, WatchTable
from scribengin_registry.contract import WatchEvent
from scribengin_registry.errors import NodeMissing

CHANGED = WatchEvent("changed", "/a")


class Told(list[WatchEvent]):
    """A watch, and what it was told. Each is like no other."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __call__(self, event: WatchEvent) -> None:
        self.append(event)


def watched(table: WatchTable, watch: Told, path: str = "/a") -> SharedWatch:
    with table.joined("node", path, watch) as shared:
        return shared


def test_watches_that_come_and_go_leave_one_registration_for_each_node() -> None:
    table = WatchTable()
    registered = set()
    for number in range(1000):
        watch = Told()
        registered |= {watched(table, watch), watched(table, watch, "/b")}
        with table.joined("children", "/a", watch) as shared:
            registered.add(shared)
        table.unwatch(watch)
        assert len(registered) == 3, number
    assert len(table) == 3
    assert all(not shared.waiting for shared in registered)


def test_who_registers_while_another_s_event_is_on_its_way_is_told_and_the_next_registration_is_new() -> None:
    """The change was made before the second read: it is told of it all the same, and looks again."""
    table, first, second, third = WatchTable(), Told(), Told(), Told()
    shared = watched(table, first)
    with table.joined("node", "/a", second) as same:
        assert same is shared
        table.fire(shared, CHANGED)
        assert (list(first), list(second)) == ([CHANGED], [CHANGED])
    after = watched(table, third)
    assert after is not shared
    table.fire(shared, CHANGED)  # the second read's answer had it registered again
    assert list(third) == []
    table.fire(after, CHANGED)
    assert [len(watch) for watch in (first, second, third)] == [1, 1, 1]


def test_a_read_that_fails_takes_its_own_watch_back_and_no_other() -> None:
    table, watch, other = WatchTable(), Told(), Told()
    with pytest.raises(NodeMissing), table.joined("node", "/a", watch):
        raise NodeMissing("no", path="/a")
    assert len(table) == 0
    shared = watched(table, watch)
    for again in (watch, other):
        with pytest.raises(NodeMissing), table.joined("node", "/a", again):
            raise NodeMissing("no", path="/a")
    table.fire(shared, CHANGED)
    assert (list(watch), list(other)) == ([CHANGED], [])


def test_what_nobody_registered_with_the_servers_is_not_kept() -> None:
    """A watch that is taken back while its read is under way, and then registered all the same."""
    table, watch, later = WatchTable(), Told(), Told()
    with table.joined("node", "/a", watch) as shared:
        table.unwatch(watch)
        assert len(table) == 0
        after = watched(table, later)
    table.fire(shared, CHANGED)
    assert len(table) == 1
    table.fire(after, CHANGED)
    assert (list(watch), list(later), len(table)) == ([], [CHANGED], 0)


def test_a_watch_that_raises_keeps_no_other_from_being_told() -> None:
    table, before, after = WatchTable(), Told(), Told()

    def fail(_event: WatchEvent) -> None:
        raise ValueError("not today")

    shared = watched(table, before)
    with table.joined("node", "/a", fail):
        pass
    watched(table, after)
    with pytest.raises(ValueError, match="not today"):
        table.fire(shared, CHANGED)
    assert (list(before), list(after)) == ([CHANGED], [CHANGED])


def test_who_ends_a_watch_in_the_middle_of_another_one_s_beginning_waits_for_nobody() -> None:
    """As who collects garbage does, in any thread: a stream that was dropped closes itself."""
    table, dropped = WatchTable(), Told()
    watched(table, dropped)

    class Begins(Told):
        def __hash__(self) -> int:
            table.unwatch(dropped)
            return 1

    begun = threading.Thread(target=watched, args=(table, Begins(), "/b"), daemon=True)
    begun.start()
    begun.join(60)
    assert not begun.is_alive()
    assert (table.take("node", "/a"), len(table.take("node", "/b"))) == ([], 1)
