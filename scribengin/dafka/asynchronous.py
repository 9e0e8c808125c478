"""A producer and a consumer for programs of asyncio: the same roles, whose waits are awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.dafka.config import DafkaConfig
from scribengin.dafka.consumer import DafkaConsumer, DafkaRecord
from scribengin.dafka.producer import DafkaProducer
from scribengin.dafka.state import DafkaPartition, Positions

_SLICE_S = 1.0
"""A thread waits for so long at most: a program that ends does not wait for it any longer, closed or not."""


class AsyncDafkaProducer:
    """As DafkaProducer, for `async with`. Records have the order in which the calls for them began."""

    def __init__(self, topic: str, config: DafkaConfig | None = None) -> None:
        self._producer = DafkaProducer(topic, config)
        self._publishing = ThreadPoolExecutor(1, thread_name_prefix="dafka-publishing")
        """Waits for room, for one call after the other: asyncio's threads are few, and everybody's."""

    @property
    def partition(self) -> DafkaPartition:
        """Its topic and its address."""
        return self._producer.partition

    async def publish(self, content: bytes) -> range:
        """Publish a record and wait until stores have it. Raises as DafkaProducer."""
        return await self.publish_many([content])

    async def publish_many(self, contents: Sequence[bytes]) -> range:
        """Publish records and wait until stores have them: their sequences. Raises as DafkaProducer.

        Who is cancelled while it waits has published them all the same, or does once there is room.
        """
        try:
            handed_over = self._publishing.submit(self._producer.publish_many, contents)
        except RuntimeError:
            self._producer.check_open()
            raise
        published: asyncio.Future[Future[range]] = asyncio.wrap_future(handed_over)
        return await asyncio.wrap_future(await asyncio.shield(published))

    async def close(self, timeout_s: float | None = None) -> None:
        """As DafkaProducer.close. In a thread of its own: that which publishes may wait for room until then."""
        own = ThreadPoolExecutor(1, thread_name_prefix="dafka-closing")
        closing = asyncio.get_running_loop().run_in_executor(own, self._producer.close, timeout_s)
        own.shutdown(wait=False)
        try:
            await closing
        finally:
            self._publishing.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


class AsyncDafkaConsumer:
    """As DafkaConsumer, for `async with`."""

    def __init__(
        self,
        topics: Iterable[str],
        config: DafkaConfig | None = None,
        *,
        positions: Positions | None = None,
        since_ms: int | None = None,
    ) -> None:
        self._consumer = DafkaConsumer(topics, config, positions=positions, since_ms=since_ms)
        self._waiting: asyncio.Task[bool] | None = None
        """The one thread that waits for all who read, also after they have given up."""

    @property
    def positions(self) -> dict[DafkaPartition, int]:
        """As of DafkaConsumer."""
        return self._consumer.positions

    async def read(self, records_max: int = 1000, timeout_s: float | None = None) -> list[DafkaRecord]:
        """As DafkaConsumer.read. Who is cancelled while it waits loses nothing: the next one returns it."""
        until_s = None if timeout_s is None else SYSTEM_CLOCK.monotonic_s() + timeout_s
        while True:
            left_s = _SLICE_S if until_s is None else until_s - SYSTEM_CLOCK.monotonic_s()
            there = await self._wait(left_s)
            records = self._consumer.read(records_max, 0.0)
            if records or left_s <= 0 or (there and records_max <= 0):
                return records

    async def close(self) -> None:
        """As DafkaConsumer.close."""
        self._consumer.begin_closing()  # or threads that wait for it might leave none for what follows
        await asyncio.to_thread(self._consumer.close)
        if (waiting := self._waiting_here()) is not None:
            await asyncio.wait([waiting])

    async def _wait(self, timeout_s: float) -> bool:
        """Whether there was anything to read, after so long at most, and `_SLICE_S`. Who is cancelled leaves the thread
        that waits to the next one; it takes nothing."""
        if timeout_s <= 0 or self._consumer.wait(0.0):
            await asyncio.sleep(0)  # who reads what is there again and again leaves room for others
            return self._consumer.wait(0.0)
        if (waiting := self._waiting_here()) is None:
            waiting = self._waiting = asyncio.create_task(asyncio.to_thread(self._consumer.wait, _SLICE_S))
        done, _ = await asyncio.wait([waiting], timeout=timeout_s)
        return any(one.result() for one in done)

    def _waiting_here(self) -> asyncio.Task[bool] | None:
        """Who waits, in the loop that runs."""
        one = self._waiting
        return None if one is None or one.done() or one.get_loop() is not asyncio.get_running_loop() else one

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
