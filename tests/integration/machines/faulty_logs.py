"""Logs in BookKeeper or HDFS on machines, their clients, and what happens to both: a schedule of faults is drawn from a
seed, and what the clients saw is held against what a log promises."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from scribengin.base.jvm import CONF_VARIABLE
from scribengin.log import LogConfig, LogNamespace
from scribengin.log.store.bookkeeper.client import JARS_VARIABLE
from scribengin.testing.log_history import (
    LogEvent,
    RecordAcknowledged,
    RecordSeen,
    RecordSent,
    check_history,
)
from scribengin.testing.waiting import WaitedInVain, wait_until
from scribengin_dev.servers.hadoop.hadoop import copied_configuration
from scribengin_dev.servers.machine_room import MachineRoom
from scribengin_dev.servers.machines import NamespaceMachine
from scribengin_registry.opening import connect

ROOT = Path(__file__).parents[3]
PATH, LOG = "/logs", "flights/0"
SEGMENT_BYTES = 16 * 1024
LIMIT_S = 400.0
SOME = 8
"""So many records more show that it goes on."""


@dataclass(frozen=True, slots=True)
class FaultyStore:
    """What keeps the logs, with a node on each worker. `location` is a place in it, `config` that of a log of small
    segments, and `variables` are what a process of a machine finds it by."""

    kind: Literal["bk", "hdfs"]
    location: Callable[[str], str]
    kill: Callable[[int], None]
    start: Callable[[int], None]
    variables: Callable[[NamespaceMachine], Mapping[str, str]]
    config: LogConfig


def bookies_of(room: MachineRoom) -> FaultyStore:
    """BookKeeper on a room's workers, which lets this process find it, too. A segment is on two of three bookies."""
    bookies = room.start_bookies(beside_head=False)
    variables = {JARS_VARIABLE: ":".join(map(str, bookies.jars))}
    os.environ.update(variables)
    config = LogConfig(segment_bytes_max=SEGMENT_BYTES, ensemble_size=2)
    return FaultyStore(
        "bk", bookies.log_location, bookies.kill, bookies.start_bookie, lambda _machine: variables, config
    )


def data_nodes_of(room: MachineRoom) -> FaultyStore:
    """HDFS on a room's workers, which lets this process find it, too. No machine sees the configuration that this host
    has: each gets a copy."""
    hdfs = room.start_hdfs()
    os.environ[CONF_VARIABLE] = str(hdfs.conf_directory)

    def variables(machine: NamespaceMachine) -> Mapping[str, str]:
        assert machine.host.folder is not None
        return {CONF_VARIABLE: str(copied_configuration(hdfs.conf_directory, machine.host.folder / "hadoop"))}

    config = LogConfig(segment_bytes_max=SEGMENT_BYTES)
    return FaultyStore(
        "hdfs", lambda name: f"{hdfs.url}/{name}", hdfs.kill_data_node, hdfs.start_data_node, variables, config
    )


