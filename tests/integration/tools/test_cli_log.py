"""`scribengin log` and `scribengin registry` on a real registry and a real store."""

from __future__ import annotations

import json
import select
import signal
import subprocess

import pytest

from scribengin.log import LogNamespace, RetentionHold
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry
from scribengin_registry.errors import RegistryError
from scribengin_tools.rendering.text import report
from tests.integration.cli_runner import CommandLine, assert_ends_unread, expect_registry_away, whole_tree


def test_what_is_written_is_read_back_line_by_line(line: CommandLine) -> None:
    assert line.ok("log", "create", "a/0").out == "created a/0\n"
    assert "wrote 2 records" in line.ok("log", "write", "a/0", "one", "zwölf").err
    assert line.fed("three\n\nfive", "log", "write", "a/0").code == 0
    assert line.ok("log", "read", "a/0").out.splitlines() == ["one", "zwölf", "three", "", "five"]
    assert line.ok("log", "read", "a/0", "-n", "1").out == "one\n"


def test_a_log_that_is_not_there_is_named_as_people_name_it(line: CommandLine) -> None:
    for command in ("read", "info", "count", "delete", "inspect", "truncate"):
        done = line("log", command, "flights/7", *(["--before", "1/0/0"] if command == "truncate" else []))
        assert (done.code, done.out) == (2, "")
        assert done.err == ("scribengin: there is no log 'flights/7' in /logs; `scribengin log list` names all\n")


def test_a_log_whose_name_is_like_one_that_there_is_may_be_meant(line: CommandLine) -> None:
    line.ok("log", "create", "fahrenheit/0", "other")
    for mistaken in ("farenheit/0", "fahrenheit"):
        done = line("log", "write", mistaken, "hot")
        assert done.code == 2
        assert done.err.endswith("`scribengin log list` names all: did you mean 'fahrenheit/0'?\n")


def test_records_are_written_with_a_key_and_a_channel(line: CommandLine) -> None:
    line.ok("log", "create", "a")
    line.ok("log", "write", "a", "hot", "cold", "--key", "küche", "--channel", "alarms/kitchen")
    record = line.ok("log", "read", "a", "--json", "-n", "1").json
    assert (record["payload"], record["key"], record["channel"], record["type"]) == (
        "hot",
        "küche",
        "alarms/kitchen",
        0,
    )


def test_channels_are_read_by_their_prefix(line: CommandLine) -> None:
    line.ok("log", "create", "a")
    for number, channel in enumerate(("alarms/kitchen", "alarms/cellar", "readings", "alarms/kitchen", "readings")):
        line.ok("log", "write", "a", str(number), "--channel", channel)
    line.ok("log", "write", "a", "5", "--seal")
    for words in (["read"], ["tail", "--from", "earliest"], ["dump", "--format", "text"]):
        assert line.ok("log", words[0], "a", *words[1:], "--channel", "alarms/").out.split() == ["0", "1", "3"]
        both = ("--channel", "readings", "--channel", "alarms/k")
        assert line.ok("log", words[0], "a", *words[1:], *both).out.split() == ["0", "2", "3", "4"]
        assert line.ok("log", words[0], "a", *words[1:], "--channel", "none").out == ""
    part = ("--channel", "alarms/", "--to", "4/0/0", "--txid-from", "1", "--format", "text")
    assert line.ok("log", "dump", "a", *part).out.split() == ["0", "1"]


def test_a_long_stream_arrives_whole(line: CommandLine) -> None:
    line.ok("log", "create", "a")
    text = "".join(f"{number}\n" for number in range(120_000))
    assert "wrote 120,000 records" in line.fed(text, "log", "write", "a").err
    assert line.ok("log", "read", "a").out == text


def test_json_tells_all_about_a_record_and_its_place_can_be_started_from(line: CommandLine) -> None:
    line.ok("log", "create", "a")
    line.ok("log", "write", "a", "one", "two", "three")
    records = [
        line.ok("log", "read", "a", "--json", "--from", place, "-n", "1").json for place in ("earliest", "1/0/2")
    ]
    assert [record["payload"] for record in records] == ["one", "three"]
    assert records[1] == {**records[1], "dlsn": "1/0/2", "sequence_id": 2, "key": None, "channel": None}


