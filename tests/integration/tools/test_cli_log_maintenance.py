"""`scribengin log purge`, `configure`, `readers`, `watch`: what keeps logs in order over time."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from scribengin.log import DLSN, LogConfig, LogNamespace
from scribengin.testing.log_samples import fill_log
from scribengin_registry.contract import Registry
from tests.integration.cli_runner import CommandLine, assert_ends_unread, whole_tree


@pytest.fixture
def logs(line: CommandLine, registry: Registry) -> Iterator[LogNamespace]:
    """A namespace with a log `a` of seven records in three segments."""
    with LogNamespace.open("/logs", registry=registry) as opened:
        opened.create("a", LogConfig(segment_bytes_max=4096))
        fill_log(opened, "a", entries=7)
        yield opened


def segment_files(directory: Path) -> int:
    return len(list((directory / "logs").rglob("*.log")))


def test_purge_frees_what_was_truncated_as_a_whole(line: CommandLine, logs: LogNamespace, tmp_path: Path) -> None:
    """DistributedLog's TestTruncate: purging stops at the first segment that is not wholly truncated."""
    assert line.ok("log", "purge", "a").out == "a: 0 segments removed, 0 B freed\n"
    line.ok("log", "truncate", "a", "--before", "2/1/0")
    done = line.ok("log", "purge", "--all")
    assert done.out.startswith("a: 1 segment removed, ")
    assert "KiB freed" in done.out
    assert segment_files(tmp_path) == 2
    assert line.ok("log", "count", "a").out == "3\n"
    assert line.ok("log", "verify", "a").code == 0
    assert line.ok("log", "purge", "--prefix", "nothing/").out == ""
    assert line.ok("log", "inspect", "a", "--json").json[0]["left_over"] == []


def test_a_log_that_cannot_be_kept_in_order_holds_up_no_other_one(
    line: CommandLine, logs: LogNamespace, registry: Registry
) -> None:
    for log in ("b", "c"):
        logs.create(log, LogConfig(segment_bytes_max=4096))
        fill_log(logs, log, entries=7)
        line.ok("log", "truncate", log, "--before", "2/0/0")
    registry.delete(f"/logs/logs/b/segments/logrecs_{2:018d}")
    for words in (("--all",), ("b", "c"), ("nope", "c")):
        done = line("log", "purge", *words)
        assert (done.code, done.err.count("\n")) == (2 if "nope" in words else 1, 1)
        assert "c: " in done.out
    assert len(logs.segments("c")) == 2


def test_logs_that_are_not_to_be_copied_are_left_out_of_all_of_them(
    line: CommandLine, logs: LogNamespace, tmp_path: Path
) -> None:
    logs.create("b", LogConfig(segment_bytes_max=4096, cold_url=str(tmp_path / "cold"), copy_codec="zstd"))
    fill_log(logs, "b", entries=7)
    assert line.ok("log", "compress", "--all").out.startswith("b: ")
    assert line.ok("log", "offload", "--all").out.startswith("b: ")
    assert line("log", "offload", "a", "--all").code == 2


def test_purge_obeys_retention_as_it_was_configured(line: CommandLine, logs: LogNamespace, tmp_path: Path) -> None:
    line.ok("log", "configure", "a", "--set", "retention_hours=1000000")
    assert line.ok("log", "purge", "a").out.startswith("a: 0 segments")
    line.ok("log", "configure", "a", "--set", "retention_hours=0.0000000001")
    assert line.ok("log", "purge", "a").out.startswith("a: 3 segments")
    assert (line.ok("log", "count", "a").out, segment_files(tmp_path)) == ("0\n", 0)
    assert line.ok("log", "verify", "a").code == 0
    assert line.ok("log", "read", "a").out == ""


def test_segments_are_compressed_and_their_copies_verified(
    line: CommandLine, logs: LogNamespace, tmp_path: Path
) -> None:
    payloads = line.ok("log", "read", "a").out
    assert line("log", "compress", "a").code == 2
    assert line.ok("log", "compress", "a", "--codec", "zstd").out == "a: 3 segments compressed\n"
    assert line.ok("log", "compress", "--all", "--codec", "lz4").out == "a: 0 segments compressed\n"
    assert line.ok("log", "repair", "--all").out == "a: 0 segments repaired\n"
    assert "zstd" in line.ok("log", "inspect", "a", "--segment", "1").out
    checked = line.ok("log", "verify", "a", "--json").json[0]
    assert (checked["ok"], checked["left_over"]) == (True, [])
    line.ok("log", "configure", "a", "--set", "copy_codec=zstd", "--set", "raw_retention_hours=0")
    line.ok("log", "purge", "a")
    assert "alone since" in line.ok("log", "inspect", "a", "--segment", "1").out
    assert line.ok("log", "verify", "a").code == 0
    assert line.ok("log", "read", "a").out == payloads


@pytest.mark.parametrize("alone", [False, True])
def test_damage_of_a_copy_is_found(line: CommandLine, logs: LogNamespace, tmp_path: Path, alone: bool) -> None:
    line.ok("log", "compress", "a", "--codec", "zstd")
    if alone:
        line.ok("log", "configure", "a", "--set", "copy_codec=zstd", "--set", "raw_retention_hours=0")
        line.ok("log", "purge", "a")
    copy = sorted((tmp_path / "logs").rglob("*zstd*.log"))[1]
    data = bytearray(copy.read_bytes())
    data[100] ^= 1
    copy.write_bytes(data)
    done = line("log", "verify", "a")
    assert done.code == 1
    assert ("in its copy: " in done.out) is not alone
    assert "segment 2, entry 0 (byte 0)" in done.out
    copy.unlink()
    assert line("log", "verify", "a").code == 1


