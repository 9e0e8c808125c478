"""`list`, `status`, `history`, `logs`, `stop`, `start`, `kill`, `delete`: on real masters, without workers or Spark."""

from __future__ import annotations

import io
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry.descriptors import DataflowStatus, HistoryEvent, TaskReport
from scribengin.dataflow.registry.view import DataflowView
from scribengin.errors import DataflowNotFound
from scribengin.launcher.contract import ContainerRequest
from scribengin.launcher.local.launcher import LocalLauncher
from scribengin.log import LogNamespace
from scribengin.operations.lifecycle import masters, set_desired_state
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry
from scribengin_registry.errors import VersionConflict
from scribengin_tools.cli.dataflow.submit import follow
from tests.integration.cli_runner import CommandLine, assert_ends_unread, quiet_config

pytestmark = pytest.mark.usefixtures("no_standbys")
CONFIG = quiet_config(session_timeout_s=8)


@pytest.fixture
def line(
    registry: Registry,
    registry_hosts: str,
    tmp_path: Path,
    home: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[CommandLine]:
    LogNamespace.bind("/logs", tmp_path / "logs", registry=registry)
    with LogNamespace.open("/logs", registry=registry) as logs:
        logs.create("words/0")
        logs.create("loud/0")
    monkeypatch.setenv("SCRIBENGIN_REGISTRY", registry_hosts)
    commands = CommandLine(registry_hosts, capfd)
    yield commands
    commands("kill", "quiet")


@pytest.fixture
def view(registry: Registry) -> DataflowView:
    """A dataflow that was submitted, and whose masters have all died."""
    view = DataflowView(registry, "quiet")
    view.submit(CONFIG, ["log:/logs/loud"], SYSTEM_CLOCK.now_ms())
    return view


def led(view: DataflowView) -> None:
    """Let it look as if a master stood for election, and did nothing."""
    view.registry.create(f"{view.paths.master}/somebody", ephemeral=True)


def running(view: DataflowView, error: str | None = None) -> DataflowStatus:
    """A status as a master writes it."""
    tasks = (
        TaskReport(task="task-0", generation=1, state="running", records_in=12_345, records_out=12_000, lag_records=17),
        TaskReport(
            task="task-1", generation=2, state="failed", error="Traceback (most recent call last):\nValueError: no"
        ),
    )
    status = view.status().model_copy(
        update={"state": "running", "tasks": tasks, "tasks_total": 3, "tasks_unassigned": ("task-2",), "error": error}
    )
    view.set_status(status)
    return status


def test_list_and_status_show_what_the_master_wrote(line: CommandLine, view: DataflowView) -> None:
    status = running(view, error="the disk is full")
    shown_status = {**status.model_dump(mode="json"), "state": "leaderless"}  # which no master writes of itself
    (listed,) = line.ok("list", "--json").json
    assert {**listed, **shown_status} == listed
    assert line.ok("list").out.splitlines()[1].split()[:5] == ["quiet", "leaderless", "3", "0", "~17"]
    shown = line.ok("status", "quiet").out
    for words in ("the disk is full", "none is alive", "12,345", "task-2", "ValueError: no", "count from when"):
        assert words in shown
    found = line.ok("status", "quiet", "--json").json
    assert {**found, **shown_status} == found
    assert (found["masters"], found["desired_state"], found["owners"]) == (0, "running", {})


def test_an_empty_registry_has_no_dataflows(line: CommandLine) -> None:
    assert line.ok("list", "--json").json == []
    assert line.ok("list").out == ""


def test_status_tells_of_an_edit_that_cannot_be_read(line: CommandLine, view: DataflowView) -> None:
    view.registry.set(view.paths.config, b'{"name": "quiet", "wrokers": 3}')
    assert "unknown key 'wrokers'" in line.ok("status", "quiet").out
    led(view)
    assert "asked to stop" in line.ok("stop", "quiet", "--no-wait").out
    assert view.config().value.desired_state == "stopped", "the edit that could not be read was replaced"
    assert line.ok("kill", "quiet").out.startswith("killed dataflow 'quiet'")


def test_status_watch_follows_the_dataflow(line: CommandLine, view: DataflowView) -> None:
    led(view)
    with line.process("status", "quiet", "--watch", "--json") as watching:
        assert watching.stdout is not None
        assert '"state": "starting"' in watching.stdout.readline()
        running(view)
        assert '"state": "running"' in watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        assert watching.communicate() == ("", "")
    assert watching.returncode == 130


def test_status_watch_ends_where_nobody_reads_what_it_prints(line: CommandLine, view: DataflowView) -> None:
    led(view)
    for form in ([], ["--json"]):
        with line.process("status", "quiet", "--watch", *form) as watching:
            assert_ends_unread(watching, "starting" if form else "quiet")


def test_history_shows_the_events_in_order(line: CommandLine, view: DataflowView) -> None:
    assert "nothing has happened" in line.ok("history", "quiet").err
    view.add_history(
        [HistoryEvent(at_ms=1000, kind="one", message="first"), HistoryEvent(at_ms=2, kind="b", message="")]
    )
    assert [event["kind"] for event in line.ok("history", "quiet", "--json").json] == ["one", "b"]
    assert "first" in line.ok("history", "quiet").out


def test_stop_without_wait_only_asks(line: CommandLine, view: DataflowView) -> None:
    running(view)
    led(view)
    assert "is asked to stop" in line.ok("stop", "quiet", "--no-wait").out
    assert view.config().value.desired_state == "stopped"
    assert "to be stopped" in line.ok("status", "quiet").out


def test_stop_says_so_when_no_master_is_left_to_do_it(line: CommandLine, view: DataflowView) -> None:
    running(view)
    done = line("stop", "quiet")
    assert done.code == 2
    assert "has no master any more" in done.err
    assert "scribengin kill quiet" in done.err
    assert view.config().version == 0


def test_stop_of_a_dataflow_that_failed_is_a_failure(line: CommandLine, view: DataflowView) -> None:
    running(view)
    led(view)

    def fail() -> None:
        wait_until(lambda: view.config().value.desired_state == "stopped", 120, "the stop to be asked for")
        view.set_status(view.status().model_copy(update={"state": "failed", "error": "it broke"}))
        view.registry.delete(f"{view.paths.master}/somebody")

    failing = threading.Thread(target=fail)
    failing.start()
    done = line("stop", "quiet")
    failing.join()
    assert done.code == 1
    assert "it broke" in done.err


def test_who_waits_hears_once_why_it_does_not_run_yet(view: DataflowView, monkeypatch: pytest.MonkeyPatch) -> None:
    heard, trouble = io.StringIO(), "worker-1 ended: held 1.1 GB of memory"
    monkeypatch.setattr(sys, "stderr", heard)
    led(view)
    running(view, trouble)

    def end() -> None:
        wait_until(lambda: trouble in heard.getvalue(), 120, "the trouble to be told")
        running(view, trouble)
        view.set_status(view.status().model_copy(update={"state": "stopped", "error": None}))

    with ThreadPoolExecutor() as pool:
        ending = pool.submit(end)
        follow(view, wait=True)
        ending.result()
    assert heard.getvalue().count(trouble) == 1


def test_edits_by_several_people_do_not_undo_each_other(view: DataflowView, home: Path) -> None:
    def edit(workers: int) -> None:
        wait_until(lambda: _edited(view, workers), 120, "the edit")

    editing = [threading.Thread(target=edit, args=(workers,)) for workers in (3, 4)]
    for thread in editing:
        thread.start()
    set_desired_state(view, "stopped")
    for thread in editing:
        thread.join()
    config = view.config().value
    assert config.desired_state == "stopped"
    assert config.workers in (3, 4)


def _edited(view: DataflowView, workers: int) -> bool:
    config = view.config()
    try:
        view.set_config(config.value.model_copy(update={"workers": workers}), config.version)
    except VersionConflict:
        return False
    return True


def test_a_dataflow_is_started_stopped_and_started_again(line: CommandLine, view: DataflowView) -> None:
    line.ok("kill", "quiet")
    for _time in range(2):
        assert line.ok("start", "quiet").out == "started dataflow 'quiet'\n"
        wait_until(lambda: masters(view), timeout_s=60, what="a master")
        assert "nothing to start" in line("start", "quiet").err
        assert line.ok("stop", "quiet").out == "dataflow 'quiet' is stopped\n"
    assert line.ok("stop", "quiet").out == "dataflow 'quiet' was stopped already\n"
    names = [process["name"] for process in line.ok("logs", "quiet", "--json").json]
    assert len(names) == len(set(names))
    wait_until(lambda: nothing_runs(line), timeout_s=120, what="the last master to end")


def nothing_runs(line: CommandLine) -> bool:
    """Whether every process of the dataflow has ended."""
    return all(not process["running"] for process in line.ok("logs", "quiet", "--json").json)


def test_kill_ends_masters_for_good_and_start_goes_on(line: CommandLine, view: DataflowView) -> None:
    line.ok("kill", "quiet")
    line.ok("start", "quiet")
    wait_until(lambda: masters(view), timeout_s=60, what="a master")
    killed = line.ok("kill", "quiet").out
    assert killed.startswith("killed dataflow 'quiet' (master-")
    assert view.status().state == "killed"
    assert nothing_runs(line)
    assert "was killed already" in line.ok("kill", "quiet").out
    assert line.ok("start", "quiet").code == 0


def test_kill_says_when_only_another_registry_has_such_a_dataflow(
    line: CommandLine, view: DataflowView, home: Path
) -> None:
    asleep = [sys.executable, "-c", "import signal; signal.pause()"]
    with LocalLauncher(home) as launcher:
        other = launcher.launch(ContainerRequest("localhost:1", "quiet", "worker-1", asleep, 256))
        try:
            assert "for the registry localhost:1" in line.ok("kill", "quiet").out
            assert launcher.poll(other) is None
        finally:
            launcher.kill(other)


def test_delete_is_for_dataflows_that_have_ended(line: CommandLine, view: DataflowView) -> None:
    running(view)
    done = line("delete", "quiet")
    assert done.code == 2
    assert "stop it first" in done.err
    line.ok("kill", "quiet")
    assert line.ok("delete", "quiet").out == "dataflow 'quiet' is deleted\n"
    with pytest.raises(DataflowNotFound):
        view.status()
    assert line("status", "quiet").code == 2


def test_delete_takes_along_what_its_containers_have_left_here_and_no_other_ones(
    line: CommandLine, view: DataflowView, home: Path
) -> None:
    line.ok("kill", "quiet")
    asleep = [sys.executable, "-c", "import signal; signal.pause()"]
    with LocalLauncher(home) as launcher:
        ended = launcher.launch(ContainerRequest(line.hosts, "quiet", "worker-1", [sys.executable, "-c", ""], 256))
        wait_until(lambda: launcher.poll(ended) is not None, timeout_s=60, what="the worker to end")
        orphan = launcher.launch(ContainerRequest(line.hosts, "quiet", "worker-2", asleep, 256))
        other = launcher.launch(ContainerRequest("localhost:1", "quiet", "worker-1", asleep, 256))
        try:
            line.ok("delete", "quiet")
            assert [container.id for container in launcher.all_containers("quiet")] == [other.id]
            assert [Path(one.directory).exists() for one in (ended, orphan, other)] == [False, False, True]
            assert launcher.poll(other) is None
        finally:
            launcher.forget(other)
    assert not Path(other.directory).parent.exists()


def test_where_files_appear_late_it_is_said_when_the_dataflow_starts(
    registry: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sinks = {
        "out": {"kind": "hdfs", "path": str(tmp_path / "out")},
        "fast": {"kind": "hdfs", "path": str(tmp_path / "fast"), "merge_age_s": 0},
        "log": {"kind": "log", "log": "loud"},
    }
    sql = dict.fromkeys(sinks, "SELECT payload FROM words")
    source = {"words": {"kind": "log", "logs": "words/*"}}
    config = DataflowConfig.parse({"name": "late", "sources": source, "sinks": sinks, "sql": sql}, source="the test")
    view = DataflowView(registry, "late")
    view.submit(config, [], SYSTEM_CLOCK.now_ms())
    follow(view, wait=False)
    said = " ".join(capsys.readouterr().err.split())
    assert f"out: files appear in {tmp_path / 'out'} 60 s after their first record (merge_age_s)" in said
    assert "`scribengin stop late` has all of them appear" in said
    assert said.count("files appear in") == 1


def test_logs_shows_and_follows_what_processes_say(line: CommandLine, view: DataflowView, home: Path) -> None:
    talk = "import sys, signal; print('one'); print('two', flush=True); print('three', file=sys.stderr, flush=True); "
    assert "has run on this machine" in line.ok("logs", "quiet").err
    with LocalLauncher(home) as launcher:
        argv = [sys.executable, "-c", talk + "signal.pause()"]
        worker = launcher.launch(ContainerRequest(line.hosts, "quiet", "worker-1", argv, 256))
        said = launcher.logs(worker).stderr
        wait_until(lambda: said.exists() and said.read_text(), timeout_s=60, what="the worker to speak")
        heading, *words = line.ok("logs", "quiet").out.splitlines()
        assert re.fullmatch(r"== worker-1, launched \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(running\)", heading)
        assert words == ["one", "two", "three"]
        assert line.ok("logs", "quiet", "-n", "1").out.splitlines() == [heading, "two", "three"]
        assert "there are: worker-1" in line("logs", "quiet", "--worker", "worker-9").err
        with line.process("logs", "quiet", "--follow", "--worker", "worker-1", "-n", "0") as following:
            check_that_it_follows(following, launcher.logs(worker).stdout)
        with line.process("logs", "quiet", "--follow", "--worker", "worker-1", "-n", "2") as unread:
            assert_ends_unread(unread, "worker-1 | ")
        launcher.kill(worker)
    assert "killed" in line.ok("logs", "quiet").out.splitlines()[0]


def check_that_it_follows(following: subprocess.Popen[str], file: Path) -> None:
    """What a process says later is shown behind its name. Nobody can see when following has begun: so say it often."""
    shown: list[str] = []

    def read() -> None:
        assert following.stdout is not None
        shown.append(following.stdout.readline())

    reading = threading.Thread(target=read)
    reading.start()

    def said() -> bool:
        with file.open("a") as output:
            output.write("later\n")
        return bool(shown)

    wait_until(said, timeout_s=120, what="something to be shown")
    reading.join()
    following.send_signal(signal.SIGINT)
    following.communicate()
    assert shown == ["worker-1 | later\n"]
    assert following.returncode == 130
