"""What a program passes by mistake is refused in words, and the writer or reader goes on."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from scribengin.errors import ConfigInvalid, LogError, RecordTooLarge
from scribengin.log import DLSN, FIRST, LAST, TAIL, LogConfig, LogNamespace, SequenceId, Time, TransactionId
from scribengin.log.format.records import too_large
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin.testing.memory.segments import MEMORY_STORE


@pytest.fixture
def logs() -> Iterator[LogNamespace]:
    disk = MemoryDisk("wrong")
    with MemoryEnsemble().connect() as session:
        LogNamespace.bind("/logs", disk.name, registry=session, store=MEMORY_STORE)
        with LogNamespace.open("/logs", registry=session) as opened:
            opened.create("log")
            yield opened


@pytest.mark.parametrize("start", ["earliest", "1/0/0", 5, (1, 0, 0)])
def test_what_is_no_start_is_refused_and_not_taken_for_the_end_of_the_log(logs: LogNamespace, start: Any) -> None:
    with pytest.raises(ConfigInvalid, match=r"log 'log': .* is no place to start at: pass FIRST, LAST, TAIL, Time"):
        logs.open_reader("log", start)


@pytest.mark.parametrize("start", [None, FIRST, LAST, TAIL, DLSN.INITIAL, Time(0), TransactionId(1), SequenceId(0)])
def test_all_starts_that_there_are_are_taken(logs: LogNamespace, start: Any) -> None:
    logs.open_reader("log", start).close()


def test_a_record_that_is_too_large_is_told_with_what_makes_the_log_take_it(logs: LogNamespace) -> None:
    logs.configure("log", LogConfig(record_bytes_max=10))
    with logs.open_writer("log") as writer, pytest.raises(RecordTooLarge) as error:
        writer.write(b"x" * 11).result()
    assert "`scribengin log configure log --set record_bytes_max=11` (with its --namespace, " in str(error.value)
    logs.configure("log", LogConfig(record_bytes_max=11))
    with logs.open_writer("log") as writer:
        writer.write(b"x" * 11).result()


def test_a_shell_takes_the_name_in_the_command_as_it_is() -> None:
    said = str(too_large("a'b;c/0", "payload", 11, LogConfig()))
    command = said.split("`")[1]
    assert shlex.split(command) == ["scribengin", "log", "configure", "a'b;c/0", "--set", "record_bytes_max=11"]


def test_what_is_no_batch_is_refused_and_the_writer_goes_on(logs: LogNamespace) -> None:
    table: Any = pa.table({"payload": [b"a"]})
    rows: Any = [b"a"]
    with logs.open_writer("log") as writer:
        with pytest.raises(LogError, match=r"and this is a Table: write each of `table.to_batches\(\)`"):
            writer.write_bulk(table)
        with pytest.raises(LogError, match="and this is a list"):
            writer.write_atomic(rows)
        with pytest.raises(LogError, match=r"a batch needs the column 'payload' \(there are: value\)"):
            writer.write_bulk(pa.record_batch({"value": [b"a"]}))
        assert writer.write(b"b").result() == DLSN(1, 0, 0)
