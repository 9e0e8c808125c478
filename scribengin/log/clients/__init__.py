"""Clients over logs: several logs as one, positions that outlive their reader, logs made from logs. They use the
public interface of `scribengin.log`. `recover_log` is for operators. What needs asyncio is imported when it is asked
for: most processes need none."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from scribengin.log.clients.balanced import BalancedWriter, MultiLogRange
from scribengin.log.clients.bytestream import ByteStreamReader, ByteStreamWriter
from scribengin.log.clients.multi import MULTI_SCHEMA, MultiReader, rewind
from scribengin.log.clients.offsets import FileOffsetStore, LogOffset, OffsetStore, RegistryOffsetStore
from scribengin.log.clients.partitioned import PartitionedWriter
from scribengin.log.clients.partitioners import Partitioner, hash_partitioner, int_partitioner, partition_logs
from scribengin.log.clients.producer import LogProducer, OnDelivery, RecordMetadata
from scribengin.log.clients.repair import Recovered, recover_log
from scribengin.log.clients.stored import StoredReader
from scribengin.log.clients.stream import LogPosition
from scribengin.log.clients.transformer import Transform, Transformer, source_position, without_envelope

if TYPE_CHECKING:
    from scribengin.log.clients.asynchronous import AsyncLogReader, AsyncLogWriter, AsyncNamespace

_WITH_ASYNCIO = frozenset({"AsyncLogReader", "AsyncLogWriter", "AsyncNamespace"})


def __getattr__(name: str) -> Any:
    if name not in _WITH_ASYNCIO:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.asynchronous"), name)


__all__ = [
    "MULTI_SCHEMA",
    "AsyncLogReader",
    "AsyncLogWriter",
    "AsyncNamespace",
    "BalancedWriter",
    "ByteStreamReader",
    "ByteStreamWriter",
    "FileOffsetStore",
    "LogOffset",
    "LogPosition",
    "LogProducer",
    "MultiLogRange",
    "MultiReader",
    "OffsetStore",
    "OnDelivery",
    "PartitionedWriter",
    "Partitioner",
    "RecordMetadata",
    "Recovered",
    "RegistryOffsetStore",
    "StoredReader",
    "Transform",
    "Transformer",
    "hash_partitioner",
    "int_partitioner",
    "partition_logs",
    "recover_log",
    "rewind",
    "source_position",
    "without_envelope",
]
