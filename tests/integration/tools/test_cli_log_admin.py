"""`scribengin log truncate`, `seal`, `recover`, `bench`, and where `read` and `tail` may start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scribengin.log import LogConfig, LogNamespace
from scribengin.testing.log_samples import damage_segment, fill_log, payload_batch, segment_path
from scribengin_registry.contract import Registry
from scribengin_tools.logs.positions import start_of
from tests.integration.cli_runner import CommandLine, whole_tree


@pytest.fixture
def logs(line: CommandLine, registry: Registry) -> Iterator[LogNamespace]:
    """A namespace with a log `a` of seven records in three segments; their transaction ids are 0, 10, 20 ..."""
    with LogNamespace.open("/logs", registry=registry) as opened:
        opened.create("a", LogConfig(segment_bytes_max=4096))
        fill_log(opened, "a", entries=7)
        yield opened


def first_read(line: CommandLine, *words: str) -> str:
    """The number that the first record begins with."""
    return line.ok("log", "read", "a", *words).out[:6]


@pytest.mark.parametrize(
    ("place", "gone", "first"),
    [
        ("1/2/0", 2, "1/2/0"),
        ("2/1/0", 4, "2/1/0"),
        ("txid:25", 3, "2/0/0"),
        ("sequence:5", 5, "2/2/0"),
        ("last", 6, "3/0/0"),
        ("latest", 7, "3/1/0"),
    ],
)
def test_truncate_gives_up_exactly_what_lies_before_a_place(
    line: CommandLine, logs: LogNamespace, place: str, gone: int, first: str
) -> None:
    """DistributedLog's TestTruncate and its tool's truncate_stream."""
    things = "record" if gone == 1 else "records"
    done = line.ok("log", "truncate", "a", "--before", place)
    assert done.out == f"truncated a: {gone} {things} given up, the first is {first} now\n"
    assert line.ok("log", "count", "a").out == f"{7 - gone}\n"
    assert logs.first_dlsn("a") == tuple(map(int, first.split("/")))
    again = line.ok("log", "truncate", "a", "--before", "earliest")
    assert again.out == f"nothing to truncate: the first record of a is {first}\n"
    assert line.ok("log", "verify", "a").code == 0


def test_seal_ends_a_log_once(line: CommandLine, logs: LogNamespace) -> None:
    assert line.ok("log", "seal", "a").out == "sealed a\n"
    assert line.ok("log", "seal", "a").out == "a was sealed before\n"
    assert line("log", "write", "a", "x").code == 1
    assert "sealed" in line.ok("log", "inspect", "a").out
    logs.create("empty")
    assert line.ok("log", "seal", "empty").out == "sealed empty\n"


def test_sealing_waits_for_a_writer_and_takes_the_log_only_when_told(line: CommandLine, logs: LogNamespace) -> None:
    writer = logs.open_writer("a")
    done = line("log", "seal", "a", "--wait-s", "0")
    assert done.code == 1
    assert "is being written by" in done.err
    assert line.ok("log", "seal", "a", "--steal").out == "sealed a\n"
    writer.abort()


def test_copy_keeps_every_place_and_says_what_it_needs(
    line: CommandLine, logs: LogNamespace, registry: Registry, tmp_path: Path
) -> None:
    LogNamespace.bind("/archive", tmp_path / "archive", registry=registry)
    done = line.ok("log", "copy", "a", "--to", "/archive", "--as", "b", "--set", "retention_hours=1")
    assert done.out.startswith("copied a to b in /archive: 3 segments, ")
    assert done.out.endswith(", 7 records\n")
    there = ("--namespace", "/archive")
    assert line.ok("log", "read", "b", *there).out == line.ok("log", "read", "a").out
    assert (
        line.ok("log", "read", "b", "--from", "2/1/0", *there).out == line.ok("log", "read", "a", "--from", "2/1/0").out
    )
    assert line.ok("log", "configure", "b", "--json", *there).json["retention_hours"] == 1
    shown = dict(row.split(maxsplit=1) for row in line.ok("log", "configure", "b", *there).out.splitlines())
    assert [shown[key].strip() for key in ("retention_hours", "codec", "fsync", "cold_url")] == [
        "1",
        "none",
        "true",
        "null",
    ]
    assert line.ok("log", "verify", "b", *there).code == 0
    for words, told in [
        (("a", "--to", "/archive", "--as", "b"), "exists already in /archive: choose another name"),
        (("a", "--to", "/nowhere"), "/nowhere"),
        (("a", "--to", "/archive", "--set", "ensemble_size=3"), "leave them out"),
    ]:
        done = line("log", "copy", *words)
        assert done.code != 0
        assert told in done.err
        assert done.err.count("\n") == 1
    with logs.open_writer("a") as writer:
        writer.write(b"more").result(120)
        done = line("log", "copy", "a", "--to", "/archive")
        assert (done.code, "scribengin log recover a" in done.err) == (2, True)


def test_recover_completes_what_a_writer_left_unfinished(line: CommandLine, logs: LogNamespace) -> None:
    writer = logs.open_writer("a", commit_log="/scribengin/locks/no-commit-log")
    writer.write(b"seen").result(120)
    writer.abort()
    with segment_path(logs, "a", 4).open("ab") as file:
        file.write(bytes(100))
    segment_path(logs, "a", 4).with_suffix(".tail").unlink()
    assert line.ok("log", "recover", "a").out.splitlines() == [
        "recovered a: segment 4 is complete, with 1 record",
        "  1 record kept that no reader had seen",
        "  100 B at its end were no whole entry: left out",
    ]
    assert line.ok("log", "recover", "a").out == "nothing to recover: no segment of a is unfinished\n"
    assert line.ok("log", "recover", "a", "--json").json == {"log": "a", "recovered": False}
    assert line.ok("log", "verify", "a").code == 0


def test_recover_refuses_damage_and_a_log_that_is_being_written(line: CommandLine, logs: LogNamespace) -> None:
    """DistributedLog's tool recovers a ledger on request; here what it may not decide stays as it is."""
    with logs.open_writer("a") as writer:
        writer.write(b"one").result(120)
        done = line("log", "recover", "a", "--wait-s", "0")
        assert (done.code, done.out) == (1, "")
        assert "is being written by" in done.err
        writer.write(b"two").result(120)
        writer.write(b"three").result(120)
        writer.abort()
    damage_segment(logs, "a", 4, 4)
    done = line("log", "recover", "a")
    assert (done.code, done.out) == (1, "")
    assert "nothing was cut" in done.err
    assert done.err.count("\n") == 1


