"""The Kafka server for tests and benchmarks: a real broker, Kafka's own tools on it, its data there after a restart."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from scribengin.errors import ServerDown
from scribengin_dev.servers.kafka import KafkaServer

pytestmark = pytest.mark.servers  # also of those that start their own

PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


@pytest.mark.full
def test_what_its_producer_writes_its_consumer_reads_after_a_restart(own_kafka: KafkaServer) -> None:
    own_kafka.create_topic("restarted")
    own_kafka.run(PRODUCER, ["--topic", "restarted"], stdin="one\ntwo\n")
    pid, bootstrap = own_kafka.pid, own_kafka.bootstrap
    assert pid is not None
    own_kafka.stop()
    assert own_kafka.pid is None
    assert not psutil.pid_exists(pid)
    own_kafka.start()
    assert own_kafka.bootstrap == bootstrap
    words = ["--topic", "restarted", "--from-beginning", "--max-messages", "2", "--timeout-ms", "60000"]
    assert own_kafka.run(CONSUMER, words).split() == ["one", "two"]


@pytest.mark.full
def test_a_tool_that_fails_says_why(own_kafka: KafkaServer) -> None:
    with pytest.raises(ServerDown, match=r"(?s)TopicCommand ended with exit status 1.*does not exist"):
        own_kafka.delete_topic("never-made")


def test_a_broker_that_does_not_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_text("version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\nnode.id=7\n")
    with pytest.raises(ServerDown, match=r"(?s)the server kafka ended at once.*node[. ]id"):
        KafkaServer(tmp_path).start()
