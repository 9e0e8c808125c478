"""A reader for asyncio at its end: nobody waits for it any more, or somebody still asks."""

from __future__ import annotations

import asyncio
import gc
import threading
from concurrent.futures import Future
from typing import Any

import pytest

from scribengin.errors import LogClosed
from scribengin.log import LogNamespace
from scribengin.log.clients import AsyncLogWriter, AsyncNamespace
from scribengin.log.clients.asynchronous import _abandon
from scribengin_registry.errors import RegistryClosed

LOG = "log"


_MANY = 64
"""More than asyncio has threads."""


def test_a_writer_is_closed_though_all_threads_of_asyncio_wait_for_its_log(logs: LogNamespace) -> None:
    async def main() -> None:
        namespace = AsyncNamespace(logs)
        first = await namespace.open_writer(LOG)
        waiting = [asyncio.create_task(namespace.open_writer(LOG, timeout_s=600)) for _ in range(_MANY)]
        await asyncio.wait(waiting, timeout=0)  # all of them have begun
        async with asyncio.timeout(60):
            assert await asyncio.to_thread(lambda: "free") == "free", "asyncio's threads are others'"
            await first.write(b"a")
            await first.flush()
            await first.close()
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        opened = await asyncio.gather(*waiting, return_exceptions=True)
        for one in opened:
            if isinstance(one, AsyncLogWriter):
                await one.close()

    asyncio.run(main())


def test_what_nobody_waits_for_is_given_back_without_a_word_where_the_registry_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", told.append)
    opened: Future[str] = Future()
    opened.set_result("a writer")
    undone: list[str] = []

    def undo(one: str) -> None:
        undone.append(one)
        raise RegistryClosed("this registry client is closed", path="/logs")

    _abandon(undo, opened)
    for thread in [one for one in threading.enumerate() if one.name == "log-async-close"]:
        thread.join()
    assert (undone, told) == (["a writer"], [])


def test_who_reads_behind_the_end_is_told_that_the_reader_was_closed(logs: LogNamespace) -> None:
    async def main() -> None:
        reader = await AsyncNamespace(logs).open_reader(LOG)
        await reader.close()
        for _ in range(2):
            with pytest.raises(LogClosed, match="log 'log': the reader is closed"):
                await reader.read(1, 0)
        await reader.close()

    asyncio.run(main())


def test_a_reader_whose_task_was_cancelled_is_closed_without_a_word(logs: LogNamespace) -> None:
    told: list[dict[str, Any]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: told.append(context))
        async with await AsyncNamespace(logs).open_reader(LOG) as reader:
            waiting = asyncio.create_task(reader.read())
            while reader._reading is None:
                await asyncio.wait([waiting], timeout=0)
            waiting.cancel()
            await asyncio.wait([waiting])
            read = reader._reading
        await asyncio.wait([read])
        del reader, read
        gc.collect()

    asyncio.run(main())
    assert told == []
