"""A log as a file of bytes that only grows."""

from __future__ import annotations

import io
import os
import random
import threading
from pathlib import Path

import pytest

from scribengin.errors import ConfigInvalid, EndOfStream, Fenced, LogClosed, LogNotFound, PositionTruncated
from scribengin.log import DLSN, LogConfig, LogNamespace
from scribengin.log.clients import ByteStreamReader, ByteStreamWriter
from scribengin.testing.log_samples import bound_namespace
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry

LOG = "bytes"


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    return bound_namespace(registry, tmp_path / "store", LOG, config=LogConfig(segment_bytes_max=4096))


def contents(namespace: LogNamespace, position: int = 0) -> bytes:
    with ByteStreamReader(namespace, LOG, position) as reader:
        return reader.readall()


def test_the_position_moves_at_a_flush_and_only_then(namespace: LogNamespace) -> None:
    with ByteStreamWriter(namespace, LOG, piece_bytes=4) as writer:
        assert writer.tell() == 0
        assert writer.write(b"hello world") == 11
        assert writer.tell() == 0
        assert writer.flush() == writer.tell() == 11
        assert writer.flush() == 11
        writer.write(b"!")
        assert writer.tell() == 11
    assert contents(namespace) == b"hello world!"


def test_a_stream_goes_on_at_its_end_and_any_position_can_be_read(namespace: LogNamespace) -> None:
    data = random.Random(2).randbytes(20_000)
    at = 0
    for size in (1, 0, 4999, 7000, 8000):
        with ByteStreamWriter(namespace, LOG, piece_bytes=1000) as writer:
            assert writer.tell() == at
            writer.write(data[at : at + size])
            at += size
    assert len(namespace.segments(LOG)) > 3
    assert contents(namespace) == data
    with ByteStreamReader(namespace, LOG) as reader:
        for position in (0, 1, 999, 1000, 1001, 12_345, 19_999, 20_000):
            assert reader.seek(position) == reader.tell() == position
            assert reader.readall() == data[position:]
        assert reader.seek(-10, os.SEEK_END) == 19_990
        assert reader.readall() == data[-10:]
        reader.seek(5)
        assert reader.seek(5, os.SEEK_CUR) == 10
        assert reader.read(3) == data[10:13]
        with pytest.raises(ValueError, match="before the beginning"):
            reader.seek(-1)


def test_it_is_a_file_to_whoever_reads_files(namespace: LogNamespace) -> None:
    with ByteStreamWriter(namespace, LOG, piece_bytes=7) as writer:
        writer.write("eins\nzwei\ndrei € vier\n".encode())
    with io.TextIOWrapper(io.BufferedReader(ByteStreamReader(namespace, LOG)), "utf-8") as lines:
        assert list(lines) == ["eins\n", "zwei\n", "drei € vier\n"]


def test_at_the_end_there_is_nothing_and_later_there_is_more(namespace: LogNamespace) -> None:
    with ByteStreamWriter(namespace, LOG) as writer, ByteStreamReader(namespace, LOG) as reader:
        assert reader.read(10) == b""
        assert not reader.wait(0)
        writer.write(b"abc")
        assert reader.read(10) == b""  # not flushed
        writer.flush()
        assert reader.wait(120)
        assert reader.read(2) == b"ab"
        reader.seek(4)  # behind the end: what comes before is left out
        writer.write(b"def")
        writer.flush()
        assert reader.read(10) == b"ef"
        assert not reader.ended
        writer.mark_end_of_stream()
        assert reader.read(10) == b""
        assert reader.ended
        assert reader.seek(5) == 5
        assert not reader.ended
        assert reader.read(10) == b"f"
    with pytest.raises(EndOfStream):
        ByteStreamWriter(namespace, LOG)


def test_a_reader_waits_for_a_writer_in_another_thread(namespace: LogNamespace) -> None:
    data = random.Random(3).randbytes(50_000)

    def work() -> None:
        with ByteStreamWriter(namespace, LOG, piece_bytes=500) as writer:
            for start in range(0, len(data), 700):
                writer.write(data[start : start + 700])
                if start % 2100 == 0:
                    writer.flush()
            writer.mark_end_of_stream()

    thread = threading.Thread(target=work)
    read = bytearray()
    with ByteStreamReader(namespace, LOG) as reader:
        thread.start()
        while not reader.ended:
            reader.wait(120)
            read += reader.read(333)
    thread.join(120)
    assert bytes(read) == data


def test_a_fenced_writer_says_so_and_the_next_one_goes_on_where_the_stream_ends(namespace: LogNamespace) -> None:
    stale = ByteStreamWriter(namespace, LOG)
    stale.write(b"durable")
    stale.flush()
    stale.write(b" lost")
    with ByteStreamWriter(namespace, LOG, steal=True) as owner:
        with pytest.raises(Fenced):
            stale.flush()
        assert stale.tell() == 7
        stale.abort()
        stale.abort()
        assert owner.tell() == 7
        owner.write(b" and safe")
    assert contents(namespace) == b"durable and safe"


def test_an_aborted_writer_leaves_what_it_had_flushed(namespace: LogNamespace) -> None:
    writer = ByteStreamWriter(namespace, LOG)
    writer.write(b"flushed")
    writer.flush()
    writer.write(b"not flushed")
    writer.abort()
    assert contents(namespace) == b"flushed"
    with pytest.raises(LogClosed):
        writer.flush()


def test_what_was_truncated_is_refused_and_the_rest_can_be_read(namespace: LogNamespace) -> None:
    with ByteStreamWriter(namespace, LOG, piece_bytes=1000) as writer:
        for n in range(10):
            writer.write(bytes([n]) * 1000)
            writer.flush()
    namespace.truncate(LOG, DLSN(2, 0, 0))
    with ByteStreamReader(namespace, LOG, 10) as reader:
        with pytest.raises(PositionTruncated, match="truncated before byte"):
            reader.read(1)
        reader.seek(9500)
        assert reader.readall() == bytes([9]) * 500
    namespace.truncate(LOG, namespace.end_dlsn(LOG))
    with ByteStreamReader(namespace, LOG) as reader:
        assert reader.seek(0, os.SEEK_END) == 10_000
    with ByteStreamWriter(namespace, LOG) as writer:
        assert writer.tell() == 10_000


def test_two_threads_append_and_every_write_is_in_one_piece(namespace: LogNamespace) -> None:
    with ByteStreamWriter(namespace, LOG, piece_bytes=64) as writer:
        threads = [
            threading.Thread(target=lambda n=n: [writer.write(bytes([n]) * 50) for _ in range(200)]) for n in (1, 2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    data = contents(namespace)
    assert sorted(data[at : at + 50] for at in range(0, 20_000, 50)) == [b"\1" * 50] * 200 + [b"\2" * 50] * 200


def test_what_cannot_be_used_is_refused(namespace: LogNamespace) -> None:
    for piece_bytes in (0, 2_000_000):
        with pytest.raises(ConfigInvalid, match="piece_bytes"):
            ByteStreamWriter(namespace, LOG, piece_bytes=piece_bytes)
    with pytest.raises(LogNotFound):
        ByteStreamReader(namespace, "absent")
    reader = ByteStreamReader(namespace, LOG)
    reader.close()
    reader.close()
    with pytest.raises(LogClosed):
        reader.read(1)
    wait_until(lambda: namespace.info(LOG).writer is None)
