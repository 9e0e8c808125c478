"""`config ...`, `scale`, `rebalance`, `pause`, `resume`: on real masters, without workers or Spark."""

from __future__ import annotations

import io
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.edits import EditPlan
from scribengin.dataflow.registry.config_node import config_to_bytes, owner_of_resource
from scribengin.dataflow.registry.edit_log import edits, write_edit
from scribengin.dataflow.registry.paths import sink_resource
from scribengin.dataflow.registry.view import DataflowView
from scribengin.log import LogNamespace
from scribengin.operations import editing
from scribengin.operations.lifecycle import author, masters
from scribengin.operations.submit.submit import launch_master
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry
from scribengin_tools.cli import main as cli
from tests.integration.cli_runner import CommandLine, quiet_config

PYTHON = sys.executable
pytestmark = pytest.mark.usefixtures("no_standbys", "verdicts")
CONFIG = quiet_config(session_timeout_s=30)


@pytest.fixture
def view(registry: Registry, line: CommandLine, home: Path) -> Iterator[DataflowView]:
    """A dataflow that was submitted, and has no master."""
    with LogNamespace.open("/logs", registry=registry) as logs:
        logs.create("words/0")
        logs.create("words/1")
    view = DataflowView(registry, "quiet")
    view.submit(CONFIG, ["log:/logs/loud"], SYSTEM_CLOCK.now_ms(), author="ada@here")
    yield view
    line("kill", "quiet")


@pytest.fixture
def led(view: DataflowView, home: Path) -> DataflowView:
    """The same, with a master."""
    launch_master(view.registry, "quiet", home, standbys=0)
    wait_until(lambda: masters(view) and view.status().master, timeout_s=120, what="a master")
    return view


class Screen(io.StringIO):
    """A terminal to write on."""

    def isatty(self) -> bool:
        return True


