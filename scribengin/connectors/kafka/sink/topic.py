"""What a sink must know of its topic and of the cluster, and how a topic is made. Asked for when it is needed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from scribengin.base.failpoints import failpoint
from scribengin.base.threads import pause
from scribengin.connectors.kafka.client.client import REQUEST_TIMEOUT_S, Troubles, engine_error, made
from scribengin.connectors.kafka.client.connection import KafkaConnectionConfig, settings
from scribengin.connectors.kafka.sink.config import TopicConfig
from scribengin.errors import SystemUnreachable

_T = TypeVar("_T")
_BYTES_MAX_DEFAULT = 1_048_588
_TIME_BOUNDS = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
_ANY_TIME_MS = 2**62
_LOOK_S = 0.05
_LOOKS_MAX = 200
_UNKNOWN = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})
_NOT_ALLOWED = frozenset({KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED})


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What writing a topic depends on: `bytes_max` is the size of the largest batch of records that it takes.

    A record's own time may be `behind_max_ms` before the broker's and `ahead_max_ms` after it; None: any will do.
    """

    partitions: int
    bytes_max: int
    behind_max_ms: int | None = None
    ahead_max_ms: int | None = None
    cluster_id: str = ""


class Topic:
    """One topic, as its writers see it. Raises SystemUnreachable, ConfigInvalid, DataflowError as
    `client.engine_error`."""

    def __init__(self, config: KafkaConnectionConfig, topic: str) -> None:
        """Raises ConfigInvalid for settings that librdkafka refuses."""
        self.name = topic
        self._bootstrap = config.bootstrap
        self._troubles = Troubles()
        self._admin: AdminClient = made(AdminClient, settings(config, "scribengin-sink"), self._troubles)

    def cluster_id(self) -> str:
        """The cluster's own name for itself."""
        return str(self._asked("asking for the cluster's id", lambda: self._metadata().cluster_id))

    def facts(self) -> TopicFacts | None:
        """What the topic is like now; None if there is none."""
        cluster = self._asked(f"looking for topic {self.name}", self._metadata)
        found = cluster.topics.get(self.name)
        if found is None or (found.error is not None and found.error.code() in _UNKNOWN):
            return None
        if found.error is not None:
            raise engine_error(found.error, self._bootstrap, f"looking for topic {self.name}", self._troubles.take())
        told = self._settings(ConfigResource(ResourceType.TOPIC, self.name))
        if told is None:
            return None
        bounds = (None, None) if told.get("message.timestamp.type") == "LogAppendTime" else map(told.get, _TIME_BOUNDS)
        behind_max_ms, ahead_max_ms = (
            None if bound is None or int(bound) >= _ANY_TIME_MS else int(bound) for bound in bounds
        )
        return TopicFacts(
            len(found.partitions),
            int(told.get("max.message.bytes", _BYTES_MAX_DEFAULT)),
            behind_max_ms,
            ahead_max_ms,
            str(cluster.cluster_id),
        )

    def create(self, config: TopicConfig) -> None:
        """Make the topic, and return once it is known: brokers hear of it after its maker. That somebody else was
        faster is no error."""
        wanted = NewTopic(
            self.name, config.partitions, config.replication, config={k: _text(v) for k, v in config.config.items()}
        )
        with failpoint("kafka.topic_create"):
            (made_,) = self._admin.create_topics([wanted], operation_timeout=REQUEST_TIMEOUT_S).values()
            self._answer(f"creating topic {self.name}", made_, but=KafkaError.TOPIC_ALREADY_EXISTS)
        for _look in range(_LOOKS_MAX):
            if self.facts() is not None:
                return
            pause(_LOOK_S)
        raise SystemUnreachable(
            f"Kafka at {self._bootstrap}: topic {self.name} was created, and is not known yet; it is waited for"
        )

    def broker_settings(self) -> dict[str, str]:
        """The settings of one of the brokers, by name; empty for who may not see them."""
        brokers = self._asked("asking for the brokers", self._metadata).brokers
        return (self._settings(ConfigResource(ResourceType.BROKER, str(min(brokers)))) or {}) if brokers else {}

    def _settings(self, resource: ConfigResource) -> dict[str, str] | None:
        """Empty for who may not see them; None where there is no such thing."""
        (future,) = self._admin.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S).values()
        try:
            found = future.result()
        except KafkaException as error:
            if error.args[0].code() in _NOT_ALLOWED:
                return {}
            if error.args[0].code() in _UNKNOWN:
                return None
            raise engine_error(error.args[0], self._bootstrap, "asking for settings", self._troubles.take()) from None
        return {name: entry.value for name, entry in found.items() if entry.value is not None}

    def _metadata(self) -> Any:
        return self._admin.list_topics(timeout=REQUEST_TIMEOUT_S)

    def _asked(self, doing: str, ask: Callable[[], _T]) -> _T:
        try:
            answer = ask()
        except KafkaException as error:
            raise engine_error(error.args[0], self._bootstrap, doing, self._troubles.take_from(self._admin)) from None
        self._troubles.take_from(self._admin)
        return answer

    def _answer(self, doing: str, future: Future[Any], *, but: int) -> None:
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() != but:
                raise engine_error(error.args[0], self._bootstrap, doing, self._troubles.take()) from None


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
