"""What a user writes about Dafka sources and sinks. Reads without the library of their sockets."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import quote

from pydantic import AfterValidator, Field

from scribengin.connectors.contract import RECORD_BYTES_MAX, Endpoint, SinkConfig, SourceConfig
from scribengin.dafka import DafkaConfig, DafkaNetworkConfig
from scribengin.dafka.wire import GetHeads, encode
from scribengin.errors import FrameInvalid
from scribengin.log import DEFAULT_NAMESPACE

KIND = "dafka"
NOUN = "Dafka topic"


def _fits(topic: str) -> str:
    """Raises ValueError for what no frame can carry."""
    try:
        encode(GetHeads(topic, ""))
    except FrameInvalid as error:
        raise ValueError(str(error)) from None
    if len(topic.encode()) > _TOPIC_BYTES_MAX:
        raise ValueError(f"is {len(topic.encode())} bytes long; {_TOPIC_BYTES_MAX} fit")
    return topic


_TOPIC_BYTES_MAX = 255
_FORGET_AFTER_MIN_S = 5.0
"""Producers say once a second that they are there, by default: a few of those may get lost."""
DafkaTopic = Annotated[str, Field(min_length=1), AfterValidator(_fits)]
"""The name of a topic: at most 255 bytes of UTF-8, and no NUL."""


def endpoint_of(network: DafkaNetworkConfig, topic: str) -> Endpoint:
    """Where records of a topic are: those of the same towers are the same."""
    return Endpoint(NOUN, ",".join(sorted(network.beacon.sub_address)), topic)


def roles_config(network: DafkaNetworkConfig, **sections: object) -> DafkaConfig:
    """The config of roles on that network; `sections` are of DafkaConfig."""
    shared = {name: getattr(network, name) for name in DafkaNetworkConfig.model_fields}
    return DafkaConfig.model_validate({**shared, **sections})


class DafkaSourceConfig(DafkaNetworkConfig, SourceConfig):
    """A topic to read, live and from stores. Every producer is a stream, `<topic>/<producer>`; new ones are found while
    the dataflow runs.

    A record's topic, producer and sequence are columns beside its payload. A record that is read before a store has it
    is read from its producer again, should a round be repeated: where the producer has died by then, it is lost.
    """

    kind: Literal["dafka"]
    """A topic of Dafka. Needs the extra `dafka`."""
    topic: DafkaTopic
    """The name of the topic; it is matched exactly."""
    start: Literal["earliest", "latest"] = "earliest"
    """Where producers are read from that are there when the dataflow is first split into tasks; whoever comes later is
    read whole."""
    skip_gone: bool = False
    """Go on with what is kept where nobody keeps what comes next. False: the task stops, and says so."""
    forget_after_s: float | None = Field(default=600.0, ge=_FORGET_AFTER_MIN_S)
    """A producer that has said nothing for so long, and of which everything is read, is done with: its task ends, and
    goes on where it stands if the producer comes back. None: it never is. Well more than the `head_interval` at which
    producers that publish nothing say that they are there."""
    held_bytes_max: int = Field(default=16 * 1024 * 1024, ge=1024)
    """So much of each stream is held for the next round. What comes beyond that is fetched later."""
    record_bytes_max: int = Field(default=RECORD_BYTES_MAX, ge=1)
    """A record that takes more is a bad one."""

    def endpoint(self) -> Endpoint:
        return endpoint_of(self, self.topic)

    def reads(self, thing: Endpoint) -> bool:
        return thing == self.endpoint()

    @property
    def endless(self) -> bool:
        return True


class DafkaSinkConfig(DafkaNetworkConfig, SinkConfig):
    """A topic to publish to. Every stream is a producer, which goes on under its name and its sequences wherever the
    task works: whoever reads by sequence, as consumers do, gets each record once.

    A round waits in a log until it was decided about, and until stores have it.
    """

    kind: Literal["dafka"]
    """A topic of Dafka. Needs the extra `dafka`."""
    topic: DafkaTopic
    """The name of the topic."""
    min_acks: int = Field(default=1, ge=1)
    """A round is complete once so many different stores have it."""
    ack_timeout_s: float = Field(default=60.0, gt=0)
    """A round of which stores have taken nothing for so long is published again by whoever has the task then."""
    namespace: str = DEFAULT_NAMESPACE
    """Where rounds wait: a node of the registry, or a whole URI, as of `kind: log`."""
    log: str | None = None
    """The logs in which they wait are `<log>/0` and so on. Default: `dafka-rounds/<topic>`. A producer's name comes
    from its log: who makes that anew is another producer."""

    def endpoint(self) -> Endpoint:
        return endpoint_of(self, self.topic)

    @property
    def waiting_log(self) -> str:
        """The name before the slash of the logs in which rounds wait."""
        return (self.log or f"dafka-rounds/{quote(self.topic, safe='')}").strip("/")