def test_a_payload_that_is_no_text_is_shown_as_base64(line: CommandLine, registry: Registry) -> None:
    line.ok("log", "create", "a")
    with LogNamespace.open("/logs", registry=registry) as logs, logs.open_writer("a") as writer:
        writer.write(b"\xff\x00", key=b"k").result()
    assert line.ok("log", "read", "a", "--json").json == {
        **line.ok("log", "read", "a", "--json").json, "payload_base64": "/wA=", "key": "k",
    }  # fmt: skip


def test_list_and_info_show_what_a_log_holds(line: CommandLine) -> None:
    line.ok("log", "create", "a/0", "a/1", "b", "--set", "segment_bytes_max=8192")
    line.ok("log", "write", "a/1", "one", "two")
    found = line.ok("log", "list", "a/", "--json").json
    assert [(log["log"], log["records"]) for log in found] == [("a/0", 0), ("a/1", 2)]
    shown = line.ok("log", "list").out.splitlines()
    assert [row.split()[:2] for row in shown] == [["LOG", "RECORDS"], ["a/0", "0"], ["a/1", "2"], ["b", "0"]]
    for wanted, found in (("a/", ["a/0", "a/1"]), ("*/1", ["a/1"]), ("?", ["b"]), ("[bc]*", ["b"])):
        assert [one["log"] for one in line.ok("log", "list", wanted, "--json").json] == found
    assert line.ok("log", "list", "c*").err == "no logs like c* in /logs\n"
    assert line.ok("log", "list", "c").err == "no logs that begin with c in /logs\n"
    info = line.ok("log", "info", "a/1", "--json").json
    assert (info["end"], info["sealed"], info["config"]["segment_bytes_max"]) == ("1/1/0", False, 8192)
    assert "nobody just now" in line.ok("log", "info", "a/1").out


def test_tail_follows_a_log_until_it_is_sealed(line: CommandLine) -> None:
    line.ok("log", "create", "a")
    line.ok("log", "write", "a", "one")
    with line.process("log", "tail", "a", "--from", "earliest") as tail:
        assert tail.stdout is not None
        assert tail.stdout.readline() == "one\n"
        line.ok("log", "write", "a", "two")
        assert tail.stdout.readline() == "two\n"
        line.ok("log", "write", "a", "three", "--seal")
        assert tail.stdout.read() == "three\n"
    assert tail.returncode == 0
    assert "was sealed" in line("log", "write", "a", "four").err


def test_tail_of_several_logs_names_the_log_whose_records_follow(line: CommandLine) -> None:
    line.ok("log", "create", "a/0", "a/1")
    line.ok("log", "write", "a/0", "one", "two", "--seal")
    line.ok("log", "write", "a/1", "three", "--seal")
    both = ("log", "tail", "a/0", "a/1", "--from", "earliest")
    assert line.ok(*both).out == "==> a/0 <==\none\ntwo\n\n==> a/1 <==\nthree\n"
    assert line.ok(*both, "-n", "1").out == "==> a/0 <==\none\n"
    told = [json.loads(said) for said in line.ok(*both, "--json").out.splitlines()]
    assert [(one["log"], one["payload"]) for one in told] == [("a/0", "one"), ("a/0", "two"), ("a/1", "three")]
    for wrong, words in (
        (("a/0", "a/2"), "log 'a/2'"),
        (("a/0", "a/1", "--from", "1/0/0"), "--from 1/0/0: that is a place in one log, and 2 logs are named"),
    ):
        done = line("log", "tail", *wrong)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
        assert words in done.err


def test_tail_ends_where_nobody_reads_what_it_prints(line: CommandLine) -> None:
    """As before `| head -1`, though no more is written."""
    line.ok("log", "create", "a")
    line.ok("log", "write", "a", "one")
    with line.process("log", "tail", "a", "--from", "earliest") as tail:
        assert_ends_unread(tail, "one")


