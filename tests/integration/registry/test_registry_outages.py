"""A registry's session when the network or the server fails: real connections, through a proxy that breaks them."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.testing.chaos_proxy import ChaosProxy, any_transaction
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Create, Registry, SessionState, Set, WatchEvent
from scribengin_registry.errors import OutcomeUnknown, RegistryError, RegistryUnreachable, SessionLost
from scribengin_registry.opening import connect
from tests.processes import Process

CONNECTED, SUSPENDED, LOST = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.LOST
TIMEOUT_S = 60.0
READER = """
import sys
from scribengin_registry.errors import SessionLost
from scribengin_registry.opening import connect

with connect(sys.argv[1], session_timeout_s=4) as registry:
    print("connected", flush=True)
    sys.stdin.readline()
    try:
        print(registry.get("/a").data.decode(), flush=True)
    except SessionLost:
        print("its session is over", flush=True)
"""


@dataclass
class Behind:
    """A session whose network can be broken, and what it was told of its state."""

    proxy: ChaosProxy
    registry: Registry
    states: list[SessionState] = field(default_factory=list)

    def wait_for(self, *states: SessionState) -> None:
        """Wait until the session has gone through exactly these states since the test began."""
        wait_until(lambda: self.states == list(states), timeout_s=TIMEOUT_S, what=f"{states}, not {self.states}")


def behind_proxy(hosts: str, session_timeout_s: float) -> Iterator[Behind]:
    address, _, chroot = hosts.partition("/")
    with (
        ChaosProxy(address) as proxy,
        connect(f"{proxy.address}/{chroot}", session_timeout_s=session_timeout_s) as registry,
    ):
        session = Behind(proxy, registry)
        registry.on_session(session.states.append)
        yield session
        proxy.heal()


@pytest.fixture
def behind(registry_hosts: str) -> Iterator[Behind]:
    """A session that outlives whatever a test does to its connection."""
    yield from behind_proxy(registry_hosts, session_timeout_s=20.0)


@pytest.fixture
def short_lived(registry_hosts: str) -> Iterator[Behind]:
    """A session that is soon over when it is cut off, and not lost on a busy machine before."""
    yield from behind_proxy(registry_hosts, session_timeout_s=5.0)


def in_background(action: Callable[[], object]) -> queue.SimpleQueue[object]:
    """Run `action` on a thread; what it returns or raises arrives in the queue."""
    outcome: queue.SimpleQueue[object] = queue.SimpleQueue()
    started = threading.Event()

    def run() -> None:
        started.set()
        try:
            outcome.put(action())
        except RegistryError as error:
            outcome.put(error)

    threading.Thread(target=run, daemon=True).start()
    started.wait()
    return outcome


def expire(session: Behind, direct: Registry) -> None:
    """Cut the session off until the server has given it up."""
    session.registry.create("/expires", ephemeral=True)
    session.proxy.cut()
    wait_until(lambda: direct.find("/expires") is None, timeout_s=TIMEOUT_S, what="the session to expire")


def test_a_transaction_whose_reply_is_lost_was_applied(behind: Behind, registry: Registry) -> None:
    registry.create("/a", b"before")
    behind.proxy.drop_next_reply(to=any_transaction)
    with pytest.raises(OutcomeUnknown, match="sync and read") as failure:
        behind.registry.commit([Set("/a", b"after", 0), Create("/b")])
    assert failure.value.path == "/a"
    assert (registry.get("/a").data, registry.find("/b") is not None) == (b"after", True)
    behind.registry.sync()
    assert behind.registry.get("/a").version == 1
    behind.wait_for(SUSPENDED, CONNECTED)


def test_a_transaction_that_is_lost_on_its_way_was_not_applied(behind: Behind, registry: Registry) -> None:
    registry.create("/a", b"before")
    behind.proxy.drop_next_request(to=any_transaction)
    with pytest.raises(OutcomeUnknown):
        behind.registry.commit([Set("/a", b"after", 0), Create("/b")])
    behind.registry.sync()
    assert behind.registry.get("/a").version == 0
    assert registry.find("/b") is None


@pytest.mark.parametrize(
    ("write", "applied"),
    [
        (lambda r: r.create("/new"), lambda r: r.find("/new") is not None),
        (lambda r: r.set("/a", b"x"), lambda r: r.get("/a").version == 1),
        (lambda r: r.delete("/a"), lambda r: r.find("/a") is None),
    ],
)
def test_every_write_says_that_its_outcome_is_unknown(
    behind: Behind, write: Callable[[Registry], object], applied: Callable[[Registry], bool]
) -> None:
    behind.registry.create("/a")
    behind.proxy.drop_next_request()
    with pytest.raises(OutcomeUnknown):
        write(behind.registry)
    behind.registry.sync()
    assert not applied(behind.registry)
    behind.proxy.drop_next_reply()
    with pytest.raises(OutcomeUnknown):
        write(behind.registry)
    behind.registry.sync()
    assert applied(behind.registry)


def test_a_write_that_is_cut_off_while_it_waits_for_its_reply_is_unknown(behind: Behind, registry: Registry) -> None:
    registry.create("/a")
    behind.proxy.pause()
    outcome = in_background(lambda: behind.registry.commit([Set("/a", b"x", 0)]))
    wait_until(lambda: behind.proxy.held > 0, what="the transaction to be under way")
    behind.proxy.cut()
    assert isinstance(outcome.get(timeout=TIMEOUT_S), OutcomeUnknown)
    assert registry.get("/a").version == 0


def test_reads_are_repeated_until_the_network_heals(behind: Behind, registry: Registry) -> None:
    registry.create("/a", b"x")
    behind.proxy.pause()
    reading = in_background(lambda: behind.registry.get("/a").data)
    wait_until(lambda: behind.proxy.held > 0, what="the read to be under way")
    behind.proxy.cut()
    behind.wait_for(SUSPENDED)
    looking = in_background(lambda: behind.registry.children("/"))
    assert reading.empty()
    assert looking.empty()
    behind.proxy.heal()
    assert reading.get(timeout=TIMEOUT_S) == b"x"
    assert looking.get(timeout=TIMEOUT_S) == ["a"]


def test_a_write_without_a_connection_waits_for_one(behind: Behind) -> None:
    behind.registry.create("/a")
    behind.proxy.cut()
    behind.wait_for(SUSPENDED)
    writing = in_background(lambda: behind.registry.set("/a", b"x", 0))
    behind.proxy.heal()
    assert writing.get(timeout=TIMEOUT_S) == 1


def test_without_a_server_reads_and_writes_end_and_say_where_they_looked(short_lived: Behind) -> None:
    short_lived.proxy.cut()
    short_lived.wait_for(SUSPENDED)
    for action in (lambda: short_lived.registry.get("/a"), lambda: short_lived.registry.create("/a")):
        with pytest.raises(RegistryUnreachable, match=short_lived.proxy.address):
            action()


def test_a_session_that_reconnects_in_time_keeps_its_ephemeral_nodes(behind: Behind, registry: Registry) -> None:
    behind.registry.create("/mark", ephemeral=True)
    session_id = behind.registry.session_id
    behind.proxy.cut()
    behind.wait_for(SUSPENDED)
    behind.proxy.heal()
    behind.wait_for(SUSPENDED, CONNECTED)
    assert behind.registry.session_id == session_id
    assert registry.get("/mark").owner_session == session_id


def test_no_change_escapes_a_watch_while_the_connection_is_broken(behind: Behind, registry: Registry) -> None:
    registry.create("/a", b"before")
    events: queue.SimpleQueue[WatchEvent] = queue.SimpleQueue()
    behind.registry.get("/a", events.put)
    behind.registry.find("/missing", events.put)
    behind.registry.children("/", events.put)
    behind.proxy.cut()
    behind.wait_for(SUSPENDED)
    registry.set("/a", b"after")
    assert events.empty(), "nobody can look again yet"
    behind.proxy.heal()
    paths = {events.get(timeout=TIMEOUT_S) for _ in range(3)}
    assert paths == {WatchEvent("session", path) for path in ("/a", "/missing", "/")}
    assert behind.registry.get("/a").data == b"after"


def test_an_expired_session_is_lost_and_a_new_one_follows(short_lived: Behind, registry: Registry) -> None:
    events: queue.SimpleQueue[WatchEvent] = queue.SimpleQueue()
    short_lived.registry.children("/", events.put)
    old_session = short_lived.registry.session_id
    short_lived.registry.create("/ends-the-watch-early")
    assert events.get(timeout=TIMEOUT_S).kind == "children"
    short_lived.registry.find("/a", events.put)
    expire(short_lived, registry)
    writing = in_background(lambda: short_lived.registry.create("/too-late"))
    short_lived.proxy.heal()
    short_lived.wait_for(SUSPENDED, LOST, CONNECTED)
    assert isinstance(writing.get(timeout=TIMEOUT_S), SessionLost), "the write belonged to the session that is gone"
    assert events.get(timeout=TIMEOUT_S) == WatchEvent("session", "/a")
    assert short_lived.registry.session_id != old_session
    assert short_lived.registry.find("/too-late") is None
    assert short_lived.registry.create("/mark", ephemeral=True) == "/mark"
    assert registry.get("/mark").owner_session == short_lived.registry.session_id


def test_a_read_across_the_end_of_a_session_is_answered_or_says_so(short_lived: Behind, registry: Registry) -> None:
    expire(short_lived, registry)
    reading = in_background(lambda: short_lived.registry.children("/"))
    short_lived.proxy.heal()
    answer = reading.get(timeout=TIMEOUT_S)
    assert answer == [] or isinstance(answer, SessionLost)


def test_a_server_that_falls_silent_is_noticed(short_lived: Behind) -> None:
    short_lived.proxy.pause()
    short_lived.wait_for(SUSPENDED)


def test_a_connection_that_is_never_answered_does_not_cost_the_session(behind: Behind) -> None:
    """A server that is just starting accepts connections that it then forgets."""
    behind.registry.create("/mine", ephemeral=True)
    behind.proxy.ignore_next_connection()
    behind.proxy.cut()
    behind.proxy.heal()
    assert behind.registry.find("/mine") is not None
    behind.wait_for(SUSPENDED, CONNECTED)


def test_a_process_that_stood_still_does_not_say_that_nobody_answered(registry_hosts: str, registry: Registry) -> None:
    """For longer than it waits for an answer: it looks again before it gives up."""
    registry.create("/a", b"read")
    address, _, chroot = registry_hosts.partition("/")
    with ChaosProxy(address) as proxy:
        words = [sys.executable, "-c", READER, f"{proxy.address}/{chroot}"]
        with Process(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
            assert reader.stdin is not None
            assert reader.stdout is not None
            assert reader.stdout.readline() == "connected\n"
            proxy.pause()
            reader.stdin.write("\n")
            reader.stdin.flush()
            wait_until(lambda: proxy.held, TIMEOUT_S, "a request")
            os.kill(reader.pid, signal.SIGSTOP)
            stopped_s = SYSTEM_CLOCK.monotonic_s()
            wait_until(lambda: SYSTEM_CLOCK.monotonic_s() - stopped_s > 10, TIMEOUT_S, "its limit of 8 s to pass")
            proxy.heal()
            os.kill(reader.pid, signal.SIGCONT)
            said, _ = reader.communicate(timeout=120)
    assert said in ("read\n", "its session is over\n"), said


def test_a_server_that_never_answers_is_given_up_in_time(registry_hosts: str) -> None:
    with ChaosProxy(registry_hosts.partition("/")[0]) as proxy:
        proxy.pause()
        with pytest.raises(RegistryUnreachable, match=proxy.address):
            connect(proxy.address, connect_timeout_s=0.2, session_timeout_s=30)


def test_closing_without_a_network_ends_and_leaves_the_session_to_the_server(
    short_lived: Behind, registry: Registry, capfd: pytest.CaptureFixture[str]
) -> None:
    short_lived.registry.create("/mark", ephemeral=True)
    short_lived.proxy.cut()
    short_lived.registry.close()
    assert short_lived.registry.state is SessionState.CLOSED
    wait_until(lambda: registry.find("/mark") is None, timeout_s=TIMEOUT_S, what="the server to expire the session")
    assert capfd.readouterr().err == ""
