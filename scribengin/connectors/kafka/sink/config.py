"""What a user writes for a Kafka topic as a sink. Read without Kafka's client."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator

from scribengin.base.model import Config
from scribengin.connectors.contract import Endpoint, ReadBack, SinkConfig
from scribengin.connectors.kafka.client.connection import TOPIC, ClientValue, KafkaConnectionConfig
from scribengin.connectors.kafka.source.config import KafkaSourceConfig

_TOPIC = re.compile(r"^[A-Za-z0-9._-]{1,249}$")


class TopicConfig(Config):
    """How a topic is made that is not there yet."""

    partitions: int = Field(default=1, ge=1, le=100_000)
    """How many partitions it gets."""
    replication: int = Field(default=-1, ge=-1, le=10_000)
    """How many copies of each partition; -1: as the brokers are configured."""
    config: dict[str, ClientValue] = {}
    """Settings of the topic, under Kafka's own names."""

    @field_validator("replication")
    @classmethod
    def _some_copies(cls, value: int) -> int:
        if value == 0:
            raise ValueError("a partition has one copy or more; -1 is as many as the brokers are configured for")
        return value


class KafkaSinkConfig(SinkConfig, KafkaConnectionConfig):
    """One topic. Every task writes to it; records without a key or a partition of their own go to one partition a task.

    An output may have the columns `key`, `headers`, `timestamp` and `partition` (with `format: json`: `_key` ...).
    Where `timestamp` is null, the record gets the time at which it is written. Kafka has milliseconds: what is finer is
    cut off. 0 ms since 1970 is written as 1, and -1 as -2: they would be taken for now, and for no time. A header whose
    key has a NUL is refused: it would be cut there.

    Where the brokers have rules about who may do what, `exactly_once` needs Write and Read of the topic. It also needs
    Write of transactional ids, and Read of groups, that begin with `transactional_id_prefix`.
    """

    kind: Literal["kafka"]
    """A topic of Kafka. Needs the extra `kafka`."""
    topic: str
    """The topic's name."""
    create: TopicConfig | None = None
    """Make the topic if it is missing. Without it a missing topic is an error."""
    guarantee: Literal["exactly_once", "at_least_once"] = "exactly_once"
    """`exactly_once`: a transaction a round; readers with `isolation.level=read_committed` see each record once.
    `at_least_once`: no transactions; after a crash the last round's records are there again."""
    partition_by: Literal["key", "stream"] = "key"
    """`key`: records with a key go where Java's producer puts that key. `stream`: all of a task's go to one partition,
    and stay in order. A record's own `partition` comes first."""
    tombstones: bool = False
    """Whether a payload may be null, which deletes its key from a compacted topic. Else it is an error."""
    transaction_timeout_s: float = Field(default=60.0, ge=1, le=900)
    """For how long a round may hold a transaction open. Readers of committed records wait for it, also when the task
    has died, until then or until another owner takes it over."""
    transactional_id_prefix: str = Field(default="scribengin", min_length=1, max_length=100)
    """What the names of transactions and of their groups begin with, for rules about who may use which."""

    @field_validator("topic")
    @classmethod
    def _a_topic(cls, value: str) -> str:
        if not _TOPIC.fullmatch(value) or value in (".", ".."):
            raise ValueError(f"'{value}' is no name of a topic (letters, digits, '.', '_' and '-', at most 249)")
        return value

    def endpoint(self) -> Endpoint:
        return Endpoint(TOPIC, self.system(), self.topic)

    def read_back(self) -> ReadBack:
        connection = {key: getattr(self, key) for key in KafkaConnectionConfig.model_fields}
        return ReadBack(KafkaSourceConfig(kind="kafka", topics=[self.topic], **connection), ".*")
