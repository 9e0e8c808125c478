"""`scribengin log inspect`, `verify`, `count`, `dlsn`: what they show, and how they end."""

from __future__ import annotations

import io
import itertools
import os
import pty
import re
import subprocess
from collections.abc import Iterator

import pytest

from scribengin.log import DLSN, LogConfig, LogNamespace
from scribengin.testing.log_samples import damage_segment, fill_log, payload_batch, segment_path
from scribengin_registry.contract import Registry
from tests.integration.cli_runner import CommandLine, command, whole_tree

SMALL = LogConfig(segment_bytes_max=4096)
SEGMENTS = "/logs/logs/a/segments"


@pytest.fixture
def logs(line: CommandLine, registry: Registry) -> Iterator[LogNamespace]:
    """A namespace with a log `a` of three segments."""
    with LogNamespace.open("/logs", registry=registry) as opened:
        opened.create("a", SMALL)
        fill_log(opened, "a", entries=7, rows=5)
        yield opened


def test_inspect_shows_the_segments_of_a_log_and_that_it_is_sound(line: CommandLine, logs: LogNamespace) -> None:
    shown = line.ok("log", "inspect", "a").out
    assert ["records", "35"] in [row.split() for row in shown.splitlines()]
    rows = [row.split() for row in shown.splitlines() if row.strip()[:1].isdigit()]
    assert [(row[0], row[1], row[2], row[3], row[-1]) for row in rows] == [
        ("1", "complete", "3", "15", "ok"),
        ("2", "complete", "3", "15", "ok"),
        ("3", "complete", "1", "5", "ok"),
    ]
    assert shown.endswith("nothing is wrong with it\n")
    assert max(map(len, shown.splitlines())) <= 80


def test_inspect_as_json_tells_everything(line: CommandLine, logs: LogNamespace) -> None:
    (log,) = line.ok("log", "inspect", "a", "--json").json
    assert (log["log"], log["ok"], log["records"], log["findings"]) == ("a", True, 35, [])
    assert [segment["found"]["records"] for segment in log["segments"]] == [15, 15, 5]
    assert [segment["found"]["last_txid"] for segment in log["segments"]] == [20, 50, 60]
    assert all(segment["ok"] for segment in log["segments"])
    (one,) = line.ok("log", "inspect", "a", "--segment", "2", "--json").json
    assert [segment["segment"] for segment in one["segments"]] == [2]


def test_one_segment_can_be_looked_at_closely(line: CommandLine, logs: LogNamespace) -> None:
    shown = line.ok("log", "inspect", "a", "--segment", "2").out
    assert str(segment_path(logs, "a", 2)) in shown.replace("\n", "").replace(" ", "")
    assert "sequence ids     15 to 29" in shown
    assert "transaction ids  30 to 50" in shown
    done = line("log", "inspect", "a", "--segment", "9")
    assert (done.code, done.err) == (2, "scribengin: --segment 9: log 'a' has segments 1 to 3\n")


def test_entries_are_listed(line: CommandLine, logs: LogNamespace) -> None:
    shown = line.ok("log", "inspect", "a", "--entries").out
    places = [row.split()[0] for row in shown.splitlines() if " records " in row and "/" in row]
    assert places == ["1/0", "1/1", "1/2", "2/0", "2/1", "2/2", "3/0"]
    entry = line.ok("log", "inspect", "a", "--entries", "--segment", "3", "--json").json
    assert (entry["segment"], entry["entry"], entry["records"], entry["type"]) == (3, 0, 5, "records")


def test_inspect_of_damage_shows_where_it_is_and_what_is_lost(line: CommandLine, logs: LogNamespace) -> None:
    damage_segment(logs, "a", 2, 4)
    done = line("log", "inspect", "a", "--entries")
    assert done.code == 0
    assert "segment 2, entry 0 (byte 0): the checksum of the header does not hold" in " ".join(done.out.split())
    assert "WRONG" in done.out
    (log,) = line.ok("log", "inspect", "a", "--json").json
    assert not log["ok"]
    assert (log["findings"][0]["segment"], log["findings"][0]["entry"], log["findings"][0]["offset"]) == (2, 0, 0)


