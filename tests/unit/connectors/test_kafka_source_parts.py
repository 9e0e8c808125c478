"""What of the Kafka source decides without a broker: connections, positions, places, columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition

from scribengin.connectors.kafka.client.client import Troubles, engine_error, made_by
from scribengin.connectors.kafka.client.connection import KafkaConnectionConfig, connection_key, settings
from scribengin.connectors.kafka.client.ends import PartitionEnds
from scribengin.connectors.kafka.source.config import KafkaSourceConfig, time_ms
from scribengin.connectors.kafka.source.position import KafkaPosition, begin_of
from scribengin.connectors.kafka.source.reading import KafkaSplit, PartitionConsumer, Reading
from scribengin.errors import (
    ConfigInvalid,
    DataflowError,
    PositionTruncated,
    RangeGone,
    ScribenginError,
    SystemUnreachable,
)

WHAT = "source 'in', partition t/0"


def connection(**values: object) -> KafkaConnectionConfig:
    return KafkaConnectionConfig.parse({"bootstrap": "a:1, b:2", **values}, source="a test")


def test_what_secures_a_connection_passes_through_and_what_is_ours_wins() -> None:
    made = settings(connection(client={"security.protocol": "SSL", "fetch.wait.max.ms": 7}), "me", fetch_wait_max_ms=9)
    assert made["bootstrap.servers"] == "a:1,b:2"
    assert (made["security.protocol"], made["fetch.wait.max.ms"], made["client.id"]) == ("SSL", 9, "me")


def test_a_client_file_holds_what_shall_not_stand_in_the_registry(tmp_path: Path) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text("# secret\n\nsasl.password = a=b\n")
    assert settings(connection(client_file=str(file)), "me")["sasl.password"] == "a=b"
    file.write_text("sasl.password\n")
    with pytest.raises(ConfigInvalid, match="line 1: not of the form key=value"):
        settings(connection(client_file=str(file)), "me")
    file.write_text("group.id=g\n")
    with pytest.raises(ConfigInvalid, match=r"'group\.id' is set by Scribengin"):
        settings(connection(client_file=str(file)), "me")
    with pytest.raises(ConfigInvalid, match=r"absent cannot be read .*it must be on every machine"):
        settings(connection(client_file=str(tmp_path / "absent")), "me")


def test_the_same_connection_has_the_same_key() -> None:
    assert connection_key(connection()) == connection_key(connection(bootstrap="a:1,b:2"))
    assert connection_key(connection()) != connection_key(connection(client={"debug": "all"}))


def test_a_position_survives_and_an_operator_may_leave_the_topics_id_out() -> None:
    position = KafkaPosition(17, "id")
    assert KafkaPosition.parse(position.to_position(), what=WHAT) == position
    assert KafkaPosition.parse({"offset": 3}, what=WHAT) == KafkaPosition(3)


def test_a_position_is_judged_by_what_the_partition_holds() -> None:
    ends = PartitionEnds(begin=10, end=20, topic_id="new")
    assert begin_of(KafkaPosition(10, "new"), ends, "error", what=WHAT) == (KafkaPosition(10, "new"), None)
    assert begin_of(KafkaPosition(20), ends, "error", what=WHAT) == (KafkaPosition(20), None)
    for lost in (KafkaPosition(9, "new"), KafkaPosition(9), KafkaPosition(15, "old"), KafkaPosition(30, "old")):
        with pytest.raises(PositionTruncated):
            begin_of(lost, ends, "error", what=WHAT)
        assert begin_of(lost, ends, "earliest", what=WHAT)[0] == KafkaPosition(10, "new")
        assert begin_of(lost, ends, "latest", what=WHAT)[0] == KafkaPosition(20, "new")
    with pytest.raises(DataflowError, match="the partition ends at 20 now"):
        begin_of(KafkaPosition(21, "new"), ends, "earliest", what=WHAT)


def test_a_broker_without_topic_ids_has_only_its_offsets() -> None:
    assert begin_of(KafkaPosition(15, "old"), PartitionEnds(10, 20), "error", what=WHAT)[1] is None


def test_a_time_names_its_zone_or_is_utc() -> None:
    assert time_ms("1970-01-01T00:00:01") == time_ms("1970-01-01T01:00:01+01:00") == time_ms(1000) == 1000


def test_partitions_in_json_are_numbers_again() -> None:
    config = KafkaSourceConfig.parse(
        {"kind": "kafka", "bootstrap": "h:1", "topics": "t", "start": {"t": {"0": 5}}}, source="a test"
    )
    assert config.start == {"t": {0: 5}}
    assert KafkaSourceConfig.parse(config.model_dump(mode="json"), source="again") == config


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        (KafkaError._ALL_BROKERS_DOWN, SystemUnreachable),
        (KafkaError.LEADER_NOT_AVAILABLE, SystemUnreachable),
        (KafkaError._AUTHENTICATION, ConfigInvalid),
        (KafkaError._MSG_TIMED_OUT, SystemUnreachable),
        (KafkaError.NOT_ENOUGH_REPLICAS, SystemUnreachable),
        (KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND, SystemUnreachable),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, ConfigInvalid),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ConfigInvalid),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, DataflowError),
        (KafkaError.INVALID_PARTITIONS, DataflowError),
    ],
)
def test_what_passes_is_told_from_what_does_not(code: int, raised: type[Exception]) -> None:
    error = engine_error(KafkaError(code), "h:1", "listing topics")
    assert type(error) is raised
    assert str(error).startswith("Kafka at h:1, listing topics: ")


def test_a_timeout_is_explained_by_what_the_client_said_meanwhile() -> None:
    troubles = Troubles()
    troubles(KafkaError(KafkaError._AUTHENTICATION, "wrong password"))
    troubles(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    troubles(KafkaError(KafkaError._TRANSPORT, "disconnected"))
    error = engine_error(KafkaError(KafkaError._TIMED_OUT), "h:1", "listing topics", troubles.take())
    assert isinstance(error, ConfigInvalid)
    assert "wrong password" in str(error)
    assert troubles.take() is None


def test_a_batch_that_the_client_does_not_decompress_is_told_with_the_setting_that_bounds_it() -> None:
    error = engine_error(KafkaError(KafkaError._BAD_COMPRESSION), "h:1", "reading t/0")
    assert type(error) is DataflowError
    assert "Kafka at h:1, reading t/0" in str(error)
    assert "receive.message.max.bytes" in str(error)


class LateClient:
    """A consumer to which something comes that is about what it read before."""

    def __init__(self, *late: Message) -> None:
        self._queue = list(late)
        self.closed = False

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        for each in partitions:
            self._queue.append(Message(topic=each.topic, partition=each.partition, offset=each.offset, value=b"1"))

    def poll(self, _timeout_s: float) -> Message | None:
        return self._queue.pop(0) if self._queue else None

    def consume(self, count: int, _timeout_s: float) -> list[Message]:
        taken, self._queue = self._queue[:count], self._queue[count:]
        return taken

    def close(self) -> None:
        self.closed = True

    def late(self, message: Message) -> None:
        self._queue.append(message)


def told(topic: str, code: int, offset: int = 500, partition: int = 0) -> Message:
    return Message(topic=topic, partition=partition, offset=offset, error=KafkaError(code))


def split_at(start: int, records: int = 1) -> KafkaSplit:
    return KafkaSplit(Reading(connection(), "read_committed", "keep"), "t", "id", 0, start, start + records, records, 1)


def values(consumer: PartitionConsumer, split: KafkaSplit) -> list[bytes | None]:
    consumer.seek(split)
    return [message.value() for messages in consumer.read(split.end) for message in messages]


def read_with(*clients: Any, start: int = 0, records: int = 1) -> list[bytes | None]:
    given = iter(clients)
    with made_by("a:1,b:2", lambda _kind, _conf: next(given)):
        split = split_at(start, records)
        return values(PartitionConsumer(split), split)


@pytest.mark.parametrize("code", [KafkaError._AUTO_OFFSET_RESET, KafkaError._PARTITION_EOF], ids=("gone", "its end"))
def test_what_comes_late_about_another_partition_says_nothing_of_this_one(code: int) -> None:
    assert read_with(LateClient(told("read before", code))) == [b"1"]
    assert read_with(LateClient(told("read before", code), told("read before", code)), records=1) == [b"1"]
    assert read_with(LateClient(told("t", code, partition=1))) == [b"1"]


def test_what_is_gone_of_this_partition_is_told() -> None:
    with pytest.raises(RangeGone, match="t/0: the records from offset 0 on are gone"):
        read_with(LateClient(told("t", KafkaError._AUTO_OFFSET_RESET)))


def test_what_was_gone_before_the_range_says_nothing_of_it() -> None:
    lost = KafkaError._AUTO_OFFSET_RESET
    assert read_with(LateClient(told("t", lost, offset=499)), start=500) == [b"1"]
    with pytest.raises(RangeGone, match="t/0: the records from offset 500 on are gone"):
        read_with(LateClient(told("t", lost, offset=500)), start=500)


def test_who_goes_back_in_a_partition_hears_nothing_of_where_it_was() -> None:
    """What is gone there may be behind where the range begins now: only another client has not been told."""
    first, second = LateClient(), LateClient()
    given = iter([first, second])
    with made_by("a:1,b:2", lambda _kind, _conf: next(given)):
        consumer = PartitionConsumer(split_at(7))
        assert values(consumer, split_at(7)) == values(consumer, split_at(9)) == [b"1"]
        assert not first.closed
        first.late(told("t", KafkaError._AUTO_OFFSET_RESET, offset=10))
        assert values(consumer, split_at(3, records=1)) == [b"1"]
    assert (first.closed, second.closed) == (True, False)


@pytest.mark.parametrize("offset", [-1001, 0])
def test_an_error_of_the_topic_is_one_of_its_partition(offset: int) -> None:
    denied = told("t", KafkaError.TOPIC_AUTHORIZATION_FAILED, offset, partition=-1)
    with pytest.raises(ScribenginError, match="reading t/0"):
        read_with(LateClient(denied))
    assert read_with(LateClient(told("read before", denied.error().code(), offset, partition=-1))) == [b"1"]


def test_nobody_needs_leave_for_a_group_that_is_never_used() -> None:
    denied = Message(offset=-1001, error=KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    assert read_with(LateClient(denied)) == [b"1"]


@pytest.mark.parametrize(("topic", "partition"), [("t", 1), ("read before", 0)])
def test_records_of_another_partition_are_no_records_of_this_one(topic: str, partition: int) -> None:
    late = [Message(topic=topic, partition=partition, offset=number, value=b"late") for number in (0, 3)]
    assert read_with(LateClient(*late)) == [b"1"]
    assert read_with(LateClient(late[1])) == [b"1"]
