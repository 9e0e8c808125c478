"""Dafka's roles with keys: who is let in, who is not, and that nothing is read of them or told to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import zmq

from scribengin.dafka import DafkaConfig, DafkaConsumer, DafkaProducer, DafkaStore, DafkaTower
from scribengin.dafka.curve import fingerprint_of
from scribengin.dafka.role import Role
from scribengin.dafka.wire import Beacon, PeerBeacon, encode_beacon, encode_peer
from scribengin.errors import ConfigInvalid
from scribengin.log import LogNamespace
from scribengin.testing.memory.registry import MemoryRegistry
from scribengin.testing.waiting import wait_until
from tests.integration.dafka.dafka_keys import (
    FAILED,
    LIMIT_MS,
    SUCCEEDED,
    KeyRing,
    expect_handshake,
    handshakes_of,
    impostor,
    roles_with,
    stranger,
    tower_with,
    with_keys,
)
from tests.integration.dafka.dafka_roles import LISTENING, config_of, next_role_listens_at, read

ROLES = ("tower", "producer", "consumer", "store")
KINDS = ("producer", "consumer", "writer", "reader")
"""Roles with a socket of their own that others connect to: a store is two of them."""


@pytest.fixture
def keys(tmp_path: Path) -> KeyRing:
    return KeyRing(tmp_path)


@pytest.fixture
def logs(memory_registry: MemoryRegistry, tmp_path: Path) -> Iterator[LogNamespace]:
    LogNamespace.bind("/logs", tmp_path / "logs", registry=memory_registry)
    with LogNamespace.open("/logs", registry=memory_registry) as namespace:
        yield namespace


@pytest.fixture
def tower(keys: KeyRing) -> Iterator[DafkaTower]:
    """One that knows all roles, and no stranger."""
    with tower_with(keys.section("tower", *ROLES)) as tower:
        yield tower


@pytest.fixture
def config_for(tower: DafkaTower, keys: KeyRing) -> Callable[[str], DafkaConfig]:
    """Of a role with its own key pair, which knows all others."""
    return lambda name: roles_with(tower, keys.section(name, *ROLES), producer={"terminate_unacked": True})


@pytest.fixture
def role_of(config_for: Callable[[str], DafkaConfig], logs: LogNamespace) -> Iterator[Callable[[str], Role]]:
    """The role of a kind, running."""
    with ExitStack() as running:

        def started(kind: str) -> Role:
            if kind == "producer":
                return running.enter_context(DafkaProducer("flights", config_for("producer")))
            if kind == "consumer":
                return running.enter_context(DafkaConsumer(["flights"], config_for("consumer")))
            store = running.enter_context(DafkaStore(logs, config_for("store")))
            return store._writer if kind == "writer" else store._reader

        yield started


def owner_of(kind: str) -> str:
    """Whose key pair a kind has."""
    return "store" if kind in ("writer", "reader") else kind


def test_roles_that_know_each_other_publish_store_and_read(
    config_for: Callable[[str], DafkaConfig], logs: LogNamespace, tower: DafkaTower
) -> None:
    with DafkaStore(logs, config_for("store")) as store:
        with DafkaConsumer(["flights"], config_for("consumer")) as live:
            with DafkaProducer("flights", config_for("producer")) as producer:
                assert producer.publish_many([b"%d" % n for n in range(500)]).result(60) == range(500)
            assert len(read(live, 500)) == 500
        with DafkaConsumer(["flights"], config_for("consumer")) as late:
            assert [record.content for record in read(late, 500)] == [b"%d" % n for n in range(500)]
        store.check()
    assert (tower.refused_peers, live.refused_peers, producer.refused_peers) == (0, 0, 0)


def test_roles_that_share_a_key_pair_need_to_say_nothing_more(keys: KeyRing) -> None:
    section = {"key": keys.file("shared")}
    with tower_with(section) as tower:
        config = roles_with(tower, section, producer={"terminate_unacked": True})
        with DafkaProducer("flights", config) as producer, DafkaConsumer(["flights"], config) as consumer:
            producer.publish(b"1")
            assert [record.content for record in read(consumer, 1)] == [b"1"]


def test_each_of_several_towers_may_have_a_key_of_its_own(tower: DafkaTower, keys: KeyRing) -> None:
    known = keys.section("producer", "consumer") | {"tower_key": keys.public("tower", "second")}
    with tower_with(keys.section("second", *ROLES)) as second:
        both = {
            "sub_address": (tower.sub_address, second.sub_address),
            "pub_address": (tower.pub_address, second.pub_address),
        }
        config = DafkaConfig.model_validate({"beacon": both, "curve": known, "producer": {"terminate_unacked": True}})
        of_second = roles_with(second, keys.section("consumer", "producer", tower="second"))
        with DafkaProducer("flights", config) as producer, DafkaConsumer(["flights"], of_second) as consumer:
            producer.publish(b"1")
            assert [record.content for record in read(consumer, 1)] == [b"1"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_stranger_is_let_in_by_no_role_and_told_nothing(
    kind: str, role_of: Callable[[str], Role], keys: KeyRing
) -> None:
    role = role_of(kind)
    with stranger(zmq.SUB, keys.pair("stranger"), server=keys.public(owner_of(kind))[0]) as one:
        one.setsockopt(zmq.SUBSCRIBE, b"")
        with handshakes_of(one, SUCCEEDED) as successes:
            one.connect(role.endpoint)
            wait_until(lambda: role.refused_peers > 0)
            if isinstance(role, DafkaProducer):
                role.publish(b"secret")
            assert (successes.poll(0), one.poll(0)) == (0, 0)
    role.check_open()


@pytest.mark.parametrize("kind", KINDS)
def test_who_has_no_key_or_expects_another_one_gets_nowhere(
    kind: str, role_of: Callable[[str], Role], keys: KeyRing
) -> None:
    role = role_of(kind)
    for one in (stranger(zmq.SUB), stranger(zmq.SUB, keys.pair("consumer"), server=keys.public("stranger")[0])):
        with one as subscriber, handshakes_of(subscriber) as failures:
            subscriber.setsockopt(zmq.SUBSCRIBE, b"")
            subscriber.connect(role.endpoint)
            expect_handshake(failures)
            assert subscriber.poll(0) == 0
    role.check_open()


def test_a_tower_takes_no_beacon_of_strangers_and_tells_them_of_nobody(
    tower: DafkaTower, keys: KeyRing, config_for: Callable[[str], DafkaConfig]
) -> None:
    public = keys.public("tower")[0]
    for pair in (keys.pair("stranger"), None):
        with (
            stranger(zmq.SUB, pair, server=public) as hearing,
            stranger(zmq.PUB, pair, server=public) as saying,
            handshakes_of(hearing, SUCCEEDED if pair else FAILED) as heard,
            handshakes_of(saying, SUCCEEDED if pair else FAILED) as said,
        ):
            hearing.setsockopt(zmq.SUBSCRIBE, b"")
            hearing.connect(tower.pub_address)
            saying.connect(tower.sub_address)
            saying.send_multipart(encode_beacon(Beacon("AA" * 16, "127.0.0.1", 9)))
            if pair is None:
                expect_handshake(heard)
                expect_handshake(said)
            else:
                wait_until(lambda: tower.refused_peers >= 2)
            with (
                DafkaProducer("flights", config_for("producer")) as producer,
                DafkaConsumer(["flights"], config_for("consumer")) as consumer,
            ):
                producer.publish(b"1")
                read(consumer, 1)
                assert set(consumer.peers) == {producer.address}
            assert hearing.poll(0) == 0
            if pair is not None:  # who has no key tries again, and fails again
                assert (heard.poll(0), said.poll(0)) == (0, 0)
    tower.check()


@pytest.mark.parametrize("kind", ROLES[1:])
@pytest.mark.parametrize("with_key", [True, False], ids=["another key", "no key"])
def test_a_role_tells_nothing_to_who_only_stands_where_its_tower_was(
    kind: str, with_key: bool, keys: KeyRing, logs: LogNamespace
) -> None:
    pair = keys.pair("stranger") if with_key else None
    with impostor(zmq.XPUB, pair) as (telling, pub), impostor(zmq.XSUB, pair) as (hearing, sub):
        addresses = {"beacon": {"sub_address": sub, "pub_address": pub}, "producer": {"terminate_unacked": True}}
        config = with_keys(DafkaConfig.model_validate(addresses), keys.section(kind, *ROLES))
        with handshakes_of(telling) as told, handshakes_of(hearing) as heard, open_role(kind, config, logs):
            expect_handshake(told)
            expect_handshake(heard)
            assert (telling.poll(0), hearing.poll(0)) == (0, 0)


def open_role(kind: str, config: DafkaConfig, logs: LogNamespace) -> Any:
    if kind == "producer":
        return DafkaProducer("flights", config)
    return DafkaConsumer(["flights"], config) if kind == "consumer" else DafkaStore(logs, config)


@pytest.mark.parametrize("kind", ROLES[1:])
def test_a_role_asks_nothing_of_who_only_stands_where_a_peer_is_said_to_be(
    kind: str, keys: KeyRing, logs: LogNamespace
) -> None:
    """A tower that tells of places wrongly learns nothing: whoever is there has to have the key."""
    pair = keys.pair("tower")
    with impostor(zmq.XPUB, pair) as (telling, pub), impostor(zmq.XSUB, pair) as (_, sub):
        addresses = {"beacon": {"sub_address": sub, "pub_address": pub}, "producer": {"terminate_unacked": True}}
        config = with_keys(DafkaConfig.model_validate(addresses), keys.section(kind, *ROLES))
        with (
            impostor(zmq.XPUB, keys.pair("stranger")) as (peer, endpoint),
            handshakes_of(peer) as handshakes,
            open_role(kind, config, logs) as role,
        ):
            assert telling.poll(LIMIT_MS)
            for name in ("stranger", "consumer"):
                telling.send_multipart(encode_peer(PeerBeacon("AA" * 16, endpoint, *keys.pair(name).allowed)))
            expect_handshake(handshakes)
            assert peer.poll(0) == 0
            role.check() if kind == "store" else role.check_open()


def test_roles_without_keys_and_roles_with_them_find_nobody_in_each_other(
    tower: DafkaTower, config_for: Callable[[str], DafkaConfig], keys: KeyRing
) -> None:
    with (
        DafkaTower(LISTENING) as clear,
        DafkaProducer("flights", config_of(tower, producer={"terminate_unacked": True})) as lost,
        DafkaProducer("flights", config_for("producer")) as producer,
        DafkaConsumer(["flights"], config_for("consumer")) as consumer,
        DafkaConsumer(["flights"], config_of(tower)) as deaf,
        DafkaConsumer(["flights"], roles_with(clear, keys.section("consumer", *ROLES))) as astray,
        DafkaProducer("flights", config_of(clear, producer={"terminate_unacked": True})) as plain,
        DafkaConsumer(["flights"], config_of(clear)) as open_to_all,
    ):
        for one, content in ((lost, b"0"), (producer, b"1"), (plain, b"2")):
            one.publish(content)
        assert [record.content for record in read(consumer, 1)] == [b"1"]
        assert [record.content for record in read(open_to_all, 1)] == [b"2"]
        assert (set(consumer.peers), set(open_to_all.peers)) == ({producer.address}, {plain.address})
        assert (deaf.peers, lost.peers, astray.peers) == ({}, {}, {})


def test_a_role_on_the_port_of_one_that_had_another_key_is_connected_to_by_its_own(
    config_for: Callable[[str], DafkaConfig],
) -> None:
    with DafkaConsumer(["flights"], config_for("consumer")) as consumer:
        with DafkaProducer("flights", config_for("producer")) as ended:
            ended.publish(b"1")
            read(consumer, 1)
        with next_role_listens_at(ended.endpoint):
            producer = DafkaProducer("flights", config_for("store"))
        with producer:
            producer.publish(b"2")
            assert [(one.partition, one.content) for one in read(consumer, 1)] == [(producer.partition, b"2")]
            assert set(consumer.peers) == {producer.address}


def test_a_role_whose_key_is_not_allowed_says_that_it_waits(
    tower: DafkaTower, keys: KeyRing, caplog: pytest.LogCaptureFixture
) -> None:
    config = roles_with(tower, keys.section("stranger", *ROLES))
    soon = config.beacon.model_copy(update={"timeout": 100})
    with DafkaConsumer(["flights"], config.model_copy(update={"beacon": soon})):
        wait_until(lambda: caplog.messages)
    fingerprint = fingerprint_of(keys.pair("stranger").public)[:16]
    assert caplog.messages == [
        f"no tower has answered the consumer at {tower.pub_address} so far, and it goes on trying: is one there, and "
        f"does it allow the key {fingerprint}...?"
    ]


def test_who_was_refused_is_let_in_once_the_tower_that_is_started_anew_knows_it(keys: KeyRing) -> None:
    names = ("tower", "producer", "consumer")
    known = keys.section("tower", "producer")
    with tower_with(known) as tower:
        addresses = {"sub_address": tower.sub_address, "pub_address": tower.pub_address}
        config = roles_with(tower, keys.section("consumer", *names), producer={"terminate_unacked": True})
        producer = DafkaProducer("flights", with_keys(config, keys.section("producer", *names)))
        consumer = DafkaConsumer(["flights"], config)
        wait_until(lambda: tower.refused_peers > 0)
    longer = DafkaConfig.model_validate({"tower": addresses, "curve": keys.section("tower", *names)})
    with DafkaTower(longer), producer, consumer:
        producer.publish(b"1")
        assert [record.content for record in read(consumer, 1)] == [b"1"]


def test_a_file_of_keys_that_others_can_read_opens_no_role(keys: KeyRing, logs: LogNamespace) -> None:
    keys.file("tower").chmod(0o640)
    config = with_keys(LISTENING, {"key": keys.file("tower")})
    for opened in (DafkaTower, lambda said: DafkaProducer("flights", said), lambda said: DafkaStore(logs, said)):
        with pytest.raises(ConfigInvalid, match="can be read by other users"):
            opened(config)
