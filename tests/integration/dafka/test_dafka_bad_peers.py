"""A peer that sends what is none of Dafka's, or far too much of it: every role goes on, and says so in one line."""

from __future__ import annotations

import logging
import random
import resource
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import cycle, islice

import pytest
import zmq

from scribengin.dafka import DafkaConsumer, DafkaProducer, DafkaStore, DafkaTower, role
from scribengin.dafka.wire import (
    Beacon,
    ConsumerHello,
    Fetch,
    GetHeads,
    Head,
    LiveRecord,
    encode,
    encode_beacon,
)
from scribengin.log import LogNamespace
from scribengin.testing.log_samples import bound_namespace
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryRegistry
from scribengin.testing.memory.segments import MEMORY_STORE
from scribengin.testing.waiting import wait_until
from tests.integration.dafka.dafka_roles import LISTENING, config_of, read
from tests.property.test_dafka_frames import mutated

FILES_MAX = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
STRANGER = uuid.UUID(int=7).hex.upper()


@pytest.fixture
def logs(memory_registry: MemoryRegistry) -> Iterator[LogNamespace]:
    disk = MemoryDisk("store")
    with bound_namespace(memory_registry, disk.name, store=MEMORY_STORE) as namespace:
        yield namespace


class BadPeer:
    """Known to a tower as a role, and connected to by all others."""

    def __init__(self, tower: DafkaTower, opened: ExitStack) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        opened.callback(self._context.term)
        self._out, self._beacons = self._socket(zmq.XPUB, opened), self._socket(zmq.PUB, opened)
        self._port = self._out.bind_to_random_port("tcp://127.0.0.1")
        self._beacons.connect(tower.sub_address)
        self._heard: set[bytes] = set()

    def _socket(self, kind: int, opened: ExitStack) -> zmq.Socket[bytes]:
        made = self._context.socket(kind)
        made.setsockopt(zmq.LINGER, 0)
        made.setsockopt(zmq.SNDHWM, 0)
        opened.callback(made.close)
        return made

    def is_heard(self, *prefixes: bytes) -> bool:
        """Whether somebody listens to each; says meanwhile that it is there."""
        self.beacon(encode_beacon(Beacon(STRANGER, "127.0.0.1", self._port)))
        while self._out.poll(10):
            self._heard.add(self._out.recv()[1:])
        return self._heard.issuperset(prefixes)

    def beacon(self, frames: list[bytes]) -> None:
        """To the tower."""
        self._beacons.send_multipart(frames)

    def send(self, frames: list[bytes]) -> None:
        """To whoever listens to that."""
        self._out.send_multipart(frames or [b""])


