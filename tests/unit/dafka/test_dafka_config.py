"""What can be said of Dafka's roles, and what is refused."""

from __future__ import annotations

import pytest
from zmq.utils import z85

from scribengin.dafka import DafkaConfig
from scribengin.errors import ConfigInvalid

KEY, OTHER = (z85.encode(bytes([n]) * 32).decode() for n in (1, 2))


def test_defaults_are_those_of_the_c_programs_on_this_machine() -> None:
    config = DafkaConfig.parse({}, source="the test")
    beacon, tower, producer = config.beacon, config.tower, config.producer
    assert (beacon.interval, beacon.timeout) == (1000, 4000)
    assert (beacon.sub_address, beacon.pub_address) == (("tcp://127.0.0.1:5556",), ("tcp://127.0.0.1:5557",))
    assert (tower.sub_address, tower.pub_address) == ("tcp://127.0.0.1:5556", "tcp://127.0.0.1:5557")
    assert (producer.head_interval, producer.high_watermark, producer.terminate_unacked) == (1000, 1_000_000, False)
    assert (config.consumer.offset_reset, config.consumer.high_watermark) == ("latest", 1_000_000)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"beacon": {"intervall": 1}}, "did you mean 'interval'"),
        ({"towers": {}}, "did you mean 'tower'"),
        ({"beacon": {"sub_address": "127.0.0.1:5556"}}, "beacon.sub_address"),
        ({"beacon": {"pub_address": []}}, "beacon.pub_address"),
        ({"beacon": {"pub_address": "tcp://127.0.0.1:65536"}}, "port 65536 is none: they end with 65535"),
        ({"tower": {"sub_address": "tcp://127.0.0.1:99999"}}, "port 99999 is none"),
        ({"beacon": {"sub_address": "tcp://10.0.0.1:5556"}}, "tcp://10.0.0.1:5556 is reached by other machines"),
        ({"beacon": {"pub_address": ["tcp://127.0.0.1:1", "tcp://host:2"]}}, "tcp://host:2 is reached"),
        ({"beacon": {"sub_address": "tcp://127.evil.example:1"}}, "is reached by other machines"),
        ({"tower": {"pub_address": "tcp://*:5557"}}, "say `insecure: true`"),
        ({"consumer": {"offset_reset": "last"}}, "consumer.offset_reset"),
        ({"producer": {"min_acks": 0}}, "producer.min_acks"),
        ({"beacon": {"interval": 2**31}}, "beacon.interval: 2147483648 is too high: at most 2147483647"),
        ({"beacon": {"timeout": 10**14}}, "beacon.timeout: 100000000000000 is too high"),
        ({"producer": {"head_interval": 10**400}}, "producer.head_interval"),
        ({"producer": {"high_watermark": 2**31}}, "producer.high_watermark: 2147483648 is too high"),
        ({"consumer": {"high_watermark": 10**12}}, "consumer.high_watermark: 1000000000000 is too high"),
        ({"curve": {}}, "curve.key: is missing"),
        ({"curve": {"key": "k", "allowed": ["short"]}}, "curve.allowed.0: is no public key: 40 characters, as"),
        ({"curve": {"key": "k", "allowed": ["#" * 40]}}, "curve.allowed.0: is no public key"),
        ({"curve": {"key": "k", "tower_key": '"' * 40}}, "curve.tower_key.0: is no public key"),
        ({"curve": {"key": "k"}, "insecure": True}, "take one of them out"),
        ({"curve": {"key": "k", "tower_key": [KEY, OTHER]}}, "curve.tower_key has 2 keys: say one for all towers, or"),
    ],
)
def test_what_makes_no_sense_is_one_line(said: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        DafkaConfig.parse(said, source="dafka.yaml")
    message = str(refused.value)
    assert message.startswith("dafka.yaml: ")
    assert words in message
    assert "\n" not in message


def test_who_says_insecure_is_reached_by_other_machines() -> None:
    said = {"insecure": True, "tower": {"sub_address": "tcp://*:5556"}, "beacon": {"sub_address": "tcp://host:5556"}}
    assert DafkaConfig.parse(said, source="the test").tower.sub_address == "tcp://*:5556"


def test_who_has_keys_is_reached_by_other_machines() -> None:
    said = {"curve": {"key": "own.key", "allowed": KEY}, "tower": {"sub_address": "tcp://*:5556"}}
    config = DafkaConfig.parse(said, source="the test")
    assert (config.is_for_other_machines, DafkaConfig().is_for_other_machines) == (True, False)


def test_keys_stand_in_no_repr_and_in_no_refusal() -> None:
    beacon = {"sub_address": ["tcp://host:1", "tcp://host:3"], "pub_address": ["tcp://host:2", "tcp://host:4"]}
    curve = {"key": "own.key", "allowed": [KEY], "tower_key": [KEY, OTHER]}
    config = DafkaConfig.parse({"beacon": beacon, "curve": curve}, source="the test")
    assert config.curve is not None
    assert KEY in config.curve.tower_key
    with pytest.raises(ConfigInvalid) as refused:
        DafkaConfig.parse({"curve": {**curve, "allowed": [KEY + "x"]}}, source="the test")
    for text in (repr(config), str(config), str(refused.value)):
        assert KEY not in text
        assert OTHER not in text