def test_inspect_of_broken_metadata_is_no_traceback(line: CommandLine, logs: LogNamespace, registry: Registry) -> None:
    """DistributedLog's TestDistributedLogTool and TestDLCK: inspection finds logs whose segment list is corrupt."""
    registry.delete(f"{SEGMENTS}/logrecs_{2:018d}")
    done = line("log", "inspect", "a")
    assert (done.code, done.err) == (0, "")
    assert "metadata: segment 2 is missing between segments 1 and 3" in done.out
    registry.set(SEGMENTS, b"?")
    done = line("log", "inspect", "--all")
    assert (done.code, done.err) == (0, "")
    assert "does not hold a SegmentsHead" in done.out
    assert line("log", "verify", "--all").code == 1
    line.ok("log", "create", "b")
    done = line("log", "list", "--json")
    assert (done.code, [log["log"] for log in done.json]) == (1, ["b"])
    assert "a is left out: " in done.err
    assert done.err.count("`scribengin log inspect a`") == 1


def test_inspect_works_on_a_log_that_is_being_written(line: CommandLine, logs: LogNamespace) -> None:
    with logs.open_writer("a") as writer:
        writer.write_bulk(payload_batch([b"x"])).result(120)
        shown = line.ok("log", "inspect", "a").out
        assert "being written by" in shown
        assert [row.split()[1] for row in shown.splitlines() if row.strip()[:2] == "4 "] == ["writing"]
        assert line.ok("log", "verify", "a").code == 0
        assert "in progress" in line.ok("log", "inspect", "a", "--segment", "4").out


def test_a_log_that_its_writer_left_unfinished_says_what_stands_behind_its_end(
    line: CommandLine, logs: LogNamespace
) -> None:
    writer = logs.open_writer("a", commit_log="/scribengin/locks/commit-log")
    writer.write(b"seen").result(120)
    writer.stage(payload_batch([b"s1", b"s2"]))
    writer.prepare()
    writer.abort()
    with segment_path(logs, "a", 4).open("ab") as file:
        file.write(bytes(100))
    assert "left unfinished" in line.ok("log", "inspect", "a").out
    shown = " ".join(line.ok("log", "inspect", "a", "--segment", "4").out.split())
    assert "2 staged records; 100 B that are no whole entry" in shown


def test_a_log_that_misses_a_file_is_told_of_among_all_logs(line: CommandLine, logs: LogNamespace) -> None:
    writer = logs.open_writer("a")
    writer.write(b"seen").result(120)
    writer.abort()
    segment_path(logs, "a", 1).unlink()
    segment_path(logs, "a", 4).unlink()
    line.ok("log", "create", "b")
    for words in (("list",), ("compress", "--all", "--codec", "zstd")):
        done = line("log", *words)
        assert (done.code > 0, "b" in done.out, "is gone" in done.err) == (True, True, True)


def test_verify_is_content_with_sound_logs(line: CommandLine, logs: LogNamespace, registry: Registry) -> None:
    logs.create("b/0", SMALL)
    before = whole_tree(registry)
    done = line.ok("log", "verify", "--all")
    assert done.out.splitlines()[:2] == ["a  ok  35 records", "b/0  ok  0 records"]
    assert done.out.splitlines()[2].startswith("2 logs, 35 records, ")
    assert done.out.splitlines()[2].endswith(": nothing is wrong")
    assert " MB/s" in done.out
    assert [log["log"] for log in line.ok("log", "verify", "--prefix", "b/", "--json").json] == ["b/0"]
    assert [log["log"] for log in line.ok("log", "verify", "b/0", "a", "b/0", "--json").json] == ["b/0", "a"]
    assert whole_tree(registry) == before


def test_verify_exits_with_1_on_any_damage(line: CommandLine, logs: LogNamespace) -> None:
    for number, at in itertools.product((1, 2, 3), (0, 10, 70, 1000, -1)):
        damage_segment(logs, "a", number, at)
        done = line("log", "verify", "a")
        assert done.code == 1, (number, at)
        assert done.out.splitlines()[0].startswith("a  WRONG  "), (number, at)
        assert f"segment {number}, entry " in done.out, (number, at)
        assert "1 problem in 1 log" in done.out, (number, at)
        assert done.err == "", (number, at)
        shown = line("log", "verify", "a", "--json")
        assert shown.code == 1, (number, at)
        assert [finding["segment"] for finding in shown.json[0]["findings"]] == [number], (number, at)
        damage_segment(logs, "a", number, at)  # once more: as it was
    line.ok("log", "verify", "a")


