"""A machine that has no thread left just now: what is refused is not written, and counts against no limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from scribengin.log import CommitThread, LogConfig, LogNamespace, LogWriter
from scribengin.testing.log_samples import bound_namespace, payload_batch, payloads_read
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryRegistry
from scribengin.testing.memory.segments import MEMORY_STORE

LOG = "log"
SENDER = b"s" * 16
WRITES = [
    pytest.param(lambda writer, data: writer.write(data), id="record"),
    pytest.param(lambda writer, data: writer.write_bulk(payload_batch([data])), id="batch"),
    pytest.param(
        lambda writer, data: writer.write_numbered(payload_batch([data]), sender=SENDER, number=1), id="numbered"
    ),
]
Write = Callable[[LogWriter, bytes], Future[Any]]


class NoThread:
    def start(self) -> None:
        raise RuntimeError("can't start new thread")


def no_thread(patch: pytest.MonkeyPatch) -> None:
    for module in ("group_commit", "commit_thread"):
        patch.setattr(f"scribengin.log.write.{module}.background", lambda _name, _run: NoThread())


@pytest.fixture(params=["a thread of its own", "one for many"])
def logs(request: pytest.FixtureRequest, memory_registry: MemoryRegistry) -> Iterator[LogNamespace]:
    config = LogConfig(outstanding_writes_max=1)
    disk = MemoryDisk("no thread")
    with CommitThread() as commit_thread:
        yield bound_namespace(
            memory_registry,
            disk.name,
            LOG,
            config=config,
            store=MEMORY_STORE,
            commit_thread=None if request.param == "a thread of its own" else commit_thread,
        )


@pytest.mark.parametrize("write", WRITES)
def test_what_is_refused_for_want_of_a_thread_is_not_written(
    logs: LogNamespace, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    with logs.open_writer(LOG, senders=True) as writer:
        with monkeypatch.context() as patch:
            no_thread(patch)
            for _ in range(2):
                with pytest.raises(RuntimeError, match="can't start"):
                    write(writer, b"refused")
        assert not writer.failed
        write(writer, b"taken").result(60)
    assert payloads_read(logs, LOG) == [b"taken"]