def test_whatever_a_peer_sends_all_roles_go_on_and_say_it_once(
    logs: LogNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    with ExitStack() as opened, caplog.at_level(logging.WARNING):
        tower = opened.enter_context(DafkaTower(LISTENING))
        config = config_of(tower)
        store = DafkaStore(logs, config)
        opened.callback(store.close)
        producer = opened.enter_context(DafkaProducer("flights", config))
        consumer = opened.enter_context(DafkaConsumer(["flights"], config))
        producer.publish_many([b"%d" % n for n in range(100)]).result(60)
        bad = BadPeer(tower, opened)
        mine, reader = producer.partition.address, store._reader
        to_reader = b"W" + reader.address.encode()
        wait_until(lambda: bad.is_heard(b"F" + mine.encode(), b"Mflights\0", b"M", b"F", to_reader))
        roles = [producer, consumer, store._writer, reader]
        spoil(bad, mine, reader.address)
        wait_until(lambda: all(role.invalid_frames for role in roles) and tower.invalid_frames > 0)
        for _ in range(20):  # after all of that
            bad.send([b"Mflights\0\1the end"])
        producer.publish_many([b"%d" % n for n in range(100, 200)]).result(60)
        found = [record for record in read(consumer, 200) if record.partition == producer.partition]
        assert [record.content for record in found] == [b"%d" % n for n in range(200)]
        assert store.stored[producer.partition].next == 200
        store.check()
    told = [record.getMessage() for record in caplog.records if "no message of Dafka's" in record.getMessage()]
    assert len(told) == len(set(told)) == len(roles) + 1
    assert all(len(line) < 500 and "\n" not in line for line in told)


def test_a_host_that_cannot_be_is_told_by_itself_and_hides_no_bad_message(caplog: pytest.LogCaptureFixture) -> None:
    with ExitStack() as opened, caplog.at_level(logging.WARNING):
        tower = opened.enter_context(DafkaTower(LISTENING))
        consumer = opened.enter_context(DafkaConsumer(["flights"], config_of(tower)))
        bad = BadPeer(tower, opened)
        wait_until(lambda: bad.is_heard(b"Mflights\0"))

        def told(words: str) -> list[str]:
            return [record.getMessage() for record in caplog.records if words in record.getMessage()]

        for number in range(2):
            bad.beacon(encode_beacon(Beacon(f"{number:032X}", "no such host", 1)))
        wait_until(lambda: len(told("cannot connect to 'tcp://no such host:1'")) == 1)
        assert consumer.invalid_frames == 0
        bad.send([b"Mflights\0\2"])
        wait_until(lambda: consumer.invalid_frames == 1)
        assert len(told("no message of Dafka's")) == 1
    assert len(told("cannot connect to")) == 1


def test_who_sees_that_something_was_bad_finds_it_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as opened:
        tower = opened.enter_context(DafkaTower(LISTENING))
        consumer = opened.enter_context(DafkaConsumer(["flights"], config_of(tower)))
        bad = BadPeer(tower, opened)
        wait_until(lambda: bad.is_heard(b"Mflights\0"))
        counted: list[int] = []
        monkeypatch.setattr(role._LOG, "warning", lambda _said: counted.append(consumer.invalid_frames))
        bad.send([b"Mflights\0\2"])
        wait_until(lambda: consumer.invalid_frames == 1)
        assert counted == [0]


@pytest.mark.parametrize("sockets", [None, 20], ids=["as many as it may have", "few"])
def test_a_producer_among_more_peers_than_it_has_sockets_goes_on_and_reaches_the_others_later(
    sockets: int | None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each peer of a producer takes a socket, and ZeroMQ has 1,023 by itself."""
    if sockets is not None:
        monkeypatch.setattr(role, "_SOCKETS_MAX", sockets)
    with ExitStack() as opened, caplog.at_level(logging.WARNING):
        tower = opened.enter_context(DafkaTower(LISTENING))
        config = config_of(tower, producer={"terminate_unacked": True})
        longer = config.model_copy(update={"beacon": config.beacon.model_copy(update={"timeout": 10_000})})
        producer = opened.enter_context(DafkaProducer("flights", longer if sockets is None else config))
        producer.publish_many([b"%d" % n for n in range(100)])
        bad = BadPeer(tower, opened)
        wait_until(lambda: bad.is_heard(b"K" + producer.address.encode()))

        def told() -> list[str]:
            return [record.getMessage() for record in caplog.records if "one more socket" in record.getMessage()]

        names = cycle([f"{number:032X}" for number in range(1100 if sockets is None else 30)])

        def too_many() -> bool:
            for name in islice(names, 50):  # the tower passes no more on at once
                bad.beacon(encode_beacon(Beacon(name, "127.0.0.1", 1 + int(name, 16))))
            producer.check_open()
            return bool(told()) or len(producer.peers) >= 1100

        wait_until(too_many)
        with DafkaConsumer(["flights"], config) as consumer:  # the made-up ones are forgotten by and by
            assert [record.content for record in read(consumer, 100)] == [b"%d" % n for n in range(100)]
        line = f"the producer {producer.address} cannot open one more socket, to reach a peer: Too many open files"
        said = {told_line.partition("; ")[0] for told_line in told()}
        assert said == ({line} if sockets is not None or FILES_MAX < 4000 else set())
        assert len(told()) == len(said)


def spoil(bad: BadPeer, producer: str, reader: str) -> None:
    """Other versions, changed bytes, a thousand hellos, fetches for far more than there is, heads that lie."""
    chosen = random.Random(17)
    record = encode(LiveRecord("flights", producer, "flights", 2**64 - 1, b"lie"))[0][:-8]
    fetch, hello = Fetch(producer, STRANGER, "flights", 0, 2**32 - 1), ConsumerHello(reader, STRANGER, ("flights",))
    right = [encode(fetch), encode(hello), encode(GetHeads("flights", STRANGER))]
    for frames in (*right, [record]):
        at = frames[0].index(b"\0") + 1
        bad.send([frames[0][:at] + b"\x02" + frames[0][at + 1 :], *frames[1:]])  # another version
    for number in range(1000):
        bad.send(encode(ConsumerHello(reader, f"{number:032X}", ("flights",) * 50)))
        bad.send(encode(fetch._replace(address=f"{number:032X}")))
        bad.send(encode(fetch._replace(address=f"{number:032X}", sequence=2**64 - 1)))
        bad.send(encode(Head("flights", f"{number:032X}", "flights", 2**64 - 1)))
        bad.send(mutated(chosen.choice([*right, [record, b"lie"]]), chosen))
        bad.beacon(mutated(encode_beacon(Beacon(f"{number:032X}", "no such host", 1)), chosen))
