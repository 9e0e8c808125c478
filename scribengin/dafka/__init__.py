"""The brokerless live path, compatible on the wire with Dafka's C programs: producers, consumers, stores, towers.

A producer is one partition of a topic, named by its address. Records go from producers to consumers and stores without
a broker between them; whoever missed some fetches them from a store or from the producer. What each role decides is in
`state`, without sockets, threads or clock; the bytes are in `wire`. What has sockets is imported when it is asked for:
pyzmq is not installed everywhere where a configuration is read.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from scribengin.dafka.config import DafkaConfig, DafkaNetworkConfig

if TYPE_CHECKING:
    from scribengin.dafka.asynchronous import AsyncDafkaConsumer, AsyncDafkaProducer
    from scribengin.dafka.consumer import DafkaConsumer, DafkaRecord
    from scribengin.dafka.follower import DafkaFollower
    from scribengin.dafka.producer import DafkaProducer
    from scribengin.dafka.state import DafkaPartition
    from scribengin.dafka.store import DafkaStore
    from scribengin.dafka.tower import DafkaTower

_WITH_SOCKETS = {
    "AsyncDafkaConsumer": "asynchronous",
    "AsyncDafkaProducer": "asynchronous",
    "DafkaConsumer": "consumer",
    "DafkaFollower": "follower",
    "DafkaPartition": "state",
    "DafkaProducer": "producer",
    "DafkaRecord": "consumer",
    "DafkaStore": "store",
    "DafkaTower": "tower",
}


def __getattr__(name: str) -> Any:
    if name not in _WITH_SOCKETS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WITH_SOCKETS[name]}"), name)


__all__ = [
    "AsyncDafkaConsumer",
    "AsyncDafkaProducer",
    "DafkaConfig",
    "DafkaConsumer",
    "DafkaFollower",
    "DafkaNetworkConfig",
    "DafkaPartition",
    "DafkaProducer",
    "DafkaRecord",
    "DafkaStore",
    "DafkaTower",
]