class Process:
    """A program on a machine, whose lines are kept."""

    def __init__(self, machine: NamespaceMachine, words: list[str], variables: Mapping[str, str]) -> None:
        self.machine = machine
        self.lines: list[str] = []
        folder = [str(ROOT), str(ROOT / "registry"), str(ROOT / "tools")]
        assert machine.host.folder is not None
        self._log = machine.host.folder / f"{uuid.uuid4().hex}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*machine.host.entering, sys.executable, "-m", *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **variables, "PYTHONPATH": ":".join(folder)},
            )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it is there."""
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    def end(self) -> None:
        """Let it end by itself, and wait until it has. Idempotent."""
        assert self._process.stdin is not None
        self.signal(signal.SIGCONT)
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reading.join()

    def await_end(self) -> int:
        """Wait until it has ended of what it was sent. What it ended with."""
        code = self._process.wait(LIMIT_S)
        self.end()
        return code

    def words(self) -> str:
        """The end of what it said."""
        return "\n".join([*self.lines[-5:], self._log.read_text(errors="replace")[-1500:]])

    def _read(self) -> None:
        assert self._process.stdout is not None
        self.lines.extend(iter(self._process.stdout.readline, ""))


class LogClient(Process):
    """A client of the log (log_client.py)."""

    def told(self, kind: str) -> list[list[Any]]:
        """What it has done of that kind, with the time."""
        return [line for line in map(json.loads, list(self.lines)) if line[1] == kind]

    def count(self, kind: str) -> int:
        return len(self.told(kind))


class FaultyLog:
    """A log on the machines of a room, and what strikes it."""

    def __init__(self, room: MachineRoom, store: FaultyStore, seed: int) -> None:
        self.room = room
        self.store = store
        self.chance = random.Random(f"{store.kind} {seed}")
        self.path = f"{PATH}-{uuid.uuid4().hex[:8]}"
        self.clients: list[LogClient] = []
        self.proxies: list[Process | None] = [None, None]
        self._stack = ExitStack()

    @contextmanager
    def bound(self) -> Iterator[None]:
        """While the block lasts; then what was struck is whole again, and all clients have ended."""
        with self._stack, connect(self.room.zookeeper.hosts, auth="") as registry:
            place = self.store.location(self.path.strip("/"))
            LogNamespace.bind(self.path, place, registry=registry, store=self.store.kind)
            with LogNamespace.open(self.path, registry=registry) as self.namespace:
                self.namespace.create(LOG, self.store.config)
                yield

    def client(self, what: str, machine: NamespaceMachine, name: str, *, proxied: bool = False) -> LogClient:
        """A client more, on that machine."""
        path = f"proxy:{self.path}" if proxied else self.path
        words = ["tests.integration.machines.log_client", what, self.room.zookeeper.hosts, path, LOG, name]
        client = LogClient(machine, words, self.store.variables(machine))
        self._stack.callback(client.end)
        self.clients.append(client)
        return client

    def start_proxy(self, number: int) -> None:
        """A proxy on one of the first two workers."""
        machine = self.room.workers[number]
        words = ["scribengin_tools", "proxy", "--host", machine.host.address, "--insecure"]
        words += ["--registry", self.room.zookeeper.hosts, "--namespace", self.path]
        proxy = Process(machine, words, self.store.variables(machine))
        self.proxies[number] = proxy
        self._stack.callback(proxy.end)
        self._stack.callback(proxy.signal, signal.SIGTERM)
        self.wait(lambda: bool(proxy.lines), f"proxy {number} to serve")

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait, and say what all have said where it does not come."""
        try:
            wait_until(condition, LIMIT_S, what)
        except WaitedInVain as error:
            everybody = [*self.clients, *filter(None, self.proxies)]
            words = "\n".join(f"--- {one.machine.name}\n{one.words()}" for one in everybody)
            raise WaitedInVain(f"{error}\n{words}") from None

    def await_more(self, client: LogClient, what: str, kind: str = "acknowledged", count: int = SOME) -> None:
        """Wait until a client has done something so many times more."""
        before = client.count(kind)
        self.wait(lambda: client.count(kind) >= before + count, what)

    def expect_honesty(self) -> None:
        """Nothing is lost, doubled, reordered, invented or passed over, for whoever wrote or read. Ends the clients."""
        acknowledged = {line[2] for client in self.clients for line in client.told("acknowledged")}
        readers = [client for client in self.clients if client.count("seen")]
        last = max((line[3] for client in self.clients for line in client.told("acknowledged")), default=[0, 0, 0])
        for reader in readers:
            self.wait(partial(_has_seen, reader, last), "a reader to see it all")
        for client in self.clients:
            client.end()
        with self.namespace.open_writer(LOG, timeout_s=120, steal=True), self.namespace.open_reader(LOG) as reader:
            content = []
            while records := reader.read(1000):
                content += [(tuple(record.dlsn), record.payload.decode()) for record in records]
        anomalies = check_history(self._events(), content)
        told = "\n".join(map(str, anomalies[:20]))
        assert not anomalies, f"{len(anomalies)} anomalies:\n{told}"
        assert len(acknowledged) >= SOME, "nothing was written"

    def _events(self) -> list[LogEvent]:
        lines = [(line, client) for client in self.clients for line in map(json.loads, client.lines)]
        events: list[LogEvent] = []
        for (_at_s, kind, *words), client in sorted(lines, key=lambda pair: pair[0][0]):
            if kind == "sent":
                events.append(RecordSent(words[0]))
            elif kind == "acknowledged":
                events.append(RecordAcknowledged(words[0], tuple(words[1])))
            elif kind == "seen":
                events.append(RecordSeen(str(id(client)), words[0], tuple(words[1])))
        return events


def _has_seen(reader: LogClient, place: list[int]) -> bool:
    return bool(reader.told("seen")[-1][3] >= place)


Schedule = Callable[[FaultyLog], None]
Strike = Callable[[FaultyLog, int, list[LogClient]], None]
"""What becomes of the proxy of that number; the clients do not notice."""


