"""A producer and a consumer for programs of asyncio: the same roles, whose waits are awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.dafka.config import DafkaConfig
from scribengin.dafka.consumer import DafkaConsumer, DafkaRecord
from scribengin.dafka.producer import DafkaProducer
from scribengin.dafka.state import DafkaPartition, Positions


class AsyncDafkaProducer:
    """As DafkaProducer, for `async with`."""

    def __init__(self, topic: str, config: DafkaConfig | None = None) -> None:
        self._producer = DafkaProducer(topic, config)

    @property
    def partition(self) -> DafkaPartition:
        """Its topic and its address."""
        return self._producer.partition

    async def publish(self, content: bytes) -> range:
        """Publish a record and wait until stores have it. Raises as DafkaProducer."""
        return await self.publish_many([content])

    async def publish_many(self, contents: Sequence[bytes]) -> range:
        """Publish records, at least one, and wait until stores have them: their sequences. Raises as DafkaProducer.

        Who is cancelled while it waits has published them all the same, or does once there is room.
        """
        future = await asyncio.to_thread(self._producer.publish_many, contents)
        return await asyncio.wrap_future(future)

    async def close(self, timeout_s: float | None = None) -> None:
        """As DafkaProducer.close."""
        await asyncio.to_thread(self._producer.close, timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


class AsyncDafkaConsumer:
    """As DafkaConsumer, for `async with`."""

    def __init__(
        self, topics: Iterable[str], config: DafkaConfig | None = None, *, positions: Positions | None = None
    ) -> None:
        self._consumer = DafkaConsumer(topics, config, positions=positions)

    @property
    def positions(self) -> dict[DafkaPartition, int]:
        """As of DafkaConsumer."""
        return self._consumer.positions

    async def read(self, records_max: int = 1000, timeout_s: float | None = None) -> list[DafkaRecord]:
        """As DafkaConsumer.read. Who is cancelled while it waits loses nothing: the next one returns it."""
        until_s = None if timeout_s is None else SYSTEM_CLOCK.monotonic_s() + timeout_s
        while True:
            left_s = None if until_s is None else max(0.0, until_s - SYSTEM_CLOCK.monotonic_s())
            there = await asyncio.to_thread(self._consumer.wait, left_s)  # a thread that nobody awaits takes nothing
            records = self._consumer.read(records_max, 0.0)
            if records or not there:
                return records

    async def close(self) -> None:
        """As DafkaConsumer.close."""
        await asyncio.to_thread(self._consumer.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
