"""What a program passes by mistake is refused in words, and the writer or reader goes on."""

from __future__ import annotations

import asyncio
import shlex
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from scribengin.errors import ConfigInvalid, LogError, RecordTooLarge
from scribengin.log import DLSN, FIRST, LAST, TAIL, LogConfig, LogNamespace, SequenceId, Time, TransactionId
from scribengin.log.clients import AsyncNamespace, BalancedWriter, MultiReader, PartitionedWriter, Transformer
from scribengin.log.format.records import too_large


@pytest.mark.parametrize("start", ["earliest", "1/0/0", 5, (1, 0, 0)])
def test_what_is_no_start_is_refused_and_not_taken_for_the_end_of_the_log(logs: LogNamespace, start: Any) -> None:
    with pytest.raises(ConfigInvalid, match=r"log 'log': .* is no place to start at: pass FIRST, LAST, TAIL, Time"):
        logs.open_reader("log", start)


@pytest.mark.parametrize("start", [None, FIRST, LAST, TAIL, DLSN.INITIAL, Time(0), TransactionId(1), SequenceId(0)])
def test_all_starts_that_there_are_are_taken(logs: LogNamespace, start: Any) -> None:
    logs.open_reader("log", start).close()


@pytest.mark.parametrize(("number", "count"), [(-(2**63) - 1, 2), (-(10**25), 2), (2**63, 0), (10**25, 0)])
def test_a_number_beyond_those_that_records_have_lies_before_or_behind_all(
    logs: LogNamespace, number: int, count: int
) -> None:
    with logs.open_writer("log") as writer:
        writer.write(b"a").result()
        writer.write(b"b").result()
    for start in (TransactionId(number), SequenceId(number), Time(number)):
        with logs.open_reader("log", start) as reader:
            assert len(reader.read(10, 0)) == count
    with logs.open_reader("log") as reader:
        assert (reader.find(number) is None, reader.find(number, after=True) is None) == (count == 0, count == 0)


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


def test_a_column_that_no_record_has_is_refused_and_not_left_out(logs: LogNamespace) -> None:
    typo = pa.record_batch({"payload": [b"a"], "kye": [b"k"]})
    with logs.open_writer("log", senders=True) as writer:
        for write in (writer.write_bulk, writer.write_atomic, partial(writer.write_bulk, partial=True)):
            with pytest.raises(LogError, match=r"^log 'log': a record has no column 'kye': did you mean 'key'\?$"):
                write(typo)
        with pytest.raises(LogError, match="'kye': did you mean 'key'"):
            writer.write_numbered(typo, sender=bytes(16), number=1)
        with pytest.raises(LogError, match=r"column 'zone' \(there are: txid, type, channel, key, payload\)$"):
            writer.write_bulk(pa.record_batch({"payload": [b"a"], "zone": [1]}))
        assert writer.write(b"b").result() == DLSN(1, 0, 0)


def test_a_column_that_stands_twice_is_refused_and_not_left_out(logs: LogNamespace) -> None:
    columns = [pa.array([b"a"]), pa.array([b"k"]), pa.array([b"l"])]
    with logs.open_writer("log") as writer, pytest.raises(LogError, match="log 'log': two columns are called 'key'"):
        writer.write_bulk(pa.RecordBatch.from_arrays(columns, names=["payload", "key", "key"]))


def test_what_was_read_of_one_log_or_of_several_is_written_as_it_is(logs: LogNamespace) -> None:
    with logs.open_writer("log") as writer:
        writer.write(b"a", key=b"k").result()
    logs.create("copy")
    with logs.open_reader("log") as reader, logs.open_writer("copy") as writer:
        writer.write_bulk(reader.read_batch()).result()
        with MultiReader(logs, ["log"]) as several:
            batch = several.read_batch(timeout_s=30)
            assert batch is not None
            writer.write_bulk(batch).result()
    with logs.open_reader("copy") as reader:
        assert [(record.payload, record.key) for record in reader.read(10)] == [(b"a", b"k"), (b"a", b"k")]


