"""What the state machines tell the shells around them to do."""

from __future__ import annotations

from typing import NamedTuple

from scribengin.dafka.wire import Message


class DafkaPartition(NamedTuple):
    """What one producer publishes to one topic. `address` is the producer's."""

    subject: str
    address: str


class Send(NamedTuple):
    """Publish the message on the role's own socket."""

    message: Message


class Deliver(NamedTuple):
    """Hand the records to whoever reads: in order, from `sequence` on, without a gap."""

    partition: DafkaPartition
    sequence: int
    contents: list[bytes]


class Append(NamedTuple):
    """Make the records durable, then say so (`StoreState.durable`). They follow what was appended before, unless
    `sequence` is the first of the partition."""

    partition: DafkaPartition
    sequence: int
    contents: list[bytes]


class HaltPartition(NamedTuple):
    """Nobody keeps the records from `sequence` to `first_kept` any more. Nothing of the partition is handed out until
    somebody decides."""

    partition: DafkaPartition
    sequence: int
    first_kept: int


class GiveUpPartition(NamedTuple):
    """Nobody who is there can tell which record of the partition was the first at that time or later. Nothing of it is
    handed out. Who was asked and has not answered, and who was asked and knew nothing."""

    partition: DafkaPartition
    since_ms: int
    silent: tuple[str, ...] = ()
    knew_nothing: tuple[str, ...] = ()


class FindStored(NamedTuple):
    """Tell the requester which stored record is the first at that time or later."""

    to: str
    partition: DafkaPartition
    at_ms: int


class ReadStored(NamedTuple):
    """Send the requester so many stored records as DirectRecord, from `sequence` on."""

    to: str
    partition: DafkaPartition
    sequence: int
    records: int


class Connect(NamedTuple):
    """Connect to a peer's socket. `fingerprint`: of the key that it must have; "": none."""

    address: str
    endpoint: str
    fingerprint: str = ""


class DisconnectPeer(NamedTuple):
    """The peer has said nothing for too long, or is elsewhere now."""

    address: str
    endpoint: str


class SendBeacon(NamedTuple):
    """Tell the towers where this role is."""


class SayTowersSilent(NamedTuple):
    """No tower has greeted this role, though it has waited for longer than it takes: say so to people, once."""


ConsumerInstruction = Send | Deliver | HaltPartition | GiveUpPartition
StoreInstruction = Send | Append | ReadStored | FindStored | HaltPartition
DiscoveryInstruction = Connect | DisconnectPeer | SendBeacon | SayTowersSilent