def test_a_value_commands_no_terminal(registry: Registry, line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    sql = f"{CONFIG.sql} -- \x1b]0;owned\x07"
    DataflowView(registry, "quiet").submit(CONFIG.model_copy(update={"sql": sql}), [], SYSTEM_CLOCK.now_ms())
    assert line.ok("config", "get", "quiet", "sql").out == f"{sql}\n"
    screen = Screen()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", screen)
        assert cli.run(["config", "get", "quiet", "sql"]) == 0
    assert screen.getvalue() == f"{CONFIG.sql} -- \\x1b]0;owned\\x07\n"


def test_values_are_shown_and_set_and_the_master_says_what_that_does(line: CommandLine, led: DataflowView) -> None:
    assert line.ok("config", "get", "quiet", "round.records_max").out == "100000\n"
    assert line.ok("config", "get", "quiet", "tasks").out == "\n"
    assert "workers: 0" in line.ok("config", "get", "quiet").out
    done = line.ok("config", "set", "quiet", "round.records_max=7", "tasks=1")
    assert done.out == "version 1 of the config of 'quiet': round.records_max: 100000 -> 7, tasks: default -> 1\n"
    assert "accepted: workers take it over with their next round; the streams are grouped anew" in done.err
    assert line.ok("config", "get", "quiet", "--json").json["round"]["records_max"] == 7
    assert line.ok("config", "get", "quiet", "round.records_max", "--version", "0").out == "100000\n"
    assert line.ok("config", "set", "quiet", "tasks=").out.endswith("tasks: 1 -> default\n")
    assert "is like that already (version 2)" in line.ok("config", "set", "quiet", "workers=0").out


def test_the_history_says_who_changed_what_and_what_that_did(line: CommandLine, led: DataflowView) -> None:
    line.ok("config", "set", "quiet", "round.records_max=7")
    led.set_config(led.config().value.model_copy(update={"session_timeout_s": 45.0}), 1)
    wait_until(lambda: len(edits(led)) == 3, timeout_s=120, what="the master to see the raw edit")
    led.registry.set(led.paths.config, b'{"wrokers": 3}')
    wait_until(lambda: len(edits(led)) == 4, timeout_s=120, what="the master to see the raw edits")
    told = line.ok("config", "history", "quiet", "--json").json
    assert [(edit["version"], edit["author"], edit["outcome"]) for edit in told] == [
        (0, "ada@here", "accepted"),
        (1, author(), "accepted"),
        (2, None, "accepted"),
        (3, None, "refused"),
    ]
    assert told[1]["actions"] == ["workers take it over with their next round"]
    shown = line.ok("config", "history", "quiet").out
    for words in ("2 *", "unknown key 'wrokers'", "session_timeout_s: 30.0 -> 45.0", "submitted"):
        assert words in shown, shown
    wait_until(lambda: led.status().config_version == 2, timeout_s=60, what="the master to write its status")
    shown = line.ok("status", "quiet").out
    assert "wrokers" in shown
    assert "version 2" in shown
    assert "was refused" in line.ok("config", "get", "quiet").err


def test_what_looks_like_a_secret_is_told_and_shown_only_where_that_is_asked_for(
    line: CommandLine, led: DataflowView
) -> None:
    done = line.ok("config", "set", "quiet", "settings.db.password=hunter2", "settings.token=${env:HOME}")
    assert "quiet: settings.db.password stands in the clear in the registry" in done.err
    assert "settings.token" not in done.err
    assert "hunter2" not in done.out + done.err
    for asked in (
        ("config", "get", "quiet"),
        ("config", "get", "quiet", "--json"),
        ("config", "get", "quiet", "settings.db.password"),
        ("registry", "get", led.paths.config),
        ("registry", "tree", led.paths.root, "--json"),
    ):
        assert "hunter2" not in line.ok(*asked).out, asked
        assert "hunter2" in line.ok(*asked, "--secrets").out, asked
    for asked in (
        ("config", "history", "quiet"),
        ("config", "history", "quiet", "--json"),
        ("status", "quiet", "--json"),
    ):
        assert "hunter2" not in line.ok(*asked).out, asked


def test_going_back_is_another_edit_and_leaves_the_state_alone(line: CommandLine, led: DataflowView) -> None:
    line.ok("config", "set", "quiet", "round.records_max=7", "settings.limit=3")
    line.ok("pause", "quiet")
    assert "settings.limit: 3 -> default" in line.ok("config", "rollback", "quiet", "0").out
    config = led.config_in_force().value
    assert (config.round, config.settings, config.desired_state) == (CONFIG.round, {}, "paused")
    assert [edit.version for edit in edits(led)] == [0, 1, 2, 3]


def test_pause_and_resume(line: CommandLine, led: DataflowView) -> None:
    assert line.ok("pause", "quiet").out == "dataflow 'quiet' is paused\n"
    assert line.ok("pause", "quiet").out == "dataflow 'quiet' was paused already\n"
    assert line.ok("resume", "quiet").out == "dataflow 'quiet' goes on\n"
    assert line.ok("resume", "quiet").out == "dataflow 'quiet' is not paused\n"


def test_tasks_are_not_scaled_under_a_reader_that_nobody_waits_for(
    line: CommandLine, led: DataflowView, tmp_path: Path
) -> None:
    """Right behind it or further on; a reader of logs that holds them back is waited for."""
    sources = {"loud": {"kind": "log", "logs": "loud/*"}}
    value = {"name": "next", "sources": sources, "sql": "SELECT payload FROM loud", "workers": 0}
    files = {"kind": "hdfs", "path": str(tmp_path / "out"), "format": "raw"}
    following = DataflowConfig.parse({**value, "sinks": {"out": files}}, source="the test")
    DataflowView(led.registry, "next").submit(following, [], SYSTEM_CLOCK.now_ms())
    version = line.ok("scale", "quiet", "--tasks", "2").out
    assert "tasks: default -> 2" in version
    sources = {"out": {"kind": "hdfs", "path": str(tmp_path / "out" / "part-*")}}
    value = {"name": "last", "sources": sources, "sql": "SELECT payload FROM out", "workers": 0}
    last = DataflowConfig.parse({**value, "sinks": {"end": {"kind": "log", "log": "end"}}}, source="the test")
    DataflowView(led.registry, "last").submit(last, [], SYSTEM_CLOCK.now_ms())
    refused = line("scale", "quiet", "--tasks", "1")
    assert refused.code != 0
    assert f"dataflow 'last' reads files {tmp_path / 'out'}, which 'next' writes" in refused.err
    assert "`scribengin config set quiet tasks=1`" in refused.err
    for command in (["config", "set", "quiet", "tasks=1"], ["config", "rollback", "quiet", "0"]):
        refused = line(*command)
        assert refused.code != 0, command
        assert "nobody waits for it" in refused.err
    assert led.config().value.tasks == 2
    line.ok("scale", "quiet", "--tasks", "2")  # nothing moves
    line.ok("scale", "quiet", "--workers", "0")
    assert "tasks: 2 -> 1" in line.ok("scale", "quiet", "--tasks", "1", "--force").out
    assert "tasks: 1 -> 2" in line.ok("config", "set", "quiet", "tasks=2", "--force").out


def test_tasks_are_scaled_and_regrouped_without_anybody_who_runs_them(line: CommandLine, led: DataflowView) -> None:
    wait_until(lambda: len(led.tasks()) == 2, timeout_s=60, what="the tasks")
    assert "tasks: default -> 1" in line.ok("scale", "quiet", "--tasks", "1").out
    wait_until(lambda: len(led.tasks()) == 1, timeout_s=60, what="one task")
    (task,) = led.tasks().values()
    assert [stream.name for stream in task.sources] == ["words/0", "words/1"]
    with LogNamespace.open("/logs", registry=led.registry) as namespace:
        namespace.create("words/2")
    wait_until(lambda: len(led.task("task-0").sources) == 3, timeout_s=120, what="the later log to join the task")
    wait_until(
        lambda: any(event.kind == "tasks_regrouped" for event in led.history().events),
        timeout_s=60,
        what="the history to say so",
    )
    assert "rebalance: 0 -> 1" in line.ok("rebalance", "quiet").out


def test_an_error_route_is_added_to_a_dataflow_that_keeps_its_tasks_and_positions(
    line: CommandLine, led: DataflowView
) -> None:
    wait_until(lambda: len(led.tasks()) == 2, timeout_s=60, what="the tasks")
    before = led.tasks()
    route = ["errors.action=route", "errors.sink=bad", "sinks.bad.kind=log", "sinks.bad.log=bad"]
    line.ok("config", "set", "quiet", *route)

    def routed() -> bool:
        return all({stream.sink for stream in task.sinks} == {"loud", "bad"} for task in led.tasks().values())

    wait_until(routed, timeout_s=120, what="the tasks to write the error route, too")
    assert {n: t.sources for n, t in led.tasks().items()} == {n: t.sources for n, t in before.items()}
    assert owner_of_resource(led.registry.get(sink_resource("log:/logs/bad"))) == "quiet"
    with LogNamespace.open("/logs", registry=led.registry) as namespace:
        assert {"bad/0", "bad/1"} <= set(namespace.names())
    wait_until(lambda: "bad" in led.status().guarantees, timeout_s=60, what="the status to name the sink")


def test_an_edit_of_a_dataflow_that_has_ended_waits_for_its_start(line: CommandLine, view: DataflowView) -> None:
    line.ok("kill", "quiet")
    done = line.ok("config", "set", "quiet", "sql=SELECT upper(payload) AS payload FROM words")
    assert "it counts from `scribengin start quiet` on" in done.err
    line.ok("start", "quiet")
    wait_until(lambda: "upper" in str(view.config_in_force().value.sql), timeout_s=60, what="the new master's word")
    assert edits(view)[-1].outcome == "accepted"


@pytest.mark.parametrize(
    ("pair", "named"),
    [
        ("wrokers=2", "unknown key 'wrokers'"),
        ("workers=many", "workers: "),
        ("workers=-1", "workers: "),
        ("workers", "workers: write KEY=VALUE, as in workers=2"),
        ("name.first=x", "'name' holds no keys"),
        ("settings.a=[1", "the value is no YAML"),
        ("sinks.loud.log=other", "sinks.loud.log cannot be edited: delete the dataflow"),
        ("launcher=yarn", "launcher"),
        (f"settings.text={'x' * 300_000}", "the value has more than 262,144 bytes"),
    ],
)
def test_a_bad_value_changes_nothing(line: CommandLine, view: DataflowView, pair: str, named: str) -> None:
    done = line("config", "set", "quiet", "workers=1", pair)
    assert done.code == 2
    assert named in done.err
    assert len(done.err.splitlines()) == 1
    assert view.config().version == 0
    assert len(edits(view)) == 1


def test_values_that_others_set_meanwhile_stay_and_are_told(
    line: CommandLine, view: DataflowView, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = editing.plan_edit

    def slow(old: DataflowConfig, new: DataflowConfig, *, running: bool) -> EditPlan:
        """Somebody else is quicker, once."""
        monkeypatch.setattr(editing, "plan_edit", judged)
        found = view.config()
        other = found.value.model_copy(update={"settings": {"limit": 9}})
        write_edit(view, other, found.version, author="ada@here", at_ms=1)
        return judged(old, new, running=running)

    monkeypatch.setattr(editing, "plan_edit", slow)
    done = line.ok("config", "set", "quiet", "round.records_max=5")
    assert "edited meanwhile, and kept: version 1 by ada@here: settings.limit: default -> 9" in done.err
    config = view.config().value
    assert (config.settings, config.round.records_max) == ({"limit": 9}, 5)


def test_a_config_node_that_somebody_deletes_is_told_and_made_again_is_an_edit(
    line: CommandLine, led: DataflowView
) -> None:
    line.ok("config", "set", "quiet", "round.records_max=7")
    led.registry.delete(led.paths.config)
    wait_until(lambda: led.status().config_error, timeout_s=60, what="the status to say so")
    told = led.status().config_error or ""
    assert f"{led.paths.config} is gone: version 1 of the config stays in force" in told
    assert "config rollback quiet 1" in told
    for command in (("status", "quiet"), ("config", "get", "quiet"), ("list",), ("monitor", "--once")):
        line.ok(*command)
    assert masters(led), "nobody ends because of it"
    done = line.ok("config", "rollback", "quiet", "1")
    assert "accepted" in done.err
    wait_until(lambda: led.status().config_error is None, timeout_s=60, what="the status to be well again")
    led.registry.delete(led.paths.config)
    wait_until(lambda: led.status().config_error, timeout_s=60, what="the status to say so")
    edited = CONFIG.model_copy(update={"settings": {"limit": 9}})
    led.registry.create(led.paths.config, config_to_bytes(edited))  # by any client: its version is 0
    wait_until(lambda: led.config_in_force().value.settings == {"limit": 9}, timeout_s=60, what="it to be heard")
    assert [edit.version for edit in edits(led)] == [0, 1, 1000, 2000]
    line.ok("config", "set", "quiet", "round.records_max=8")
    assert led.config_in_force().value.round.records_max == 8
    line.ok("stop", "quiet")


def test_a_version_that_cannot_be_read_is_named_and_the_others_are_shown(line: CommandLine, view: DataflowView) -> None:
    line.ok("config", "set", "quiet", "round.records_max=7")
    line.ok("config", "set", "quiet", "round.records_max=8")
    view.registry.set(view.paths.edit(1), b"{")
    done = line.ok("config", "history", "quiet", "--json")
    assert [edit["version"] for edit in done.json] == [0, 2]
    assert f"left out: {view.paths.edit(1)} does not hold a ConfigEdit" in done.err
    line.ok("config", "set", "quiet", "round.records_max=9")


def editor(directory: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """An editor that does this to the file `$1`."""
    program = directory / "editor.sh"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", str(program))


def test_the_editor_shows_the_config_and_what_is_saved_is_in_force(
    line: CommandLine, led: DataflowView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor(tmp_path, monkeypatch, f"cp $1 {tmp_path}/seen; sed -i 's/records_max: 100000/records_max: 5/' $1")
    assert "round.records_max: 100000 -> 5" in line.ok("config", "edit", "quiet").out
    assert "version 0" in (tmp_path / "seen").read_text()
    editor(tmp_path, monkeypatch, "true")
    assert "is like that already" in line.ok("config", "edit", "quiet").out
    editor(tmp_path, monkeypatch, ": > $1")
    assert "is like that already" in line.ok("config", "edit", "quiet").out
    assert led.config().version == 1


def kept(err: str) -> str:
    """The text that a message says is kept."""
    return Path(err.split("your text is in ")[1].split(")")[0]).read_text()


@pytest.mark.parametrize(
    ("script", "named"),
    [
        ("sed -i 's/^workers: 0/wrokers: 0/' $1", "unknown key 'wrokers'"),
        ("echo ' : [' >> $1", "no YAML"),
        ("sed -i 's/log: loud/log: other/' $1", "cannot be edited"),
        ("exit 3", "ended with 3"),
    ],
)
def test_what_is_wrong_is_not_written_and_the_text_is_kept(
    line: CommandLine, view: DataflowView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, named: str
) -> None:
    editor(tmp_path, monkeypatch, script)
    done = line("config", "edit", "quiet")
    assert done.code in (1, 2)
    assert named in done.err
    assert "quiet" in kept(done.err)
    assert view.config().version == 0


def test_the_second_of_two_operators_is_told_what_the_first_did_and_both_edits_are_there(
    line: CommandLine, led: DataflowView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one's command runs while the second one's editor is open."""
    first = f"{PYTHON} -m scribengin_tools config set quiet settings.limit=9"
    editor(tmp_path, monkeypatch, f"{first} >/dev/null 2>&1; sed -i 's/records_max: 100000/records_max: 5/' $1")
    done = line("config", "edit", "quiet")
    assert done.code == 2
    assert f"version 1 by {author()}: settings.limit: default -> 9" in done.err
    assert "records_max: 5" in kept(done.err)
    config = led.config().value
    assert (config.settings, config.round) == ({"limit": 9}, CONFIG.round)
    line.ok("config", "set", "quiet", "round.records_max=5")
    assert led.config().value.settings == {"limit": 9}


def test_a_text_that_is_not_in_utf_8_is_told_and_kept(
    line: CommandLine, view: DataflowView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor(tmp_path, monkeypatch, r"printf 'settings: {a: \351}\n' >> $1")
    done = line("config", "edit", "quiet")
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert "the text is not in UTF-8 (byte 0xe9 in line " in done.err
    text = Path(done.err.split("your text is in ")[1].split(")")[0])
    assert text.read_bytes().endswith(b"settings: {a: \xe9}\n")
    text.unlink()
    assert view.config().version == 0


@pytest.mark.parametrize("script", ["rm $1", "rm $1; mkdir $1", "rm $1; ln -s nowhere $1"])
def test_a_text_that_the_editor_has_removed_is_told(
    line: CommandLine, view: DataflowView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    editor(tmp_path, monkeypatch, f"echo $1 > {tmp_path}/name; {script}")
    done = line("config", "edit", "quiet")
    path = Path((tmp_path / "name").read_text().strip())
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert f"{path} cannot be read" in done.err
    assert "your text is in" not in done.err
    assert view.config().version == 0
    path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)


def test_a_text_is_written_as_it_is_read_whatever_the_locale(
    line: CommandLine, view: DataflowView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = view.config()
    write_edit(view, found.value.model_copy(update={"settings": {"a": "\u00e9"}}), found.version, author="x", at_ms=1)
    editor(tmp_path, monkeypatch, "sed -i 's/records_max: 100000/records_max: 5/' $1")
    # As Python has it where the locale is of one byte a letter.
    monkeypatch.setattr(tempfile, "NamedTemporaryFile", in_latin_1(tempfile.NamedTemporaryFile))
    assert "round.records_max: 100000 -> 5" in line.ok("config", "edit", "quiet").out
    assert view.config().value.settings == {"a": "\u00e9"}


def in_latin_1(make: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments, **options: make(*arguments, **{"encoding": "latin-1", **options})