@pytest.mark.parametrize("what", ["missing file", "gap in the list", "counts"])
def test_verify_exits_with_1_when_files_and_registry_disagree(
    line: CommandLine, logs: LogNamespace, registry: Registry, what: str
) -> None:
    path = f"{SEGMENTS}/logrecs_{2:018d}"
    if what == "missing file":
        segment_path(logs, "a", 2).unlink()
    elif what == "gap in the list":
        registry.delete(path)
    else:
        registry.set(path, registry.get(path).data.replace(b'"records": 15', b'"records": 14'))
    assert line("log", "verify", "a").code == 1


def test_on_a_terminal_the_lines_of_verify_stand_by_themselves(line: CommandLine, logs: LogNamespace) -> None:
    ours, theirs = pty.openpty()
    with (
        open(ours, "rb", buffering=0) as terminal,
        subprocess.Popen(
            command(["log", "verify", "--all"]),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm"},
        ) as process,
    ):
        os.close(theirs)
        shown = b"".join(_until_closed(terminal)).decode()
    assert process.returncode == 0
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown).replace("\r", "\n").splitlines()
    assert "a  ok  35 records" in [row.rstrip() for row in lines]


def _until_closed(terminal: io.RawIOBase) -> Iterator[bytes]:
    """What a terminal shows, until nobody writes to it any more: Linux calls that an error."""
    while True:
        try:
            part = terminal.read(4096)
        except OSError:
            return
        if not part:
            return
        yield part


def test_verify_of_headers_alone_is_quicker_and_says_less(line: CommandLine, logs: LogNamespace) -> None:
    damage_segment(logs, "a", 1, 1000)
    assert line("log", "verify", "a", "--quick").code == 0
    damage_segment(logs, "a", 1, 10)
    assert line("log", "verify", "a", "--quick").code == 1


def test_count_counts_all_or_between_two_places(line: CommandLine, logs: LogNamespace) -> None:
    assert line.ok("log", "count", "a").out == "35\n"
    assert line.ok("log", "count", "a", "--from", "1/1/2", "--to", "2/0/1").out == "9\n"
    assert line.ok("log", "count", "a", "--from", DLSN(3, 0, 0).to_base64()).out == "5\n"
    assert line.ok("log", "count", "a", "--from", "3/0/0", "--to", "1/0/0").out == "0\n"


def test_a_dlsn_is_shown_in_every_form_and_every_form_is_taken(line: CommandLine) -> None:
    """DistributedLog's TestDLSN and its tool's serialize_dlsn, deserialize_dlsn."""
    forms = line.ok("log", "dlsn", "3/14/15", "--json").json
    assert forms["printed"] == "DLSN{logSegmentSequenceNo=3, entryId=14, slotId=15}"
    assert forms["hex"] == "01" + "0000000000000003" + "000000000000000e" + "000000000000000f"
    for form in forms.values():
        assert line.ok("log", "dlsn", form, "--json").json == forms
    shown = line.ok("log", "dlsn", "3/14/15").out
    assert forms["base64"] in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_bad_input_is_one_line_and_exit_code_2(line: CommandLine, logs: LogNamespace) -> None:
    for words in (
        ["inspect"],
        ["verify"],
        ["inspect", "nope"],
        ["verify", "a", "nope"],
        ["inspect", "a", "--segment", "0"],
        ["count", "nope"],
        ["count", "a", "--from", "tomorrow"],
        ["count", "a", "--to", "1/2"],
        ["count", "a", "--from", "9/0/0"],
        ["dlsn", "yesterday"],
        ["dlsn", "01ff"],
    ):
        done = line("log", *words)
        assert done.code == 2, words
        assert done.err.startswith("scribengin: "), words
        assert done.err.count("\n") == 1, words


def test_no_log_of_a_prefix_is_no_error(line: CommandLine, logs: LogNamespace) -> None:
    assert line.ok("log", "verify", "--prefix", "nothing/").out.startswith("0 logs, 0 records")
