"""A producer for asyncio, of which many tasks wait until there is room. No tower is there, and no store."""

from __future__ import annotations

import asyncio

import pytest

from scribengin.dafka import AsyncDafkaProducer, DafkaConfig
from scribengin.dafka.wire import StoreAck
from scribengin.errors import DafkaClosed

_WAITING = 64
"""More than asyncio has threads."""
ALONE = DafkaConfig.model_validate(
    {
        "beacon": {"sub_address": "tcp://127.0.0.1:9", "pub_address": "tcp://127.0.0.1:9"},
        "producer": {"terminate_unacked": True, "high_watermark": _WAITING},
    }
)
STORE = "CC" * 16


async def _tasks_that_wait(producer: AsyncDafkaProducer) -> list[asyncio.Task[range]]:
    """The first has taken all the room; each of the others has a record."""
    first = asyncio.create_task(producer.publish_many([b""] * _WAITING))
    others = [asyncio.create_task(producer.publish(b"%d" % number)) for number in range(_WAITING)]
    while producer._producer.next < _WAITING:
        await asyncio.wait(others, timeout=0)
    return [first, *others]


def test_tasks_that_wait_for_room_take_no_thread_of_others() -> None:
    async def main() -> None:
        async with asyncio.timeout(60), AsyncDafkaProducer("flights", ALONE) as producer:
            await _tasks_that_wait(producer)
            assert await asyncio.to_thread(int) == 0

    asyncio.run(main())


def test_they_publish_in_the_order_of_their_calls_and_one_that_is_cancelled_all_the_same() -> None:
    async def main() -> list[range]:
        async with asyncio.timeout(60), AsyncDafkaProducer("flights", ALONE) as producer:
            first, *others = await _tasks_that_wait(producer)
            others[-2].cancel()
            while not all(task.done() for task in [first, *others]):
                ack = StoreAck(producer.partition.address, "flights", producer._producer.next - 1)
                producer._producer.on_messages([ack], STORE, 0.0)
                await asyncio.wait(others, timeout=0)
            assert others.pop(-2).cancelled()
            return [await task for task in others]

    sequences = [_WAITING + number for number in range(_WAITING)]
    del sequences[-2]
    assert asyncio.run(main()) == [range(one, one + 1) for one in sequences]


def test_who_publishes_after_the_end_is_told_so() -> None:
    async def main() -> None:
        async with AsyncDafkaProducer("flights", ALONE) as producer:
            pass
        with pytest.raises(DafkaClosed, match="was closed"):
            await producer.publish(b"late")

    asyncio.run(main())
