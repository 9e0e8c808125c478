"""Servers in containers, where a Docker engine answers: started, killed, started again, as processes are."""

from __future__ import annotations

from pathlib import Path

import pytest

from scribengin.errors import ServerDown
from scribengin.testing.waiting import wait_until
from scribengin_dev.servers.kafka import KafkaServer
from scribengin_dev.servers.zookeeper import ZooKeeperServers
from scribengin_registry.opening import connect
from tests.servers.provider import Provider

CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"


def test_a_zookeeper_in_a_container_keeps_its_nodes_when_it_is_killed(tmp_path: Path, provider: Provider) -> None:
    with ZooKeeperServers(tmp_path, servers=1, image=provider.images["zookeeper"]) as servers:
        with connect(servers.hosts) as registry:
            registry.create("/kept", b"1")
        servers.kill(0)
        assert servers.pids == {}
        servers.start_server(0)
        assert servers.leader() == 0
        with connect(servers.hosts) as registry:
            assert registry.get("/kept").data == b"1"


def test_a_kafka_in_a_container_keeps_its_records_when_it_is_killed(tmp_path: Path, provider: Provider) -> None:
    with KafkaServer(tmp_path, image=provider.images["kafka"]) as kafka:
        kafka.create_topic("kept")
        kafka.run(PRODUCER, ["--topic", "kept"], stdin="one\ntwo\n")
        bootstrap = kafka.bootstrap
        kafka.kill()
        assert kafka.pid is None
        kafka.start()
        assert kafka.bootstrap == bootstrap
        words = ["--topic", "kept", "--from-beginning", "--max-messages", "2", "--timeout-ms", "60000"]
        assert kafka.run(CONSUMER, words).split() == ["one", "two"]
        with pytest.raises(ServerDown, match=r"(?s)TopicCommand ended with exit status 1.*already exists"):
            kafka.create_topic("kept")
        pid = kafka.pid
        assert pid is not None
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), timeout_s=120)
