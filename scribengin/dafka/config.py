"""What a user can say about Dafka's roles: the keys and defaults of the C programs, in YAML.

Times are in milliseconds, as theirs are. Without keys (`curve`) nothing on the wire is encrypted, and nobody says who
they are. So a role is then reached over this machine's loopback only, unless `insecure: true` is said.
"""

from __future__ import annotations

import importlib.util
import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from scribengin.base.model import Config
from scribengin.dafka.curve import WITHOUT_SOCKETS, CurveConfig
from scribengin.errors import ConfigInvalid


def _has_a_port(address: str) -> str:
    """Raises ValueError: sockets would take another port in place of one that there is not."""
    port = address.rpartition(":")[2]
    if port != "*" and int(port) > _PORT_MAX:
        raise ValueError(f"port {port} is none: they end with {_PORT_MAX}")
    return address


_PORT_MAX = 65_535
_TowerAddress = Annotated[str, Field(pattern=r"^tcp://[^\s:]+:\d{1,5}$"), AfterValidator(_has_a_port)]
_OF_LOOPBACK = re.compile(r"tcp://(127(\.\d{1,3}){3}|localhost):")
_WHOLE_MAX = (1 << 31) - 1
"""Sockets take no larger number, as the C programs, and as milliseconds it is more than three weeks."""
_ListeningAddress = Annotated[str, Field(pattern=r"^tcp://[^\s:]+:(\d{1,5}|\*)$"), AfterValidator(_has_a_port)]


def require_sockets() -> None:
    """Raise ConfigInvalid where the library of the roles' sockets is not installed."""
    if importlib.util.find_spec("zmq") is None:
        raise ConfigInvalid(WITHOUT_SOCKETS)


class BeaconConfig(Config):
    """How a role finds the others."""

    interval: int = Field(default=1000, ge=10, le=_WHOLE_MAX)
    """It says so often where it is, in milliseconds."""
    timeout: int = Field(default=4000, ge=20, le=_WHOLE_MAX)
    """A peer that is silent for so long is left, in milliseconds."""
    sub_address: tuple[_TowerAddress, ...] = Field(default=("tcp://127.0.0.1:5556",), min_length=1)
    """Where towers take beacons: one address, or several."""
    pub_address: tuple[_TowerAddress, ...] = Field(default=("tcp://127.0.0.1:5557",), min_length=1)
    """Where towers tell of others: one address, or several."""
    address: str = ""
    """The host at which others reach this role. Empty: the one that towers see it come from."""

    @field_validator("sub_address", "pub_address", mode="before")
    @classmethod
    def _one_or_several(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value


class TowerConfig(Config):
    """Where a tower listens."""

    sub_address: _ListeningAddress = "tcp://127.0.0.1:5556"
    """It takes beacons here."""
    pub_address: _ListeningAddress = "tcp://127.0.0.1:5557"
    """It tells of others here."""


class DafkaProducerConfig(Config):
    """What a producer keeps."""

    head_interval: int = Field(default=1000, ge=10, le=_WHOLE_MAX)
    """It says so often how far it has published, in milliseconds."""
    high_watermark: int = Field(default=1_000_000, ge=1, le=_WHOLE_MAX)
    """With so many records unacknowledged, `publish` waits."""
    when_full: Literal["wait", "raise"] = "wait"
    terminate_unacked: bool = False
    """Close without waiting for acknowledgements, as far as they are missing."""
    min_acks: int = Field(default=1, ge=1)
    """A record is kept until so many different stores have it."""


class DafkaConsumerConfig(Config):
    """Where a consumer begins, and what it takes."""

    offset_reset: Literal["earliest", "latest"] = "latest"
    """In a partition of which it has no position. `offset/reset` of the C programs."""
    high_watermark: int = Field(default=1_000_000, ge=1, le=_WHOLE_MAX)
    """With so many records unread, it takes no more from the network."""
    exact: bool = True
    """Only records of the topic itself. Else of all topics that begin so, as the C programs do."""
    skip_gone: bool = False
    """Go on with what is kept where nobody keeps what comes next, instead of raising RecordsGone."""


class DafkaNetworkConfig(Config):
    """Where a role finds the others, and who they may be."""

    beacon: BeaconConfig = BeaconConfig()
    """How it finds the others, and they find it."""
    curve: CurveConfig | None = None
    """Keys: who may talk to a role, encrypted. Other machines may reach it then."""
    insecure: bool = False
    """Be reached by other machines, though nothing is encrypted."""
    batches: bool = True
    """Exchange many records in one frame with roles that take that. C programs get a frame for each in any case."""

    @property
    def is_for_other_machines(self) -> bool:
        """Whether roles may be reached by other machines."""
        return self.insecure or self.curve is not None

    def addresses(self) -> tuple[str, ...]:
        """Where it connects to and listens, as far as that is said."""
        return (*self.beacon.sub_address, *self.beacon.pub_address)

    @model_validator(mode="after")
    def _on_this_machine(self) -> Self:
        for address in self.addresses():
            if not self.is_for_other_machines and not _OF_LOOPBACK.match(address):
                raise ValueError(
                    f"{address} is reached by other machines, and nothing is encrypted; name keys in `curve`, say "
                    "`insecure: true`, or use tcp://127.0.0.1"
                )
        return self

    @model_validator(mode="after")
    def _of_one_mind(self) -> Self:
        if self.curve is None:
            return self
        if self.insecure:
            raise ValueError("`curve` encrypts everything, and `insecure: true` nothing: take one of them out")
        beacon, keys = self.beacon, len(self.curve.tower_key)
        if keys > 1 and not keys == len(beacon.sub_address) == len(beacon.pub_address):
            raise ValueError(
                f"curve.tower_key has {keys} keys: say one for all towers, or one for each address of "
                "beacon.sub_address and of beacon.pub_address, in their order"
            )
        return self


class DafkaConfig(DafkaNetworkConfig):
    """Everything about Dafka's roles. Each role takes what is its own."""

    tower: TowerConfig = TowerConfig()
    producer: DafkaProducerConfig = DafkaProducerConfig()
    consumer: DafkaConsumerConfig = DafkaConsumerConfig()

    def addresses(self) -> tuple[str, ...]:
        return (*super().addresses(), self.tower.sub_address, self.tower.pub_address)
