"""What each role decides: events in, instructions out. No sockets, no threads, no clock; time is an argument."""

from scribengin.dafka.state.consumer import EARLIEST, LATEST, ConsumerState, Positions, StartOf
from scribengin.dafka.state.discovery import PEERS_MAX, DiscoveryState, endpoint_of
from scribengin.dafka.state.follower import FollowerState, HeldRecords, HoldLimits
from scribengin.dafka.state.instructions import (
    Append,
    Connect,
    DafkaPartition,
    Deliver,
    DisconnectPeer,
    FindStored,
    GiveUpPartition,
    HaltPartition,
    ReadStored,
    SayTowersSilent,
    Send,
    SendBeacon,
    StoreInstruction,
)
from scribengin.dafka.state.intake import IntakeLimits, PartitionIntake
from scribengin.dafka.state.producer import STORE_CHARS, ProducerState
from scribengin.dafka.state.since import SinceLimits
from scribengin.dafka.state.store import StoredRange, StoreState

__all__ = [
    "EARLIEST",
    "LATEST",
    "PEERS_MAX",
    "STORE_CHARS",
    "Append",
    "Connect",
    "ConsumerState",
    "DafkaPartition",
    "Deliver",
    "DisconnectPeer",
    "DiscoveryState",
    "FindStored",
    "FollowerState",
    "GiveUpPartition",
    "HaltPartition",
    "HeldRecords",
    "HoldLimits",
    "IntakeLimits",
    "PartitionIntake",
    "Positions",
    "ProducerState",
    "ReadStored",
    "SayTowersSilent",
    "Send",
    "SendBeacon",
    "SinceLimits",
    "StartOf",
    "StoreInstruction",
    "StoreState",
    "StoredRange",
    "endpoint_of",
]