def test_tail_begins_at_the_end_and_ctrl_c_ends_it(line: CommandLine) -> None:
    line.ok("log", "create", "a")
    line.ok("log", "write", "a", "before")
    with line.process("log", "tail", "a") as tail:
        wait_until(lambda: _shows_something(line, tail), timeout_s=120, what="the tail to have begun")
        tail.send_signal(signal.SIGINT)
        out, err = tail.communicate()
    assert set(out.splitlines()) == {"after"}
    assert err == ""
    assert tail.returncode == 130


def test_whoever_ends_a_write_hears_how_much_is_written(line: CommandLine) -> None:
    line.ok("log", "create", "a")
    with line.process("log", "write", "a", stdin=subprocess.PIPE) as write:
        assert write.stdin is not None
        for said in ("one\n", "two\n"):
            write.stdin.write(said)
            write.stdin.flush()
            wait_until(lambda s=said: line.ok("log", "read", "a").out.endswith(s), timeout_s=120, what=said)
        write.send_signal(signal.SIGINT)
        _, err = write.communicate()
    assert write.returncode == 130
    told = [f"written to a before this: {count}\n" for count in ("1 record", "2 records")]
    assert err in told, "the second may be there a moment before the command hears of it"


def _shows_something(line: CommandLine, tail: subprocess.Popen[str]) -> bool:
    """Nobody can see from outside when a tail has begun: so write until it shows something."""
    line.ok("log", "write", "a", "after")
    assert tail.stdout is not None
    return bool(select.select([tail.stdout], [], [], 0.1)[0])


def test_creating_is_all_or_nothing(line: CommandLine, registry: Registry) -> None:
    line.ok("log", "create", "b")
    before = whole_tree(registry)
    for names in (["a", "b"], ["a", "not a name"], ["a", "../b"]):
        done = line("log", "create", *names)
        assert done.code == 2
        assert names[1] in done.err
    assert line("log", "create", "c", "--set", "segment_bytes=1").code == 2
    assert line("log", "create", "c", "--set", "fsync=maybe").code == 2
    assert whole_tree(registry) == before


def test_deleting_is_all_or_nothing_and_asks_for_force_when_somebody_writes(
    line: CommandLine, registry: Registry
) -> None:
    line.ok("log", "create", "a", "b")
    with LogNamespace.open("/logs", registry=registry) as logs:
        writer = logs.open_writer("b")
        before = whole_tree(registry)
        assert line("log", "delete", "a", "b").code == 2
        assert line("log", "delete", "a", "nope").code == 2
        assert whole_tree(registry) == before
        assert line.ok("log", "delete", "a", "b", "--force").out == "deleted a, b\n"
        writer.abort()
    assert line.ok("log", "list", "--json").json == []


def test_a_log_that_a_dataflow_reads_is_not_deleted_under_it(line: CommandLine, registry: Registry) -> None:
    line.ok("log", "create", "a", "b")
    with LogNamespace.open("/logs", registry=registry) as logs:
        logs.register_hold("b", RetentionHold(dataflow="hot", source="src", pattern="b"))
    before = whole_tree(registry)
    done = line("log", "delete", "a", "b")
    assert done.code == 2
    assert (
        "log 'b' is read by dataflow 'hot': `scribengin delete hot` first, or delete the log with --force" in done.err
    )
    assert whole_tree(registry) == before
    assert line.ok("log", "delete", "a", "b", "--force").out == "deleted a, b\n"


def test_what_is_not_there_is_one_line_and_exit_code_2(line: CommandLine, registry: Registry) -> None:
    line.ok("log", "create", "a")
    before = whole_tree(registry)
    for words in (
        ["log", "read", "nope"],
        ["log", "tail", "nope"],
        ["log", "info", "nope"],
        ["log", "write", "nope", "x"],
        ["log", "read", "a", "--from", "yesterday"],
        ["log", "read", "a", "--from", "7/0/0"],
        ["log", "list", "--namespace", "/elsewhere"],
        ["log", "list", "--namespace", "ftp://x/logs"],
        ["registry", "get", "/nope/at/all"],
        ["registry", "tree", "/nope"],
        ["status", "nope"],
        ["history", "nope"],
        ["logs", "nope"],
        ["stop", "nope"],
        ["kill", "nope"],
        ["delete", "nope"],
        ["start", "nope"],
    ):
        done = line(*words)
        assert (done.code, done.out) == (2, ""), words
        assert done.err.startswith("scribengin: "), words
        assert done.err.count("\n") == 1, words
        assert whole_tree(registry) == before, words


