"""The brokerless live path, compatible on the wire with Dafka's C programs: producers, consumers, stores, towers.

A producer is one partition of a topic, named by its address. Records go from producers to consumers and stores without
a broker between them; whoever missed some fetches them from a store or from the producer. What each role decides is in
`state`, without sockets, threads or clock; the bytes are in `wire`.
"""

from scribengin.dafka.asynchronous import AsyncDafkaConsumer, AsyncDafkaProducer
from scribengin.dafka.config import DafkaConfig
from scribengin.dafka.consumer import DafkaConsumer, DafkaRecord
from scribengin.dafka.producer import DafkaProducer
from scribengin.dafka.state import DafkaPartition
from scribengin.dafka.store import DafkaStore
from scribengin.dafka.tower import DafkaTower

__all__ = [
    "AsyncDafkaConsumer",
    "AsyncDafkaProducer",
    "DafkaConfig",
    "DafkaConsumer",
    "DafkaPartition",
    "DafkaProducer",
    "DafkaRecord",
    "DafkaStore",
    "DafkaTower",
]
