"""Writers and readers for asyncio, over the log itself and through a proxy: the same order, the same errors."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from scribengin.errors import EndOfStream, Fenced, LogClosed, RecordTooLarge, TransactionIdOutOfOrder
from scribengin.log import LogConfig, LogNamespace
from scribengin.log.clients import AsyncNamespace
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import payload_batch, payloads_read
from tests.integration.proxy.proxied import LOG, ProxiedPlace, proxied_place


@pytest.fixture
def place() -> Iterator[ProxiedPlace]:
    yield from proxied_place()


@pytest.fixture(params=["direct", "proxied"])
def logs(place: ProxiedPlace, request: pytest.FixtureRequest) -> LogNamespace:
    """A namespace with the log, which takes small records, and little at a time."""
    config = LogConfig(record_bytes_max=100, entry_bytes_max=4096, pending_bytes_max=16 * 1024)
    namespace = place.bound(LOG, config=config)
    if request.param == "direct":
        return namespace
    place.start()
    return place.client(reads="proxy")


def test_tasks_write_in_the_order_of_their_calls_and_a_reader_follows(logs: LogNamespace) -> None:
    async def main() -> None:
        namespace = AsyncNamespace(logs)
        async with await namespace.open_writer(LOG) as writer, await namespace.open_reader(LOG) as reader:
            seen = asyncio.create_task(reader.read(1))
            futures = [writer.write(b"%d" % n) for n in range(500)]
            assert sum(not future.done() for future in futures) > 400, "more than the writer takes at once"
            await writer.drain()
            places = await asyncio.gather(*futures)
            assert list(places) == sorted(places)
            bulk = await writer.write_bulk(payload_batch([b"500", b"501"]))
            assert bulk.first > places[-1]
            assert await writer.flush() == bulk.last
            records = await seen
            while len(records) < 502:
                records += await reader.read()
            assert [record.payload for record in records] == [b"%d" % n for n in range(502)]
            assert records[499].dlsn == places[-1]
            assert await reader.read(timeout_s=0) == []

    asyncio.run(main())


def test_what_the_log_refuses_is_raised_where_it_is_awaited_and_the_writer_goes_on(logs: LogNamespace) -> None:
    async def main() -> None:
        async with await AsyncNamespace(logs).open_writer(LOG) as writer:
            await writer.write(b"1", txid=10)
            with pytest.raises(RecordTooLarge):
                await writer.write(bytes(101))
            with pytest.raises(TransactionIdOutOfOrder):
                await writer.write(b"2", txid=9)
            await writer.write_atomic(payload_batch([b"3", b"4"]))
            assert not writer.failed

    asyncio.run(main())
    assert payloads_read(logs, LOG) == [b"1", b"3", b"4"]


def test_iterating_ends_where_a_sealed_log_does(logs: LogNamespace) -> None:
    async def main() -> None:
        namespace = AsyncNamespace(logs)
        writer = await namespace.open_writer(LOG)
        for n in range(10):
            writer.write(b"%d" % n)
        await writer.mark_end_of_stream()
        async with await namespace.open_reader(LOG) as reader:
            assert [record.payload async for record in reader] == [b"%d" % n for n in range(10)]
            with pytest.raises(EndOfStream):
                await reader.read()
        with pytest.raises(EndOfStream):
            await namespace.open_writer(LOG)

    asyncio.run(main())


def test_a_read_that_is_cancelled_loses_nothing(logs: LogNamespace) -> None:
    async def main() -> None:
        namespace = AsyncNamespace(logs)
        async with await namespace.open_writer(LOG) as writer, await namespace.open_reader(LOG) as reader:
            for n in range(20):
                waiting = asyncio.create_task(reader.read())
                await asyncio.wait([waiting], timeout=0)
                written = asyncio.ensure_future(writer.write(b"%d" % n))
                if n % 2:
                    await written
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)
                await written
                if not waiting.cancelled():
                    continue
                assert [record.payload for record in await reader.read(1)] == [b"%d" % n]

    asyncio.run(main())


def test_an_aborted_writer_fails_what_waits(logs: LogNamespace) -> None:
    async def main() -> list[BaseException | object]:
        writer = await AsyncNamespace(logs).open_writer(LOG)
        futures = [writer.write(b"%d" % n) for n in range(200)]
        await writer.abort()
        return list(await asyncio.gather(*futures, return_exceptions=True))

    ended = asyncio.run(main())
    assert isinstance(ended[-1], LogClosed)


def test_batches_of_small_records_do_not_hold_up_the_loop(place: ProxiedPlace) -> None:
    logs = place.bound(LOG, config=LogConfig(entry_bytes_max=4096, pending_bytes_max=64 * 1024))
    go, went_on = threading.Event(), list[bool]()
    with at_failpoint("log.segment_sync:before", lambda _stop: went_on.append(go.wait(10))):

        async def main() -> None:
            async with await AsyncNamespace(logs).open_writer(LOG) as writer:
                batch = payload_batch([b"x"] * 1000)
                futures = [writer.write_bulk(batch) for _ in range(20)]
                assert not went_on, "each call has returned at once"
                go.set()
                await asyncio.gather(*futures)

        asyncio.run(main())
    assert len(payloads_read(logs, LOG)) == 20_000


def test_a_fenced_writer_fails_its_futures(place: ProxiedPlace) -> None:
    namespace = place.bound(LOG)

    async def main() -> None:
        writer = await AsyncNamespace(namespace).open_writer(LOG)
        await writer.write(b"1")
        namespace.open_writer(LOG, steal=True).close()
        with pytest.raises(Fenced):
            await writer.write(b"2")
        assert writer.failed
        await writer.abort()

    asyncio.run(main())


def test_who_is_cancelled_while_it_waits_for_a_log_does_not_get_it(place: ProxiedPlace) -> None:
    namespace = place.bound(LOG)

    async def main() -> None:
        logs = AsyncNamespace(namespace)
        first = await logs.open_writer(LOG)
        waiting = asyncio.create_task(logs.open_writer(LOG, timeout_s=600))
        await asyncio.wait([waiting], timeout=0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await first.close()
        await (await logs.open_writer(LOG, timeout_s=120)).close()

    asyncio.run(main())