def nodes_of_the_store(log: FaultyLog) -> None:
    """One of three DataNodes or bookies dies: acknowledgements go on. Then another one: they stop, and go on when one
    is back."""
    writer = log.client("write", log.room.head, "A")
    log.client("read", log.room.head, "reader")
    log.await_more(writer, "the first records", count=log.chance.randint(5, 40))
    first, second, _third = log.chance.sample(range(3), 3)
    kill, start = log.store.kill, log.store.start
    kill(first)
    log.await_more(writer, "records with two of three")
    kill(second)
    log.await_more(writer, "a failure with one of three", "failed", 1)
    stopped = writer.count("acknowledged")
    log.await_more(writer, "another failure with one of three", "failed", 1)
    assert writer.count("acknowledged") == stopped, "it acknowledged with one copy"
    start(log.chance.choice([first, second]))
    log.await_more(writer, "records with two of three again")
    start(first)
    start(second)
    log.expect_honesty()


def proxies(log: FaultyLog) -> None:
    """Each of two proxies is killed, stopped past its session, cut off, or ended in order."""
    _strike_proxies(log, lambda: log.chance.choice(STRIKES))


def proxies_by(strike: Strike) -> Schedule:
    """The same, both in that way."""
    return lambda log: _strike_proxies(log, lambda: strike)


def _strike_proxies(log: FaultyLog, next_strike: Callable[[], Strike]) -> None:
    for number in range(2):
        log.start_proxy(number)
    writers = [log.client("write", log.room.head, name, proxied=True) for name in ("A", "B")]
    log.client("read", log.room.head, "reader", proxied=True)
    for number in log.chance.sample(range(2), 2):
        for writer in writers:
            log.await_more(writer, "records", count=log.chance.randint(5, 20))
        strike = next_strike()
        print(f"proxy {number}: {strike.__name__}")  # shown when the test fails
        strike(log, number, writers)
    for writer in writers:
        log.await_more(writer, "records at the end")
    log.expect_honesty()


def killed(log: FaultyLog, number: int, writers: list[LogClient]) -> None:
    """Then there is another one."""
    _proxy(log, number).signal(signal.SIGKILL)
    _all_go_on(log, writers)
    log.start_proxy(number)


def stopped(log: FaultyLog, number: int, writers: list[LogClient]) -> None:
    """Longer than its session, which ends after ten seconds."""
    proxy = _proxy(log, number)
    proxy.signal(signal.SIGSTOP)
    with connect(log.room.zookeeper.hosts, auth="") as registry:
        log.wait(
            lambda: len(registry.children(f"{log.path}/proxies/servers")) == 1,
            "the session of the stopped proxy to end",
        )
    _all_go_on(log, writers)
    proxy.signal(signal.SIGCONT)


def cut_off(log: FaultyLog, number: int, writers: list[LogClient]) -> None:
    """With its machine, which then is back."""
    machine = log.room.workers[number]
    machine.cut()
    try:
        _all_go_on(log, writers)
    finally:
        machine.join()


def ended(log: FaultyLog, number: int, writers: list[LogClient]) -> None:
    """In order, and started again: it hands over."""
    proxy = _proxy(log, number)
    proxy.signal(signal.SIGTERM)
    proxy.await_end()
    _all_go_on(log, writers)
    log.start_proxy(number)


def _proxy(log: FaultyLog, number: int) -> Process:
    proxy = log.proxies[number]
    assert proxy is not None
    return proxy


def _all_go_on(log: FaultyLog, writers: list[LogClient]) -> None:
    for writer in writers:
        log.await_more(writer, "records without that proxy")


def machine_of_the_writer(log: FaultyLog) -> None:
    """It is cut off while its successor takes over, and then it is back."""
    there, elsewhere = log.chance.sample(log.room.workers, 2)
    first = log.client("write", there, "A")
    log.await_more(first, "records of the first", count=log.chance.randint(5, 40))
    second = log.client("write", elsewhere, "B")
    log.client("read", log.room.head, "reader")
    there.cut()
    try:
        log.await_more(second, "records of the successor", count=log.chance.randint(5, 40))
    finally:
        there.join()
    log.await_more(first, "the first to learn it", "failed", 1)
    log.await_more(second, "records of the successor after that")
    log.expect_honesty()


STRIKES: tuple[Strike, ...] = (killed, stopped, cut_off, ended)
SCHEDULES: tuple[Schedule, ...] = (nodes_of_the_store, proxies, machine_of_the_writer)
