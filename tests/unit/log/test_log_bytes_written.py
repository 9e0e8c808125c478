"""What a byte stream takes, and that it is there once."""

from __future__ import annotations

import array
from collections.abc import Iterator
from typing import Any

import pytest

from scribengin.errors import LogError
from scribengin.log import LogConfig, LogNamespace
from scribengin.log.clients import ByteStreamReader, ByteStreamWriter
from scribengin.testing.log_samples import bound_namespace
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryRegistry
from scribengin.testing.memory.segments import MEMORY_STORE

LOG = "bytes"


@pytest.fixture
def logs(memory_registry: MemoryRegistry) -> Iterator[LogNamespace]:
    disk = MemoryDisk("bytes")
    config = LogConfig(outstanding_writes_max=1)
    with bound_namespace(memory_registry, disk.name, LOG, config=config, store=MEMORY_STORE) as bound:
        yield bound


def test_more_pieces_than_the_log_takes_at_once_wait_for_each_other(logs: LogNamespace) -> None:
    with ByteStreamWriter(logs, LOG, piece_bytes=4) as writer:
        assert writer.write(b"aaaabbbbccccdd") == 14
    assert ByteStreamReader(logs, LOG).readall() == b"aaaabbbbccccdd"


def test_numbers_count_by_their_bytes(logs: LogNamespace) -> None:
    numbers = array.array("i", [1, 2, 3])
    with ByteStreamWriter(logs, LOG) as writer:
        assert writer.write(memoryview(numbers)) == 12
    assert ByteStreamReader(logs, LOG).readall() == numbers.tobytes()


@pytest.mark.parametrize("data", ["text", [1, 2], None])
def test_what_is_no_bytes_is_refused_in_words(logs: LogNamespace, data: Any) -> None:
    with ByteStreamWriter(logs, LOG) as writer:
        with pytest.raises(LogError, match="log 'bytes': a byte stream takes bytes, and not"):
            writer.write(data)
        writer.write(b"a")
    assert ByteStreamReader(logs, LOG).readall() == b"a"
