"""Control clients of Kafka: one of a connection, which stays for the next user; a few of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from scribengin.connectors.kafka.client.client import KafkaControl, made_by
from scribengin.connectors.kafka.client.connection import KafkaConnectionConfig

CLUSTERS = [f"cluster-{k}:1" for k in range(7)]


@pytest.fixture
def made() -> Iterator[list[dict[str, Any]]]:
    """The settings of all clients that were made."""
    settings: list[dict[str, Any]] = []

    def make(_kind: Any, given: dict[str, Any]) -> object:
        settings.append(given)
        return object()

    with ExitStack() as stack:
        for bootstrap in CLUSTERS:
            stack.enter_context(made_by(bootstrap, make))
        yield settings


def looked(config: KafkaConnectionConfig) -> KafkaControl:
    control = KafkaControl.of(config)
    control.release()
    return control


def test_users_that_come_and_go_make_one_client(made: list[dict[str, Any]]) -> None:
    config = KafkaConnectionConfig(bootstrap=CLUSTERS[0])
    assert len({looked(config) for _ in range(1000)}) == 1
    assert len(made) == 1


def test_a_client_that_nobody_uses_is_not_kept_beyond_its_settings(made: list[dict[str, Any]], tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    config = KafkaConnectionConfig(bootstrap=CLUSTERS[0], client_file=str(file))
    file.write_text("sasl.password=old\n")
    used = KafkaControl.of(config)
    file.write_text("sasl.password=new\n")
    assert looked(config) is used, "somebody has it: it is one connection"
    used.release()
    assert looked(config) is not used
    assert [settings["sasl.password"] for settings in made] == ["old", "new"]


def test_few_clients_stay_and_those_that_were_used_last(made: list[dict[str, Any]]) -> None:
    configs = [KafkaConnectionConfig(bootstrap=bootstrap) for bootstrap in CLUSTERS]
    used = KafkaControl.of(configs[0])
    first = [looked(config) for config in configs[1:]]
    assert looked(configs[0]) is used, "it has a user"
    again = [looked(config) for config in configs[1:]]
    assert [old is new for old, new in zip(first, again, strict=True)] == [False] * 6, "each came when it had gone"
    assert looked(configs[6]) is again[5]
    assert looked(configs[3]) is again[2]
    assert looked(configs[1]) is not again[0]
    used.release()
    assert len(made) == 1 + 6 + 6 + 1
