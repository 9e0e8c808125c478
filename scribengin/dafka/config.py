"""What a user can say about Dafka's roles: the keys and defaults of the C programs, in YAML.

Times are in milliseconds, as theirs are. Without `insecure: true` a role is reached over this machine's loopback only:
nothing on the wire is encrypted, and nobody says who they are.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from scribengin.base.model import Config

_ADDRESS = r"^tcp://[^\s:]+:(\d{1,5}|\*)$"


class BeaconConfig(Config):
    """How a role finds the others."""

    interval: int = Field(default=1000, ge=10)
    """It says so often where it is, in milliseconds."""
    timeout: int = Field(default=4000, ge=20)
    """A peer that is silent for so long is left, in milliseconds."""
    sub_address: tuple[str, ...] = ("tcp://127.0.0.1:5556",)
    """Where towers take beacons: one address, or several."""
    pub_address: tuple[str, ...] = ("tcp://127.0.0.1:5557",)
    """Where towers tell of others: one address, or several."""
    address: str = ""
    """The host at which others reach this role. Empty: the one that towers see it come from."""

    @field_validator("sub_address", "pub_address", mode="before")
    @classmethod
    def _one_or_several(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value


class TowerConfig(Config):
    """Where a tower listens."""

    sub_address: str = Field(default="tcp://127.0.0.1:5556", pattern=_ADDRESS)
    """It takes beacons here."""
    pub_address: str = Field(default="tcp://127.0.0.1:5557", pattern=_ADDRESS)
    """It tells of others here."""


class DafkaProducerConfig(Config):
    """What a producer keeps."""

    head_interval: int = Field(default=1000, ge=10)
    """It says so often how far it has published, in milliseconds."""
    high_watermark: int = Field(default=1_000_000, ge=1)
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
    high_watermark: int = Field(default=1_000_000, ge=1)
    """With so many records unread, it takes no more from the network."""
    exact: bool = True
    """Only records of the topic itself. Else of all topics that begin so, as the C programs do."""
    skip_gone: bool = False
    """Go on with what is kept where nobody keeps what comes next, instead of raising RecordsGone."""


class DafkaConfig(Config):
    """Everything about Dafka's roles. Each role takes what is its own."""

    beacon: BeaconConfig = BeaconConfig()
    tower: TowerConfig = TowerConfig()
    producer: DafkaProducerConfig = DafkaProducerConfig()
    consumer: DafkaConsumerConfig = DafkaConsumerConfig()
    insecure: bool = False
    """Be reached by other machines, though nothing is encrypted."""
