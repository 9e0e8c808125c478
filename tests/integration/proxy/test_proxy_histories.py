"""Clients of proxies see nothing lost, doubled, reordered or invented: schedules of faults, drawn from seeds, and the
history of what the clients saw held against what a log promises. All in one process, on a disk in memory (on machines,
with stores of many: `integration/machines/test_log_faults.py`)."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import pytest

from scribengin.base.failpoints import set_hook
from scribengin.base.threads import background
from scribengin.errors import ProxyUnreachable, ScribenginError
from scribengin.log import DLSN, LogConfig, LogNamespace, LogRecord, LogWriter
from scribengin.proxy import ProxiedNamespace, ProxiedWriter
from scribengin.proxy.nodes import ProxyDescriptor, ProxyNodes
from scribengin.testing.log_history import LogEvent, RecordAcknowledged, RecordSeen, RecordSent, check_history
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin.testing.waiting import wait_until
from tests.integration.proxy.proxied import LOG, PATH, ProxiedPlace, batch_of
from tests.integration.proxy.struck import (
    LIMIT_S,
    BehindClock,
    ReachedProxies,
    StruckMachine,
    StruckProxy,
    client_of,
    pass_stop,
)
from tests.stalls import output_awaited

CLIENTS, END = ("A", "B"), "end"
SEEDS, STRIKES_MORE = 100, 2
SOME = 3
SEGMENT_BYTES = 4096
STOPS = (
    "log.segment_write:before",
    "log.segment_sync:before",
    "log.segment_sync:after",
    "log.segment_roll:before",
    "log.segment_roll:after",
)
"""Where a machine is when it is struck: its writer has a group, has written it, has made it durable, rolls."""


class History:
    """What clients do, in the order of time, until it is enough."""

    def __init__(self) -> None:
        self.events: list[LogEvent] = []
        self.ended = threading.Event()
        """Set: nobody writes any more."""
        self.given_up = threading.Event()
        """Set: nobody reads any more, whatever was seen."""
        self._lock = threading.Lock()
        self._sent: Counter[str] = Counter()
        self._acknowledged: Counter[str] = Counter()
        self._seen: Counter[str] = Counter()

    def acknowledged(self, client: str) -> int:
        """How many records of that client."""
        return self._acknowledged[client]

    def seen(self, client: str) -> int:
        """How many records of that client."""
        return self._seen[client]

    def write(self, client: str, writer: LogWriter | ProxiedWriter) -> None:
        """A record after the other. Raises what the writer does."""
        while not self.ended.is_set():
            self.write_one(client, writer)

    def write_one(self, client: str, writer: LogWriter | ProxiedWriter) -> None:
        """A record with a value that no other one has."""
        value = f"{client}-{self._sent[client]}"
        self._sent[client] += 1
        self._tell(RecordSent(value))
        self._tell(RecordAcknowledged(value, tuple(writer.write(value.encode()).result(LIMIT_S))))
        self._acknowledged[client] += 1

    def read(self, namespace: LogNamespace) -> None:
        """Follow the log until something of its end was seen, or until that was given up."""
        at = DLSN.INITIAL
        while not (self.seen(END) or self.given_up.is_set()):
            with suppress(ScribenginError), namespace.open_reader(LOG, at) as reader:
                while not (self.seen(END) or self.given_up.is_set()):
                    for record in reader.read(100, 0.1):
                        value = record.payload.decode()
                        self._tell(RecordSeen("reader", value, tuple(record.dlsn)))
                        self._seen[value.rpartition("-")[0]] += 1
                    at = reader.position

    def _tell(self, event: LogEvent) -> None:
        with self._lock:
            self.events.append(event)


class StruckLog:
    """A log that two proxies write for two clients, and what strikes whoever writes it."""

    def __init__(self, place: ProxiedPlace, chance: random.Random) -> None:
        self._place = place
        self._chance = chance
        self._made = 0
        self.namespace = place.bound(LOG, config=LogConfig(segment_bytes_max=SEGMENT_BYTES))
        self.history = History()
        self.proxies: dict[str, StruckProxy] = {}
        for _ in range(2):
            self.start()

    def start(self) -> None:
        """A proxy more. The clock of every second one is behind."""
        proxy = StruckProxy(*self._machine("proxy"))
        self.proxies[proxy.name] = self._place.stack.enter_context(proxy)

    def client(self) -> ProxiedNamespace:
        """A client more."""
        return client_of(self._place, self.proxies)

    def killed(self) -> None:
        """Then there is another one."""
        proxy = self._halted()
        proxy.switch_off()
        self.await_more()
        self.start()

    def stopped(self) -> None:
        """Longer than its session."""
        proxy = self._halted()
        self.await_more()
        proxy.rejoin()

    def cut_off(self) -> None:
        """From the registry and its clients. It has its disk, and writes on."""
        proxy = self._halted()
        proxy.go_on()
        self.await_more()
        proxy.rejoin()

    def ended(self) -> None:
        """In order: it hands over. Then there is another one."""
        self._owner().end()
        self.await_more()
        self.start()

    def writer_cut_off(self) -> None:
        """Somebody who is no proxy takes the log, and is cut off while the proxies take it again."""
        machine = self._place.stack.enter_context(StruckMachine(*self._machine("writer")))

        def write() -> None:
            self.history.write(machine.name, machine.namespace.open_writer(LOG, steal=True))

        writing = machine.run(write)
        self._await_more_of(machine.name)
        machine.halt(self._chance.choice(STOPS))
        machine.go_on()
        self.await_more()
        machine.rejoin()
        with pytest.raises(ScribenginError):
            writing.result(LIMIT_S)

    def await_more(self) -> None:
        """Wait until both clients were acknowledged more records."""
        for name in CLIENTS:
            self._await_more_of(name)

    def _await_more_of(self, client: str) -> None:
        wanted = self.history.acknowledged(client) + self._chance.randint(SOME, 3 * SOME)
        wait_until(lambda: self.history.acknowledged(client) >= wanted, LIMIT_S, f"more records of {client}")

    def _machine(self, kind: str) -> tuple[str, MemoryEnsemble, str, BehindClock]:
        self._made += 1
        return f"{kind} {self._made}", self._place.ensemble, PATH, BehindClock(self._made % 2)

    def _halted(self) -> StruckProxy:
        owner = self._owner()
        owner.halt(self._chance.choice(STOPS))
        return owner

    def _owner(self) -> StruckProxy:
        """Who writes the log."""
        nodes = ProxyNodes(self._place.registry, PATH)

        def writes(owner: ProxyDescriptor | None) -> bool:
            return owner is not None and self.proxies[owner.name].service.logs == [LOG]

        wait_until(lambda: writes(nodes.owner(LOG)), LIMIT_S, "a proxy to write the log")
        owner = nodes.owner(LOG)
        assert owner is not None
        return self.proxies[owner.name]


STRIKES = (
    StruckLog.killed,
    StruckLog.stopped,
    StruckLog.cut_off,
    StruckLog.ended,
    StruckLog.writer_cut_off,
)


@pytest.fixture
def place() -> Iterator[ProxiedPlace]:
    place = ProxiedPlace()
    set_hook(pass_stop)
    try:
        with place.stack:
            yield place
    finally:
        set_hook(None)


@contextmanager
def clients_of(log: StruckLog) -> Iterator[None]:
    """Two that write while the block lasts, and one that reads until it has seen all that they have written."""
    history = log.history

    def write(name: str, namespace: ProxiedNamespace) -> None:
        while not history.ended.is_set():
            with suppress(ScribenginError), namespace.open_writer(LOG, timeout_s=LIMIT_S) as writer:
                history.write(name, writer)

    reading = background("reader", partial(history.read, log.client()))
    writing = [background(name, partial(write, name, log.client())) for name in CLIENTS]
    for thread in (reading, *writing):
        thread.start()
    try:
        yield
        history.ended.set()
        wait_until(lambda: not any(thread.is_alive() for thread in writing), LIMIT_S, "the clients to end")
        with log.client().open_writer(LOG, timeout_s=LIMIT_S) as writer:
            history.write_one(END, writer)
        with output_awaited():
            wait_until(lambda: not reading.is_alive(), LIMIT_S, "the reader to see it all")
        assert history.seen(END) > 0, "the reader has ended, and has not seen it all"
    finally:
        history.ended.set()
        history.given_up.set()


@pytest.mark.parametrize(
    "seed", [*range(len(STRIKES)), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(len(STRIKES), SEEDS))]
)
def test_no_schedule_of_faults_is_seen_by_clients_of_proxies(place: ProxiedPlace, seed: int) -> None:
    """The first ones begin with another strike each."""
    chance = random.Random(seed)
    log = StruckLog(place, chance)
    with clients_of(log):
        for strike in (STRIKES[seed % len(STRIKES)], *chance.choices(STRIKES, k=STRIKES_MORE)):
            log.await_more()
            print(strike.__name__)  # shown when the test fails
            strike(log)
        log.await_more()
    records = everything(log.namespace)
    anomalies = check_history(log.history.events, [(tuple(one.dlsn), one.payload.decode()) for one in records])
    assert not anomalies, "\n".join(map(str, anomalies[:20]))
    expect_ids_in_order(records)


def test_a_reader_that_dies_has_not_seen_it_all(place: ProxiedPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(History, "read", lambda _history, _namespace: None)
    log = StruckLog(place, random.Random(0))
    with pytest.raises(AssertionError, match="has not seen it all"), clients_of(log):
        log.await_more()


def test_a_schedule_that_fails_leaves_no_reader_behind(place: ProxiedPlace) -> None:
    log = StruckLog(place, random.Random(0))
    before = set(threading.enumerate())
    readers: list[threading.Thread] = []

    def fail() -> None:
        readers.extend(one for one in threading.enumerate() if one.name == "reader" and one not in before)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), clients_of(log):
        fail()
    assert len(readers) == 1
    wait_until(lambda: not readers[0].is_alive(), LIMIT_S, "the reader to give up")


def test_a_proxy_that_is_announced_before_it_is_reached_does_not_answer(place: ProxiedPlace) -> None:
    place.bound(LOG)
    with StruckProxy("early", place.ensemble, PATH, BehindClock(0)) as proxy, pytest.raises(ProxyUnreachable):
        ReachedProxies({}).call(proxy.name, "ask", b"", LIMIT_S)


@pytest.mark.parametrize("end", [StruckProxy.end, StruckProxy.switch_off], ids=lambda end: end.__name__)
def test_transaction_ids_do_not_go_back_with_a_proxy_whose_clock_is_behind(
    place: ProxiedPlace, end: Callable[[StruckProxy], None]
) -> None:
    namespace = place.bound(LOG)
    proxies: dict[str, StruckProxy] = {}
    for name, hours in (("true", 0), ("behind", 1), ("true again", 0)):
        before = list(proxies.values())
        proxies[name] = place.stack.enter_context(StruckProxy(name, place.ensemble, PATH, BehindClock(hours)))
        for proxy in before[-1:]:
            end(proxy)
            place.ensemble.expire(proxy.session)
        with client_of(place, proxies).open_writer(LOG, timeout_s=LIMIT_S) as writer:
            writer.write(name.encode()).result(LIMIT_S)
            writer.write_bulk(batch_of(name.encode(), name.encode())).result(LIMIT_S)
        assert proxies[name].service.logs == [LOG]
    records = everything(namespace)
    expect_ids_in_order(records)
    by_name = {name: {one.txid for one in records if one.payload.decode() == name} for name in proxies}
    assert by_name["behind"] == {max(by_name["true"])}, "it gives the last id there was until its clock has got there"


def everything(namespace: LogNamespace) -> list[LogRecord]:
    """All that is in the log."""
    with namespace.open_reader(LOG) as reader:
        return [record for records in iter(partial(reader.read, 1000), []) for record in records]


def expect_ids_in_order(records: list[LogRecord]) -> None:
    txids = [record.txid for record in records]
    assert txids == sorted(txids), f"transaction ids go back: {txids}"
