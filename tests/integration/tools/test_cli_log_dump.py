"""`scribengin log dump`: the right records, in every format; a file is there whole or not at all."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from scribengin.log import READ_SCHEMA, LogConfig, LogNamespace
from scribengin.testing.log_samples import damage_segment, fill_log
from scribengin_registry.contract import Registry
from tests.integration.cli_runner import CommandLine, command


@pytest.fixture
def payloads(line: CommandLine, registry: Registry) -> Iterator[list[str]]:
    """What the log `a` holds: 35 records in seven entries in three segments; the txids of an entry are 0, 10, 20 ..."""
    with LogNamespace.open("/logs", registry=registry) as logs:
        logs.create("a", LogConfig(segment_bytes_max=4096))
        yield [payload.decode() for payload in fill_log(logs, "a", entries=7, rows=5)]


def dumped(line: CommandLine, *words: str) -> list[str]:
    """The payloads of a dump."""
    out = line.ok("log", "dump", "a", *words).out
    return [json.loads(row)["payload"] for row in out.splitlines()]


def test_everything_is_dumped_in_order_with_all_there_is_to_say(line: CommandLine, payloads: list[str]) -> None:
    assert dumped(line) == payloads
    first = json.loads(line.ok("log", "dump", "a", "-n", "1").out)
    assert first == {
        "dlsn": "1/0/0", "sequence_id": 0, "txid": 0, "type": 0, "key": None, "channel": None, "payload": payloads[0],
    }  # fmt: skip


PARTS: tuple[tuple[list[str], int, int], ...] = (
    (["--from", "1/1/2"], 7, 35),
    (["--to", "1/1/2"], 0, 7),
    (["--to", "2/0/0"], 0, 15),
    (["--to", "1/3/0"], 0, 15),
    (["--from", "1/1/2", "--to", "3/0/1"], 7, 31),
    (["--from", "2/0/0", "--to", "1/0/0"], 0, 0),
    (["--to", "9/9/9"], 0, 35),
    (["--from", "latest"], 35, 35),
    (["--from", "last"], 34, 35),
    (["--from", "sequence:12"], 12, 35),
    (["--from", "txid:20"], 10, 35),
    (["--txid-from", "20"], 10, 35),
    (["--txid-from", "11"], 10, 35),
    (["--txid-to", "20"], 0, 15),
    (["--txid-to", "29"], 0, 15),
    (["--txid-from", "30", "--txid-to", "50"], 15, 30),
    (["--from", "1/1/0", "--txid-from", "20", "--to", "2/0/3"], 10, 18),
    (["-n", "3"], 0, 3),
    (["-n", "13", "--txid-from", "20"], 10, 23),
    (["-n", "99999999999999999999"], 0, 35),
)
"""What is asked for, and which records that is: from one, up to one."""


def test_a_part_is_cut_exactly(line: CommandLine, payloads: list[str]) -> None:
    for words, first, end in PARTS:
        assert dumped(line, *words) == payloads[first:end], words


def test_transaction_ids_without_order_are_looked_for_everywhere(line: CommandLine, registry: Registry) -> None:
    with LogNamespace.open("/logs", registry=registry) as logs:
        logs.create("a", LogConfig(check_txids=False))
        with logs.open_writer("a") as writer:
            for number, txid in enumerate((5, 1, 9, 2, 7, 3)):
                writer.write(b"%d" % number, txid=txid).result(120)
    assert dumped(line, "--txid-from", "2", "--txid-to", "5") == ["0", "3", "5"]


def test_text_is_the_payloads(line: CommandLine, payloads: list[str]) -> None:
    assert line.ok("log", "dump", "a", "--format", "text").out == "".join(f"{payload}\n" for payload in payloads)


def test_hex_shows_bytes_and_text_beside_each_other(line: CommandLine, registry: Registry) -> None:
    with LogNamespace.open("/logs", registry=registry) as logs:
        logs.create("a")
        with logs.open_writer("a") as writer:
            writer.write(b"scribengin \xff\x00 writes", txid=7, key=b"k", channel="c").result(120)
    shown = line.ok("log", "dump", "a", "--format", "hex").out
    assert shown.splitlines() == [
        "1/0/0  txid 7  channel c  key 6b  20 B",
        "  00000000  73 63 72 69 62 65 6e 67 69 6e 20 ff 00 20 77 72  scribengin .. wr",
        "  00000010  69 74 65 73                                      ites",
    ]


def test_arrow_is_a_stream_of_record_batches(line: CommandLine, payloads: list[str], tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    done = line.ok("log", "dump", "a", "--format", "arrow", "-o", str(path))
    assert (done.out, done.err) == ("", f"wrote 35 records of a to {path}\n")
    table = pa.ipc.open_stream(path.read_bytes()).read_all()
    assert table.schema == READ_SCHEMA
    assert table.column("payload").to_pylist() == [payload.encode() for payload in payloads]
    assert table.column("sequence_id").to_pylist() == list(range(35))
    piped = subprocess.run(
        command(["log", "dump", "a", "--format", "arrow", "-n", "2"]), capture_output=True, check=True
    )
    assert pa.ipc.open_stream(piped.stdout).read_all().num_rows == 2


def test_a_file_is_written_whole_or_not_at_all(
    line: CommandLine, payloads: list[str], registry: Registry, tmp_path: Path
) -> None:
    path = tmp_path / "out" / "a.jsonl"
    assert line("log", "dump", "a", "-o", str(path)).code == 2
    path.parent.mkdir()
    path.write_text("before")
    with LogNamespace.open("/logs", registry=registry) as logs:
        damage_segment(logs, "a", 3, 4)
    done = line("log", "dump", "a", "-o", str(path))
    assert done.code == 1
    assert "segment 3, entry 0 (byte 0) is damaged" in done.err
    assert [file.name for file in path.parent.iterdir()] == ["a.jsonl"]
    assert path.read_text() == "before"
    line.ok("log", "dump", "a", "--to", "3/0/0", "--format", "text", "-o", str(path))
    assert path.read_text().splitlines() == payloads[:30]


def test_bad_input_is_one_line_and_exit_code_2(line: CommandLine, payloads: list[str]) -> None:
    for words in (
        ["nope"],
        ["a", "--from", "yesterday"],
        ["a", "--to", "1/0"],
        ["a", "--format", "xml"],
        ["a", "-n", "0"],
        ["a", "--txid-to", "10000000000000000000000000"],
        ["a", "--txid-from", "-9223372036854775809"],
        ["a", "--channel", "\udce9"],
        ["a", "--from", "txid:-99999999999999999999999"],
        ["a", "--to", "99999999999999999999/0/0"],
    ):
        done = line("log", "dump", *words)
        assert (done.code, done.out) == (2, ""), words
        assert done.err.startswith("scribengin: "), words
        assert done.err.count("\n") == 1, words
