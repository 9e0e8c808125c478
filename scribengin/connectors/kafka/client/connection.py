"""How to reach a Kafka cluster: what a user writes, and the settings of librdkafka that come of it.

One library does everything, records and control alike, so whatever secures the connection is written once, under
librdkafka's own names: `client: {security.protocol: SASL_SSL, sasl.mechanism: PLAIN, ssl.ca.location: /etc/ca.pem}`.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import field_validator

from scribengin.base.model import RESTART, Config
from scribengin.errors import ConfigInvalid
from scribengin_registry.references import resolved_all

TOPIC = "topic"
"""The noun of what Kafka keeps records in."""
ClientValue = str | int | float | bool
_ADDRESS = re.compile(r"^[^\s,]+:\d+$")
_OURS = {
    "bootstrap.servers": "write it as `bootstrap`",
    "metadata.broker.list": "write it as `bootstrap`",
    "client.id": "it names the dataflow",
    "group.id": "a source has `group` for that",
    "transactional.id": "it belongs to the task",
    "isolation.level": "a source has `isolation` for that",
    "auto.offset.reset": "a source has `start` and `on_expired` for that",
    "enable.auto.commit": "positions are the round's",
    "enable.auto.offset.store": "positions are the round's",
    "enable.partition.eof": "the source relies on it",
    "enable.idempotence": "a sink has `guarantee` for that",
    "acks": "what is committed must be safe",
    "request.required.acks": "what is committed must be safe",
}
"""Settings that a user may not pass, and why."""
_OF_PROGRAMS = re.compile(r".*_cb|logger|on_commit|on_delivery|default\.topic\.config")
"""Settings that take a function, or the like: a configuration has none."""
_BASE: dict[str, ClientValue] = {
    # Lost connections are tried again soon: the default goes up to 10 s, which a restarted broker would be waited for.
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1000,
    "log.connection.close": False,
    "allow.auto.create.topics": False,
    "topic.metadata.refresh.interval.ms": 30_000,
    "log_level": 0,  # what goes wrong is raised, in one line; `client: {log_level: 7, debug: all}` tells more
}


class KafkaConnectionConfig(Config):
    """The keys by which sources and sinks alike reach their cluster. They say nothing of what is there, so they may be
    edited in a sink, too: brokers get other addresses, and users other passwords."""

    bootstrap: Annotated[str, RESTART]
    """`host:port` of a broker, or several with commas."""
    client: Annotated[dict[str, ClientValue], RESTART] = {}
    """Settings of librdkafka: TLS, SASL, sizes, timeouts. `${env:...}` and `${file:...}` are resolved where a client is
    made."""
    client_file: Annotated[str | None, RESTART] = None
    """A file of more such settings, a line `key=value` each, on every machine: for what shall not stand in the
    registry, like passwords. Its settings win."""

    @field_validator("bootstrap")
    @classmethod
    def _addresses(cls, value: str) -> str:
        parts = [part.strip() for part in value.split(",")]
        wrong = next((part for part in parts if not _ADDRESS.fullmatch(part)), None)
        if wrong is not None:
            raise ValueError(f"'{wrong}' is not of the form host:port (several are separated by commas)")
        return ",".join(parts)

    @field_validator("client")
    @classmethod
    def _not_ours(cls, value: dict[str, ClientValue]) -> dict[str, ClientValue]:
        refuse_ours(value)
        return value

    def system(self) -> str:
        """The brokers that are named, in an order of their own."""
        return ",".join(sorted(self.bootstrap.split(",")))

    def is_cluster(self, system: str) -> bool:
        """Whether those brokers are of the same cluster, as far as names tell: one of them is named here, too."""
        return bool(set(system.split(",")) & set(self.bootstrap.split(",")))


def refuse_ours(settings: Mapping[str, ClientValue]) -> None:
    """Raise ValueError for a setting that is not the user's to make."""
    for key in settings:
        if key in _OURS:
            raise ValueError(f"'{key}' is set by Scribengin: {_OURS[key]}")
        if _OF_PROGRAMS.fullmatch(key):
            raise ValueError(f"'{key}' takes what only a program has, such as a function")


def settings(config: KafkaConnectionConfig, client_id: str, **more: object) -> dict[str, Any]:
    """What a client of librdkafka is made with. `more` are settings by name, `_` for `.`, and win over everything.

    `client_id` is what the broker's logs and quotas call the client. Raises ConfigInvalid (`client_file`),
    ReferenceMissing.
    """
    return {
        **_BASE,
        **resolved_all(config.client),
        **_of_file(config.client_file),
        "bootstrap.servers": config.bootstrap,
        "client.id": client_id,
        **{key.replace("_", "."): value for key, value in more.items()},
    }


def is_time(time_ms: int) -> bool:
    """Whether Kafka can be asked for it. Below 0 it has words of its own: -1 is the end, and -2 the beginning."""
    return 0 <= time_ms < 2**63


def connection_key(config: KafkaConnectionConfig) -> str:
    """The same for two configurations that mean the same connection: what clients are shared by. Also a cluster's
    identity, as far as it can be known without asking it."""
    return json.dumps([config.bootstrap, config.client, config.client_file], sort_keys=True)


def require_client() -> None:
    """Raise ConfigInvalid where Kafka's client is not installed."""
    if importlib.util.find_spec("confluent_kafka") is None:
        raise ConfigInvalid("`kind: kafka` needs Kafka's client: pip install 'scribengin[kafka]'")


def _of_file(path: str | None) -> dict[str, ClientValue]:
    if path is None:
        return {}
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"client_file {path} cannot be read ({error}): it must be on every machine") from None
    found: dict[str, ClientValue] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigInvalid(f"client_file {path}, line {number}: not of the form key=value")
        found[key.strip()] = value.strip()
    try:
        refuse_ours(found)
    except ValueError as error:
        raise ConfigInvalid(f"client_file {path}: {error}") from None
    return found