def test_a_registry_that_is_away_is_named_within_seconds(line: CommandLine) -> None:
    expect_registry_away(line, "list")


@pytest.mark.parametrize("hosts", ["a:b:c", " ", "http://somewhere"])
def test_an_address_that_makes_no_sense_is_bad_input(line: CommandLine, hosts: str) -> None:
    done = line("list", "--registry", hosts)
    assert done.code == 2
    assert done.err.count("\n") == 1


def test_the_option_goes_before_the_variable(line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRIBENGIN_REGISTRY", "127.0.0.1:1")
    line.ok("log", "list", "--registry", line.hosts)
    line.ok("log", "list", "--namespace", f"distributedlog-file://{line.hosts}/logs")


def test_nodes_of_names_with_slashes_are_shown_and_asked_for_as_they_are(line: CommandLine, registry: Registry) -> None:
    line.ok("log", "create", "flights/0")
    line.ok("log", "create", "flights/0/Grüße")
    registry.create("/logs/logs/flights%2F0/segments/bad", b"{")
    drawn = line.ok("registry", "tree", "/logs/logs").out
    assert "── flights/0  " in drawn
    assert "── flights/0/Grüße  " in drawn
    assert "%" not in drawn
    assert line.ok("registry", "tree", "/logs/logs/flights/0").out.startswith("/logs/logs/flights/0\n")
    for path in ("/logs/logs/flights/0", "/logs/logs/flights%2F0", "logs/logs/flights/0/"):
        assert '"name": "flights/0"' in line.ok("registry", "get", path).out
    longest = line.ok("registry", "get", "/logs/logs/flights/0/Grüße", "--json").json
    assert longest["data"]["name"] == "flights/0/Grüße"
    assert line.ok("registry", "get", "/logs/logs/flights/0/segments/bad").out == "{\n"
    missing = line("registry", "get", "/logs/logs/flights/0/segments/2")
    assert missing.code == 2
    assert "there is no node /logs/logs/flights/0/segments/2 in the registry" in missing.err
    assert missing.err.endswith("see `scribengin registry tree /logs/logs/flights/0/segments`\n")
    registry.set("/logs/logs/flights%2F0", b"{")
    broken = line("log", "info", "flights/0")
    assert "/logs/logs/flights/0 does not hold a LogDescriptor" in broken.err


def test_an_error_of_the_registry_names_a_node_as_people_do(capsys: pytest.CaptureFixture[str]) -> None:
    path = "/logs/logs/flights%2F0"
    report(RegistryError(f"cannot read {path}: it is gone", path=path))
    assert capsys.readouterr().err == "scribengin: cannot read /logs/logs/flights/0: it is gone\n"


def test_the_registry_can_be_looked_at(line: CommandLine, registry: Registry) -> None:
    registry.create("/x/y", b'{"a": 1}', parents=True)
    registry.create("/x/binary", b"\xff")
    registry.create("/x/mine", ephemeral=True)
    drawn = line.ok("registry", "tree", "/x").out
    assert 'y  {"a": 1}' in drawn
    assert "mine (ephemeral)" in drawn
    assert "binary  1 B" in drawn
    tree = line.ok("registry", "tree", "/x", "--json").json
    assert tree["children"]["y"]["data"] == {"a": 1}
    assert tree["children"]["mine"]["ephemeral"] is True
    assert line.ok("registry", "tree", "/", "--depth", "1", "--json").json["children"]["x"]["children"] == {}
    assert line.ok("registry", "get", "/x/y").out == '{"a": 1}\n'
    assert line.ok("registry", "get", "/x/binary", "--json").json["data"] == {"base64": "/w=="}
