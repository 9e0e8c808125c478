"""Configurations of the C programs: what of them means the same here, and what is refused, in which words."""

from __future__ import annotations

import pytest

from scribengin.dafka import DafkaConfig
from scribengin.dafka.zpl.programs import parse_program_config
from scribengin.errors import ConfigInvalid

ALL_KEYS = """\
# every key that the C programs have
beacon
    interval = 500      # ms
    timeout = 2000
    verbose = 1
    sub_address = tcp://127.0.0.1:1556
    pub_address = 'tcp://127.0.0.1:1557'
    address = "127.0.0.1"
tower
    sub_address = tcp://127.0.0.1:1556
    pub_address = tcp://127.0.0.1:1557
    verbose = 0
producer
    verbose = 0
    head_interval = 200
    high_watermark = 5000
    terminate_unacked = 1
consumer
    offset
        reset = earliest
    high_watermark = 6000
    verbose = 0
store
    verbose = 1
"""


def config_of(text: str) -> DafkaConfig:
    return DafkaConfig.parse(parse_program_config(text, source="dafka.cfg"), source="dafka.cfg")


def test_each_key_of_the_c_programs_means_the_same() -> None:
    beacon = {
        "interval": 500,
        "timeout": 2000,
        "sub_address": "tcp://127.0.0.1:1556",
        "pub_address": "tcp://127.0.0.1:1557",
        "address": "127.0.0.1",
    }
    assert config_of(ALL_KEYS) == DafkaConfig.model_validate(
        {
            "beacon": beacon,
            "tower": {"sub_address": "tcp://127.0.0.1:1556", "pub_address": "tcp://127.0.0.1:1557"},
            "producer": {"head_interval": 200, "high_watermark": 5000, "terminate_unacked": True},
            "consumer": {"offset_reset": "earliest", "high_watermark": 6000},
        }
    )
    assert config_of("") == config_of("beacon\nconsumer\n    offset\n") == DafkaConfig()


def test_keys_that_only_we_have_are_taken_too_and_several_towers_are_several_lines() -> None:
    text = (
        "insecure = 1\nproducer\n    min_acks = 2\nbeacon\n    sub_address = tcp://a:1\n    pub_address = tcp://a:2\n"
        "    sub_address = tcp://b:1\n    pub_address = tcp://b:2\n"
    )
    config = config_of(text)
    assert (config.insecure, config.producer.min_acks) == (True, 2)
    assert config.beacon.sub_address == ("tcp://a:1", "tcp://b:1")
    assert config.beacon.pub_address == ("tcp://a:2", "tcp://b:2")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("beacon\n    intervall = 1", "dafka.cfg line 2: unknown key 'beacon/intervall': did you mean 'beacon/in"),
        ("tower\nserver\n    background = 1", "dafka.cfg line 2: unknown key 'server'"),
        ("store\n    db = storedb", "dafka.cfg line 2: 'store/db' means nothing here: a store keeps records as logs"),
        ("store\n    high_watermark = 1", "dafka.cfg line 2: 'store/high_watermark' means nothing here"),
        ("beacon/interval = 1", "dafka.cfg line 1: 'beacon/interval' is no key: write 'interval' below its section"),
        ("beacon\n\nbeacon", "dafka.cfg line 3: 'beacon' was said in line 1: say it once"),
        ("beacon\n    interval = 1\n    interval = 2", "dafka.cfg line 3: 'beacon/interval' was said in line 2"),
        ("beacon = 1", "dafka.cfg line 1: 'beacon' has a value: it has keys"),
        ("beacon\n    interval", "dafka.cfg line 2: 'beacon/interval' has no value"),
        ("beacon\n    interval = 20\n        x = 1", "dafka.cfg line 3: unknown key 'beacon/interval/x'"),
        ("beacon\n    interval = fast", "dafka.cfg: beacon.interval: 'fast' is no whole number"),
        ("tower\n    sub_address = tcp://*:5556", "dafka.cfg: tcp://*:5556 is reached by other machines"),
        ("beacon\n   interval = 1", "dafka.cfg line 2: it is indented by 3 spaces"),
    ],
)
def test_what_means_nothing_is_one_line_that_says_where(text: str, words: str) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        config_of(text)
    assert str(refused.value).startswith(words)
    assert "\n" not in str(refused.value)
