"""`ChainConfig`: one file that describes several dataflows and the logs and topics between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from pydantic import Field, field_validator

from scribengin.base.model import Config
from scribengin.base.text.yaml_text import parse_yaml_file
from scribengin.connectors import AnySinkConfig, AnySourceConfig
from scribengin.connectors.contract import Endpoint
from scribengin.connectors.kafka.client.connection import TOPIC, KafkaConnectionConfig
from scribengin.connectors.kafka.kind import create_topic
from scribengin.connectors.kafka.sink.config import TopicConfig
from scribengin.connectors.log.reaching import open_namespace
from scribengin.connectors.log.source import NOUN as LOG
from scribengin.dataflow.config import DataflowConfig, PlainName, load_config
from scribengin.errors import ConfigInvalid, LogExists
from scribengin.log import DEFAULT_NAMESPACE, LogConfig
from scribengin_registry.contract import Registry

STREAMS_MAX = 10_000


class Between(Protocol):
    """What a chain creates between its dataflows where it is missing. `name` is the one that it has in the file."""

    def things(self, name: str) -> list[Endpoint]:
        """All that is created."""
        ...

    def read_by(self, name: str, source: AnySourceConfig) -> bool:
        """Whether the source reads any of it."""
        ...

    def written_by(self, name: str, sink: AnySinkConfig) -> bool:
        """Whether the sink writes it."""
        ...

    def create_missing(self, registry: Registry, name: str) -> None:
        """Create what is not there. Raises what its system raises."""
        ...


class ChainLogConfig(Config):
    """Logs that the chain creates where they are missing: with `streams`, `<name>/0` and so on, else the one of that
    name."""

    streams: int | None = Field(default=None, ge=1, le=STREAMS_MAX)
    """How many logs there are, `<name>/0` and so on. Without it: one, called `<name>`."""
    namespace: str = DEFAULT_NAMESPACE
    """The node of the registry where the logs are."""
    config: LogConfig = LogConfig()
    """How the logs are written, where they are created."""

    def logs(self, name: str) -> list[str]:
        """The logs that it means."""
        return [name] if self.streams is None else [f"{name.strip('/')}/{k}" for k in range(self.streams)]

    def things(self, name: str) -> list[Endpoint]:
        return [Endpoint(LOG, self.namespace, log) for log in self.logs(name)]

    def read_by(self, name: str, source: AnySourceConfig) -> bool:
        return any(source.reads(thing) for thing in self.things(name))

    def written_by(self, name: str, sink: AnySinkConfig) -> bool:
        return sink.endpoint() == Endpoint(LOG, self.namespace, name.strip("/"))

    def create_missing(self, registry: Registry, name: str) -> None:
        with open_namespace(self.namespace, registry=registry) as namespace:
            for log in self.logs(name):
                with suppress(LogExists):
                    namespace.create(log, self.config)


class ChainTopicConfig(KafkaConnectionConfig):
    """A topic that the chain makes if it is missing."""

    create: TopicConfig = TopicConfig()
    """How the topic is made if it is missing."""

    def things(self, name: str) -> list[Endpoint]:
        return [Endpoint(TOPIC, self.system(), name)]

    def read_by(self, name: str, source: AnySourceConfig) -> bool:
        """By its name alone: the same brokers may be named otherwise there."""
        return source.reads(Endpoint(TOPIC, source.endpoint().system, name))

    def written_by(self, name: str, sink: AnySinkConfig) -> bool:
        return (sink.endpoint().noun, sink.endpoint().name) == (TOPIC, name)

    def create_missing(self, registry: Registry, name: str) -> None:
        create_topic(self, name, self.create)


class ChainConfig(Config):
    """Several dataflows and what lies between them. `dataflows` are complete; their names are `<chain>-<their key>`."""

    name: PlainName
    """As a dataflow's. Its dataflows are called `<chain>-<their key>` in the registry."""
    logs: dict[str, ChainLogConfig] = {}
    """Logs between the dataflows, by name. They are created where they are missing."""
    topics: dict[str, ChainTopicConfig] = {}
    """Topics of Kafka between the dataflows, by name."""
    dataflows: dict[str, DataflowConfig] = Field(min_length=1)
    """The dataflows by name: each a descriptor without `name`, or the path of one beside the file."""

    def between(self) -> Iterator[tuple[str, str, Between]]:
        """What it creates between its dataflows: `(key of the file, name, what)`."""
        yield from (("logs", name, log) for name, log in self.logs.items())
        yield from (("topics", name, topic) for name, topic in self.topics.items())

    @field_validator("logs", "topics", mode="before")
    @classmethod
    def _nothing_is_a_default(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: {} if settings is None else settings for name, settings in value.items()}


