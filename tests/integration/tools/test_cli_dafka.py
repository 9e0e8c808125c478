"""`scribengin dafka` as commands: lines from one to the other, what is stored, how they end, what they refuse."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from scribengin.dafka import DafkaConfig, DafkaProducer
from tests.integration.cli_runner import CommandLine, command
from tests.processes import Process

PRODUCERS = 40
"""More than a store has threads for all else."""
ANY_PORT = ("--sub", "tcp://127.0.0.1:*", "--pub", "tcp://127.0.0.1:*")


@contextmanager
def server(line: CommandLine, *arguments: str, end: signal.Signals = signal.SIGINT) -> Iterator[str]:
    """A command that runs until it is told to end, and its first line."""
    with line.process("dafka", *arguments) as process, told_to_end(process, end) as first:
        yield first


@contextmanager
def told_to_end(process: subprocess.Popen[str], end: signal.Signals = signal.SIGINT) -> Iterator[str]:
    """The first line of a process that runs until then."""
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.send_signal(end)
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (0, ""), err
    assert err.endswith("Ctrl-C ends it\n"), err


@pytest.fixture(scope="module")
def towers() -> Iterator[tuple[str, ...]]:
    """Options of who uses the tower of all tests: it keeps nothing, and asks no registry."""
    tower = command(["dafka", "tower", *ANY_PORT])
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Process(tower, text=True, **piped) as process, told_to_end(process) as addresses:
        sub, pub = addresses.split()
        yield "--sub", sub, "--pub", pub


def test_what_was_written_is_read_from_the_store_once_its_writer_is_gone(
    line: CommandLine, towers: tuple[str, ...]
) -> None:
    with server(line, "store", "--namespace", "/logs", *towers, end=signal.SIGTERM) as address:
        assert re.fullmatch(r"[0-9A-F]{32}", address)
        done = line.fed("one\ntwo\n\nfour", "dafka", "write", "flights", *towers)
        found = re.fullmatch(r"published 4 records to flights, as producer ([0-9A-F]{32})\n", done.err)
        assert (done.code, done.out) == (0, "")
        assert found is not None, done.err
        producer = found[1]
        assert line.ok("log", "read", f"dafka/flights/{producer}").out == "one\ntwo\n\nfour\n"
        earliest = line.ok("dafka", "read", "flights", "--from", "earliest", "-n", "4", *towers)
        assert earliest.out == "one\ntwo\n\nfour\n"
        later = line.ok("dafka", "read", "flights", "--at", f"{producer}=3", "--count", "1", "--json", *towers)
        assert json.loads(later.out) == {"topic": "flights", "producer": producer, "sequence": 3, "content": "four"}
    again = ("store", "--namespace", "/logs", *towers)
    with server(line, *again):
        assert line.ok("dafka", "read", "flights", "--from", "1h", "-n", "4", *towers).out == earliest.out


def test_a_store_writes_for_many_producers_with_few_threads(line: CommandLine, towers: tuple[str, ...]) -> None:
    config = DafkaConfig.parse({"beacon": {"pub_address": towers[3], "sub_address": towers[1]}}, source="the test")
    with line.process("dafka", "store", "--namespace", "/logs", *towers) as store, ExitStack() as stack:
        stack.callback(store.send_signal, signal.SIGINT)
        producers = [stack.enter_context(DafkaProducer(f"topic-{number}", config)) for number in range(PRODUCERS)]
        for stored in [producer.publish(b"one") for producer in producers]:
            stored.result(120)
        assert len(os.listdir(f"/proc/{store.pid}/task")) < PRODUCERS


def test_a_reader_shows_what_comes_and_ctrl_c_ends_it_and_a_writer_that_waits(
    line: CommandLine, tmp_path: Path, towers: tuple[str, ...]
) -> None:
    soon = tmp_path / "soon.yaml"
    soon.write_text("beacon: {interval: 100, timeout: 3000}")
    with (
        line.process("dafka", "write", "flights", "--config", str(soon), *towers, stdin=subprocess.PIPE) as writer,
        line.process("dafka", "read", "flights", "--from", "earliest", *towers) as reader,
    ):
        assert writer.stdin is not None
        assert reader.stdout is not None
        writer.stdin.write("one\ntwo\n")
        writer.stdin.close()
        writer.stdin = None
        assert [reader.stdout.readline() for _ in range(2)] == ["one\n", "two\n"]
        assert writer.stderr is not None
        waits = (
            "2 records not acknowledged so far; it goes on trying: does `scribengin dafka store` run, and does it say "
            "why?\n"
        )
        while (told := writer.stderr.readline()) != waits:
            assert told.startswith("no tower has answered"), told  # as it may be, on a slow machine
        for process, said in ((reader, ""), (writer, "2 records of flights not acknowledged: they may be lost\n")):
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=120) == ("", said)
            assert process.returncode == 130


def test_who_waits_for_more_stores_than_there_are_is_told(line: CommandLine, towers: tuple[str, ...]) -> None:
    with server(line, "store", "--namespace", "/logs", *towers):
        done = line.fed("one\n", "dafka", "write", "flights", "--min-acks", "2", "--wait-s", "0", *towers)
        assert (done.code, done.out) == (1, "")
        assert "1 record of flights not acknowledged" in done.err
        assert "1 record of 'flights' is not acknowledged by 2 stores: start a store" in done.err


def test_a_writer_that_may_keep_no_more_says_what_it_waits_for_and_ends(line: CommandLine, tmp_path: Path) -> None:
    """Nobody is there who would take anything: no tower, and no store."""
    full = tmp_path / "full.yaml"
    full.write_text("beacon: {interval: 100, timeout: 300}\nproducer: {high_watermark: 2, min_acks: 2}")
    nobody = ("--sub", "tcp://127.0.0.1:1", "--pub", "tcp://127.0.0.1:1")
    done = line.fed("1\n2\n3\n4\n5\n", "dafka", "write", "flights", "--config", str(full), "--wait-s", "1", *nobody)
    assert (done.code, done.out) == (1, "")
    told = "2 records not acknowledged so far; it goes on trying: do 2 different stores run, as min_acks wants, and do"
    assert f"{told} they say why?\n" in done.err
    assert "2 records of 'flights' are not acknowledged by 2 stores: start a store" in done.err


def test_its_file_says_how_it_runs_and_options_go_over_it(line: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "dafka.yaml"
    file.write_text("tower: {sub_address: 'tcp://127.0.0.1:*', pub_address: 'tcp://127.0.0.2:*'}\n")
    with server(line, "tower", "--config", str(file), "--sub", "tcp://127.0.0.3:*") as addresses:
        assert re.fullmatch(r"tcp://127\.0\.0\.3:\d+ tcp://127\.0\.0\.2:\d+", addresses)


def test_a_file_of_the_c_programs_says_it_as_well(line: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "dafka_towerd.cfg"
    file.write_text(
        "tower\n    verbose = 0\n    sub_address = tcp://127.0.0.1:*\n    pub_address = tcp://127.0.0.2:*\n"
    )
    with server(line, "tower", "--config", str(file), "--sub", "tcp://127.0.0.3:*") as addresses:
        assert re.fullmatch(r"tcp://127\.0\.0\.3:\d+ tcp://127\.0\.0\.2:\d+", addresses)


def test_a_key_pair_serves_all_roles_that_name_it_in_either_kind_of_file(line: CommandLine, tmp_path: Path) -> None:
    file, own = tmp_path / "dafka.yaml", tmp_path / "own.key"
    public = line.ok("dafka", "keys", str(own))
    assert re.fullmatch(r"\S{40}\n", public.out)
    assert public.err == f"the pair is in {own}, for you alone; what is printed is its public key\n"
    assert own.stat().st_mode & 0o777 == 0o600
    again = line("dafka", "keys", str(own))
    assert (again.code, again.out) == (2, "")
    assert "is there already: keys are not overwritten" in again.err
    file.write_text(f"curve: {{key: '{own}'}}\n")
    (tmp_path / "dafka.cfg").write_text(f"curve\n    key = {own}\n    allowed = '{public.out.strip()}'\n")
    keys = ("--config", str(file))
    with server(line, "tower", *ANY_PORT, *keys) as addresses:
        sub, pub = addresses.split()
        towers = ("--sub", sub, "--pub", pub)
        with server(line, "store", "--namespace", "/logs", *towers, *keys):
            assert line.fed("one\ntwo\n", "dafka", "write", "flights", *towers, *keys).code == 0
            found = line.ok("dafka", "read", "flights", "--from", "earliest", "-n", "2", *towers, *keys)
            of_c = ("--config", str(tmp_path / "dafka.cfg"))
            assert line.ok("dafka", "read", "flights", "--from", "earliest", "-n", "2", *towers, *of_c).out == found.out
            assert found.out == "one\ntwo\n"


def test_perf_says_how_fast_it_is(line: CommandLine) -> None:
    done = line.ok("dafka", "perf", "--records", "2500", "--size", "10", "--json")
    assert (done.json["records"], done.json["size"]) == (2500, 10)
    for name in ("live", "fetched"):
        assert done.json[name]["records_s"] == pytest.approx(2500 / done.json[name]["seconds"])
    check_latency(done.json["latency"], 1000)
    shown = line.ok("dafka", "perf", "--records", "10", "--rate", "20").out
    assert "MB/S" in shown
    assert re.search(r"^on its way at 20/s: p50 \d+\.\d\d ms, p99 \d+\.\d\d ms$", shown, re.MULTILINE)


@pytest.mark.full
def test_perf_measures_the_stores_of_a_network_that_runs(line: CommandLine, towers: tuple[str, ...]) -> None:
    with server(line, "store", "--namespace", "/logs", *towers):
        done = line.ok(
            "dafka", "perf", "--stored", "--records", "2500", "--size", "10", "--rate", "50", "--json", *towers
        )
        assert (done.json["records"], done.json["size"]) == (2500, 10)
        assert done.json["published"]["records_s"] == pytest.approx(2500 / done.json["published"]["seconds"])
        assert done.json["stored"]["records_s"] > 0
        check_latency(done.json["latency"], 50)
        shown = line.ok("dafka", "perf", "--stored", "--records", "10", "--rate", "20", *towers).out
        assert re.search(r"^topic perf-[0-9a-f]{12}$", shown, re.MULTILINE)
    [log] = [log for log in line.ok("log", "list", "--json").json if f"/{done.json['topic']}/" in log["log"]]
    assert log["records"] == 2500 + 1 + 3 * 50


def check_latency(found: dict[str, float], per_s: int) -> None:
    assert found["per_s"] == per_s
    assert 0 < found["p50_ms"] <= found["p99_ms"]


def test_bad_input_is_one_line(line: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "list.yaml").write_text("- a\n")
    (tmp_path / "unknown.yaml").write_text("beacon: {intervall: 1}\n")
    (tmp_path / "unknown.zpl").write_text("beacon\n    intervall = 1\n")
    (tmp_path / "store.cfg").write_text("store\n    db = storedb\n")
    (tmp_path / "number.yaml").write_text("beacon: 1\n")
    for words, arguments in {
        "is reached by other machines": ("tower", "--sub", "tcp://*:5556"),
        "tower.pub_address": ("tower", "--pub", "nowhere"),
        "beacon.sub_address": ("read", "flights", "--sub", "nowhere"),
        "did you mean 'interval'": ("read", "flights", "--config", str(tmp_path / "unknown.yaml")),
        "unknown.zpl line 2: unknown key 'beacon/intervall'": ("tower", "--config", str(tmp_path / "unknown.zpl")),
        "store.cfg line 2: 'store/db' means nothing": ("store", "--config", str(tmp_path / "store.cfg")),
        "absent.zpl cannot be read": ("store", "--config", str(tmp_path / "absent.zpl")),
        "list.yaml holds no mapping": ("write", "flights", "--config", str(tmp_path / "list.yaml")),
        "number.yaml: beacon": ("read", "a", "--sub", "tcp://127.0.0.1:1", "--config", str(tmp_path / "number.yaml")),
        "absent.yaml cannot be read": ("store", "--config", str(tmp_path / "absent.yaml")),
        "--from yesterday: expected earliest, latest, a time": ("read", "flights", "--from", "yesterday"),
        "--from 1969-01-01: expected": ("read", "flights", "--from", "1969-01-01"),
        "a sequence is a whole number": ("read", "flights", "--at", "AB=x"),
        "write --at KEY=VALUE": ("read", "flights", "--at", "AB"),
        "is bound to no store": ("store", "--namespace", "/nowhere"),
        "1 GB of memory does not hold 5,000 records": ("perf", "--size", "1000000", "--records", "2000"),
        "it has 300 bytes": ("write", "x" * 300),
        "is no name of a topic": ("read", ""),
    }.items():
        done = line("dafka", *arguments)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done
        assert words in done.err


def test_a_port_that_is_taken_is_one_line(line: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        done = line("dafka", "tower", "--sub", address, "--pub", "tcp://127.0.0.1:*")
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert f"cannot listen on {address}" in done.err


def test_without_its_extra_it_says_what_to_install() -> None:
    commands = [["tower"], ["store"], ["write", "a"], ["read", "a"], ["keys", "a"], ["perf"]]
    program = (
        "import json, sys; sys.modules['zmq'] = None; from scribengin_tools.cli import main; "
        "print([main.run(['dafka', *command]) for command in json.loads(sys.argv[1])])"
    )
    process = [sys.executable, "-c", program, json.dumps(commands)]
    done = subprocess.run(process, capture_output=True, text=True, check=True)
    words = "scribengin: Dafka's roles need pyzmq: pip install 'scribengin[dafka]'\n"
    assert (done.stdout, done.stderr) == (f"{[2] * len(commands)}\n", words * len(commands))
