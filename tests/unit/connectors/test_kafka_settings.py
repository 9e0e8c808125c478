"""What Kafka's client cannot be told is refused where it is written, in one line that names it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from scribengin.connectors.kafka.client.client import KafkaControl, Troubles, made, made_by
from scribengin.connectors.kafka.client.connection import KafkaConnectionConfig, settings
from scribengin.connectors.kafka.sink.config import KafkaSinkConfig
from scribengin.connectors.kafka.source.config import KafkaSourceConfig
from scribengin.errors import ConfigInvalid

OF_PROGRAMS = [
    "stats_cb",
    "oauth_cb",
    "throttle_cb",
    "error_cb",
    "log_cb",
    "dr_msg_cb",
    "logger",
    "on_commit",
    "on_delivery",
    "default.topic.config",
]


def source(**values: Any) -> KafkaSourceConfig:
    return KafkaSourceConfig.parse({"kind": "kafka", "bootstrap": "a:1", "topics": "t", **values}, source="a test")


def sink(**values: Any) -> KafkaSinkConfig:
    return KafkaSinkConfig.parse({"kind": "kafka", "bootstrap": "a:1", "topic": "t", **values}, source="a test")


@pytest.mark.parametrize("name", OF_PROGRAMS)
@pytest.mark.parametrize("value", [1, True, "text"])
def test_a_setting_that_takes_what_only_a_program_has_is_refused(name: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match=f"client: .*'{name}' takes what only a program has"):
        source(client={name: value})
    file = tmp_path / "kafka.properties"
    file.write_text(f"{name}={value}\n")
    config = KafkaConnectionConfig.parse({"bootstrap": "a:1", "client_file": str(file)}, source="a test")
    with pytest.raises(ConfigInvalid, match=f"client_file .*'{name}' takes what only a program has"):
        settings(config, "me")


@pytest.mark.parametrize("kind", [AdminClient, Consumer, Producer])
@pytest.mark.parametrize("wrong", [{"stats_cb": 1}, {"throttle_cb": "x"}, {"default.topic.config": 1}, {"linger": 1}])
def test_whatever_the_client_refuses_its_settings_with_it_is_told_as_one_line(kind: Any, wrong: dict[str, Any]) -> None:
    told = {"bootstrap.servers": "a:1", "group.id": "g", "log_level": 0, **wrong}
    with pytest.raises(ConfigInvalid, match=r"Kafka's client refuses its settings: .*; correct `client`") as raised:
        made(kind, told, Troubles())
    assert "\n" not in str(raised.value)


def test_a_setting_in_a_file_that_has_to_be_no_text_is_told_too() -> None:
    told = {"bootstrap.servers": "a:1", "log_level": 0, "delivery.report.only.error": "true"}
    with pytest.raises(ConfigInvalid, match=r"Expected delivery\.report\.only\.error to be bool type, not str"):
        made(Producer, told, Troubles())


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ({"transaction_timeout_s": 0.999}, "transaction_timeout_s"),
        ({"create": {"partitions": 100_001}}, "create.partitions"),
        ({"create": {"partitions": 2**40}}, "create.partitions"),
        ({"create": {"replication": 10_001}}, "create.replication"),
        ({"create": {"replication": 0}}, "create.replication"),
    ],
    ids=str,
)
def test_numbers_that_the_client_or_brokers_refuse_are_none(wrong: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigInvalid, match=key.replace(".", r"\.")):
        sink(**wrong)


def test_the_least_and_the_largest_numbers_are_taken_by_the_client() -> None:
    config = sink(transaction_timeout_s=1, create={"partitions": 100_000, "replication": 10_000})
    timeout_ms = round(config.transaction_timeout_s * 1000)
    told = settings(config, "me", transactional_id="x", transaction_timeout_ms=timeout_ms)
    assert isinstance(made(Producer, told, Troubles()), Producer)
    admin, create = made(AdminClient, settings(config, "me"), Troubles()), config.create
    assert create is not None
    assert list(admin.create_topics([NewTopic("t", create.partitions, create.replication)])) == ["t"]
    assert sink(create={"replication": -1}).create is not None


@pytest.mark.parametrize("place", [-1, -2, 2**63, "1969-12-31T23:59:59Z", "-1"])
@pytest.mark.parametrize("key", ["start", "until"])
def test_a_time_that_kafka_does_not_know_is_none(key: str, place: Any) -> None:
    """It has words below 0: -1 is the end, and -2 the beginning."""
    with pytest.raises(ConfigInvalid, match=rf"{key}: "):
        source(**{key: place})


@pytest.mark.parametrize("time_ms", [-1, -2, -100, 2**63])
def test_a_partition_is_not_asked_for_such_a_time(time_ms: int) -> None:
    with made_by("a:1", lambda _kind, _conf: object()):
        control = KafkaControl(KafkaConnectionConfig(bootstrap="a:1"))
        with pytest.raises(ConfigInvalid, match=f"Kafka has times from 1970 on, and {time_ms} ms is none"):
            control.offset_at(("t", 0), time_ms, "read_committed")