def test_files_that_no_segment_names_are_told_of(line: CommandLine, logs: LogNamespace, registry: Registry) -> None:
    line.ok("log", "truncate", "a", "--before", "2/0/0")
    line.ok("log", "purge", "a")
    directory = Path(logs.descriptor.location) / logs.segments("a")[0].directory
    (directory / f"{1:018d}-1.log").write_bytes(b"left by a crash")
    assert "1 file of no segment" in line.ok("log", "inspect", "a").out
    assert len(line.ok("log", "inspect", "a", "--json").json[0]["left_over"]) == 1
    line.ok("log", "purge", "a")
    assert "no segment" not in line.ok("log", "inspect", "a").out


def test_a_configuration_is_changed_key_by_key(line: CommandLine, logs: LogNamespace) -> None:
    shown = line.ok("log", "configure", "a").out
    assert ["segment_bytes_max", "4096"] in [row.split() for row in shown.splitlines()]
    changed = line.ok("log", "configure", "a", "--set", "codec=lz4", "--set", "segment_bytes_max=8192", "--json").json
    assert (changed["codec"], changed["segment_bytes_max"]) == ("lz4", 8192)
    assert line.ok("log", "configure", "a", "--json").json == changed
    assert line.ok("log", "info", "a", "--json").json["config"] == changed


@pytest.mark.parametrize("setting", ["codec=gzip", "nonsense=1", "segment_bytes_max=x", "codec"])
def test_a_bad_configuration_is_refused_and_changes_nothing(
    line: CommandLine, logs: LogNamespace, registry: Registry, setting: str
) -> None:
    before = whole_tree(registry)
    done = line("log", "configure", "a", "--set", setting)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert whole_tree(registry) == before


def test_registered_readers_are_shown_and_forgotten(line: CommandLine, logs: LogNamespace) -> None:
    """DistributedLog's tool: delete_subscriber."""
    assert line.ok("log", "readers", "a").err == "a has no registered readers\n"
    logs.register_reader("a", "billing", DLSN(2, 0, 0))
    logs.register_reader("a", "audit/2")
    assert line.ok("log", "readers", "a", "--json").json == [
        {"reader": "audit/2", "position": "1/0/0", "lag": 7},
        {"reader": "billing", "position": "2/0/0", "lag": 4},
    ]
    assert line.ok("log", "info", "a", "--json").json["readers"] == {"audit/2": 7, "billing": 4}
    assert "billing (4 behind)" in line.ok("log", "info", "a").out
    done = line("log", "readers", "a", "--forget", "nobody")
    assert done.code == 2
    assert "there are: audit/2, billing" in done.err
    rows = line.ok("log", "readers", "a", "--forget", "audit/2").out.splitlines()
    assert [row.split() for row in rows[1:]] == [["billing", "2/0/0", "4"]]


def test_truncation_waits_for_registered_readers_unless_it_is_forced(line: CommandLine, logs: LogNamespace) -> None:
    logs.register_reader("a", "billing", DLSN(2, 0, 0))
    line.ok("log", "truncate", "a", "--before", "2/0/0")
    done = line("log", "truncate", "a", "--before", "2/1/0")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "reader 'billing'" in done.err
    assert line.ok("log", "truncate", "a", "--before", "2/1/0", "--force").out.startswith("truncated a: 1 record ")


def test_watching_tells_of_logs_that_come_and_go(line: CommandLine, logs: LogNamespace) -> None:
    with line.process("log", "watch", "a") as watch:
        assert watch.stdout is not None
        assert watch.stdout.readline() == "+ a\n"
        logs.create("other")
        logs.create("a/1")
        assert watch.stdout.readline() == "+ a/1\n"
        logs.delete("a")
        assert watch.stdout.readline() == "- a\n"
        watch.send_signal(signal.SIGINT)
        out, err = watch.communicate()
    assert (out, err, watch.returncode) == ("", "", 130)
    with line.process("log", "watch", "a") as unread:
        assert_ends_unread(unread, "+ a/1")


def test_a_log_whose_metadata_is_broken_is_deleted_by_force_only(
    line: CommandLine, logs: LogNamespace, registry: Registry, tmp_path: Path
) -> None:
    registry.delete(f"/logs/logs/a/segments/logrecs_{2:018d}")
    done = line("log", "delete", "a")
    assert done.code == 1
    assert "segment 2 is missing between segments 1 and 3; look into it, or delete it by force" in done.err
    assert line.ok("log", "delete", "a", "--force").out == "deleted a\n"
    assert segment_files(tmp_path) == 0
    line.ok("log", "create", "a")


@pytest.mark.parametrize(
    "words",
    [["purge"], ["purge", "nope"], ["configure", "nope"], ["readers", "nope"], ["configure"]],
    ids=" ".join,
)
def test_bad_input_is_one_line_and_exit_code_2(line: CommandLine, logs: LogNamespace, words: list[str]) -> None:
    done = line("log", *words)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