def is_chain(source: str | Path) -> bool:
    """Whether a file describes a chain rather than one dataflow. False for what cannot be read: that is told by who
    reads it."""
    try:
        value = parse_yaml_file(Path(source), wanted="") if Path(source).is_file() else None
    except (OSError, ConfigInvalid):
        return False
    return isinstance(value, dict) and "dataflows" in value


def load_chain(path: str | Path, overrides: Mapping[str, str] | None = None) -> ChainConfig:
    """Read a chain's file. Each of its `dataflows` is a descriptor, or the path of one beside the file.

    `overrides` are dotted keys of a dataflow, `<dataflow>.<key>`, to YAML values. Relative paths of packages are taken
    from where their descriptor stands. Raises ConfigInvalid.
    """
    path = Path(path)
    value = _read(path)
    flows = value.get("dataflows")
    if not isinstance(flows, dict) or not flows:
        raise ConfigInvalid(f"{path}: dataflows: give at least one, as `<name>: <descriptor, or the path of one>`")
    of_flow = _overrides_by_flow(overrides or {}, flows)
    chain = str(value.get("name", ""))
    value["dataflows"] = {
        str(key): _dataflow(path, chain, str(key), flow, of_flow.get(str(key), {})) for key, flow in flows.items()
    }
    return with_topics(ChainConfig.parse(value, source=str(path)))


def with_topics(chain: ChainConfig) -> ChainConfig:
    """The chain with sinks that make the topics which it describes."""
    flows = {key: flow.model_copy(update={"sinks": _made(flow, chain)}) for key, flow in chain.dataflows.items()}
    return chain.model_copy(update={"dataflows": flows})


def _made(flow: DataflowConfig, chain: ChainConfig) -> dict[str, Any]:
    sinks: dict[str, Any] = {}
    for name, sink in flow.sinks.items():
        topic = chain.topics.get(sink.endpoint().name) if sink.endpoint().noun == TOPIC else None
        sinks[name] = sink if topic is None else sink.model_copy(update={"create": topic.create})
    return sinks


def _dataflow(path: Path, chain: str, key: str, flow: Any, overrides: Mapping[str, str]) -> dict[str, Any]:
    """A dataflow of the chain, complete and under its full name."""
    if isinstance(flow, str):
        loaded = load_config(path.parent / flow, overrides)
    elif isinstance(flow, dict):
        if "name" in flow:
            raise ConfigInvalid(f"{path}: dataflows.{key}: its name is '{key}' already; leave `name` out")
        package = str((path.parent / str(flow.get("package", "."))).resolve())
        try:
            loaded = load_config({**flow, "name": key, "package": package}, overrides)
        except ConfigInvalid as error:
            raise ConfigInvalid(f"{path}: dataflows.{key}: {str(error).removeprefix('the dataflow: ')}") from None
    else:
        raise ConfigInvalid(f"{path}: dataflows.{key}: give a descriptor, or the path of one")
    # Written out, the default would count as what the user has said: a chain on BookKeeper would lack its JVMs' room.
    unsaid = None if "memory_mb" in loaded.container.model_fields_set else {"container": {"memory_mb"}}
    return {**loaded.model_dump(mode="json", exclude_none=True, exclude=unsaid), "name": full_name(chain, key)}


def full_name(chain: str, key: str) -> str:
    """The name in the registry of a chain's dataflow."""
    return f"{chain}-{key}"


def _overrides_by_flow(overrides: Mapping[str, str], flows: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for dotted, text in overrides.items():
        flow, _, key = dotted.partition(".")
        if flow not in flows or not key:
            names = ", ".join(map(str, flows))
            raise ConfigInvalid(f"--set {dotted}: of a chain, write DATAFLOW.KEY=VALUE (its dataflows: {names})")
        found.setdefault(flow, {})[key] = text
    return found


def _read(path: Path) -> dict[str, Any]:
    value = parse_yaml_file(path, wanted="a chain's file (YAML or JSON)")
    if not isinstance(value, dict):
        raise ConfigInvalid(f"{path} holds no mapping: a chain begins with keys like name and dataflows")
    return value