async def _write_two(logs: LogNamespace, batch: pa.RecordBatch) -> list[Any]:
    async with await AsyncNamespace(logs).open_writer("log") as writer:
        return list(await asyncio.gather(writer.write_bulk(batch), writer.write_atomic(batch), return_exceptions=True))


def test_clients_of_logs_refuse_such_a_column_too(logs: LogNamespace) -> None:
    typo = pa.record_batch({"payload": [b"a"], "kye": [b"k"]})
    refused = "a record has no column 'kye': did you mean 'key'"
    assert all(refused in str(one) for one in asyncio.run(_write_two(logs, typo)))
    with BalancedWriter(logs, ["log"]) as balanced, pytest.raises(LogError, match=refused):
        balanced.write_bulk(typo)
    with PartitionedWriter(logs, ["log"]) as partitioned:
        with pytest.raises(LogError, match=refused):
            partitioned.write_bulk(typo)
        table: Any = pa.table({"payload": [b"a"]})
        with pytest.raises(LogError, match="and this is a Table"):
            partitioned.write_bulk(table)


@pytest.mark.parametrize("client", [BalancedWriter, MultiReader, PartitionedWriter])
def test_one_name_is_no_list_of_logs_nor_are_its_letters(logs: LogNamespace, client: Any) -> None:
    with pytest.raises(ConfigInvalid, match=r"^the logs are a list of names: write \['log'\], and not 'log'$"):
        client(logs, "log")


def test_a_start_of_a_log_that_is_not_read_is_refused_and_not_passed_over(logs: LogNamespace) -> None:
    with pytest.raises(ConfigInvalid, match=r"`start` names \['lgo'\], and the logs are \['log'\]"):
        MultiReader(logs, ["log"], start={"lgo": TAIL})


def test_a_policy_that_there_is_not_is_refused_and_not_taken_for_another(logs: LogNamespace) -> None:
    policy: Any = "least-pending"
    with pytest.raises(ConfigInvalid, match="'least-pending': choose one of least_pending, round_robin"):
        BalancedWriter(logs, ["log"], policy=policy)
    logs.open_writer("log", timeout_s=0).close()


@pytest.mark.parametrize("key", ["text", 5])
def test_a_key_that_is_no_bytes_is_refused_in_words(logs: LogNamespace, key: Any) -> None:
    with PartitionedWriter(logs, ["log"]) as writer, pytest.raises(LogError, match="a key is bytes, and not"):
        writer.write(key, b"payload")


def test_a_log_is_not_made_of_itself(logs: LogNamespace) -> None:
    with pytest.raises(ConfigInvalid, match="log 'log' is source and target"):
        Transformer(logs, "log", "log", lambda batch: batch)
    logs.open_writer("log", timeout_s=0).close()


def test_a_transformation_that_returns_no_records_is_told_what_to_return(logs: LogNamespace) -> None:
    logs.create("made")
    with logs.open_writer("log") as writer:
        writer.write(b"a").result()
    nothing: Any = lambda _batch: None  # noqa: E731  it stands for a function without `return`
    with Transformer(logs, "log", "made", nothing) as made, pytest.raises(LogError, match="returned a NoneType; let"):
        made.run_once(30)


@pytest.mark.parametrize("records_max", [0, -1])
def test_a_reader_that_is_asked_for_no_records_gives_one_of_one_log_or_of_several(
    logs: LogNamespace, records_max: int
) -> None:
    with logs.open_writer("log") as writer:
        writer.write(b"a").result()
        writer.write(b"b").result()
    with logs.open_reader("log") as reader, MultiReader(logs, ["log"]) as several:
        for one in (reader, several):
            batch = one.read_batch(records_max, 30)
            assert batch is not None
            assert batch.column("payload").to_pylist() == [b"a"]