def test_recover_tells_what_became_of_a_staged_round(line: CommandLine, logs: LogNamespace) -> None:
    writer = logs.open_writer("a", commit_log="/scribengin/locks/no-commit-log")
    writer.write(b"seen").result(120)
    writer.stage(payload_batch([b"s1", b"s2"]))
    writer.prepare()
    writer.abort()
    done = line("log", "recover", "a")
    assert done.code == 1
    assert "commit log /scribengin/locks/no-commit-log of staged entries cannot be read" in done.err


def test_reading_may_start_anywhere(line: CommandLine, logs: LogNamespace) -> None:
    assert first_read(line, "--from", "txid:21") == "000003"
    assert first_read(line, "--from", "sequence:4") == "000004"
    assert first_read(line, "--from", "last") == "000006"
    assert first_read(line, "--from", "1h") == "000000"
    assert first_read(line, "--from", "2001-01-01T00:00") == "000000"
    assert line.ok("log", "read", "a", "--from", "2999-01-01").out == ""


def test_a_place_that_makes_no_sense_says_what_would(line: CommandLine, logs: LogNamespace) -> None:
    for place in ("txid:x", "sequence:", "yesterday", "1/2", "5y", ""):
        for words in (["read", "a", "--from", place], ["truncate", "a", "--before", place]):
            done = line("log", *words)
            assert (done.code, done.out) == (2, ""), words
            assert "txid:N, sequence:N" in done.err, words


def test_how_long_ago_and_times_are_milliseconds() -> None:
    hour, minute = start_of("1h"), start_of("1m")
    assert 3_539_000 <= minute.ms - hour.ms <= 3_541_000  # type: ignore[union-attr]  # both are times
    assert start_of("2026-01-31T12:00+00:00").ms == 1_769_860_800_000  # type: ignore[union-attr]  # a time, too


def test_a_namespace_is_bound_once(line: CommandLine, registry: Registry, tmp_path: Path) -> None:
    """DistributedLog's admin tool: bind."""
    words = ("log", "bind", "--namespace", "/more/logs")
    assert line.ok(*words, str(tmp_path / "more")).out == f"/more/logs keeps its logs in {tmp_path / 'more'}\n"
    line.ok(*words, str(tmp_path / "more"))
    done = line(*words, str(tmp_path / "other"))
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "is bound to" in done.err
    assert line("log", "bind", str(tmp_path / "x"), "--namespace", "nonsense").code == 2
    line.ok("log", "create", "a", "--namespace", f"distributedlog://{line.hosts}/more/logs")
    line.ok("log", "bind", str(tmp_path / "uri"), "--namespace", f"distributedlog://{line.hosts}/by/uri")


def test_bench_measures_and_leaves_nothing_behind(
    line: CommandLine, logs: LogNamespace, registry: Registry, tmp_path: Path
) -> None:
    before = whole_tree(registry)
    files = sorted((tmp_path / "logs").rglob("*"))
    shown = line.ok("log", "bench", "--records", "2000", "--size", "100").out
    assert "2,000 records of 100 B" in shown
    assert [row.split()[0] for row in shown.splitlines()[3:5]] == ["append", "read"]
    assert sorted((tmp_path / "logs").rglob("*")) == files
    elsewhere = tmp_path / "elsewhere"
    found = line.ok("log", "bench", "--records", "50", "--dir", str(elsewhere), "--json").json
    assert (found["directory"], found["records"], found["record_bytes"]) == (str(elsewhere), 50, 1024)
    assert min(found["append_records_per_s"], found["read_records_per_s"], found["fsync_p50_ms"]) > 0
    refused = line("log", "bench", "--dir", str(elsewhere), "--namespace", "/more")
    assert (refused.code, "leave it out, or --namespace" in refused.err) == (2, True), refused.err
    assert not elsewhere.exists()
    assert whole_tree(registry) == before
