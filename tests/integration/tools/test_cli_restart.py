"""`restart`: the code and the config as they are now, or a refusal before anything is stopped."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from scribengin.dataflow.config import DataflowConfig, load_config
from scribengin.dataflow.registry.descriptors import Origin
from scribengin.dataflow.registry.edit_log import edits, write_edit
from scribengin.dataflow.registry.view import DataflowView
from scribengin.errors import ScribenginError
from scribengin.log import LogNamespace
from scribengin.operations.lifecycle import author, masters
from scribengin.operations.submit import check as checking
from scribengin.operations.submit.submit import submit
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry
from tests.integration.cli_runner import CommandLine

pytestmark = pytest.mark.usefixtures("no_standbys", "verdicts")
FLOW = {
    "name": "quiet",
    "sources": {"words": {"kind": "log", "logs": "words/*"}},
    "sinks": {"loud": {"kind": "log", "log": "loud"}},
    "transformation": "words:transform",
    "workers": 0,
    "session_timeout_s": 30,
}
CODE = 'def transform(inputs, context):\n    return inputs["words"]\n'


@pytest.fixture
def flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A descriptor with its module beside it."""
    monkeypatch.setenv("SCRIBENGIN_HOME", str(tmp_path / "home"))
    (tmp_path / "quiet").mkdir()
    (tmp_path / "quiet" / "words.py").write_text(CODE)
    path = tmp_path / "quiet" / "quiet.yaml"
    path.write_text(yaml.safe_dump(FLOW))
    return path


@pytest.fixture
def view(registry: Registry, line: CommandLine, flow: Path, tmp_path: Path) -> Iterator[DataflowView]:
    """A dataflow with a master, and without workers."""
    with LogNamespace.open("/logs", registry=registry) as logs:
        logs.create("words/0")
    submit(registry, load_config(flow), tmp_path / "home", standbys=0, author="ada@here")
    view = DataflowView(registry, "quiet")
    wait_until(lambda: masters(view) and view.status().master, timeout_s=120, what="a master")
    yield view
    line("kill", "quiet")


def test_code_from_where_nobody_here_has_submitted_it_is_asked_about(
    view: DataflowView, line: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / "words.py").write_text("raise SystemExit('never')")
    view.set_origin(Origin(package=str(tmp_path / "evil"), host="elsewhere"))
    before = view.config_to_edit()
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    done = line("restart", "quiet")
    assert done.code != 0
    assert f"{tmp_path / 'evil'}, which you did not submit" in done.err
    assert view.config_to_edit() == before


def shipped_code(view: DataflowView) -> str:
    """The code that the next worker runs."""
    return (Path(str(view.config_in_force().value.package)) / "words.py").read_text()


def test_a_restart_takes_the_code_as_it_is_on_disk(line: CommandLine, view: DataflowView, flow: Path) -> None:
    (flow.parent / "words.py").write_text(CODE + "# better\n")
    assert line.ok("restart", "quiet", "--no-check").out == "restarted dataflow 'quiet'\n"
    wait_until(lambda: shipped_code(view).endswith("# better\n"), timeout_s=60, what="the new code to be in force")
    last = edits(view)[-1]
    assert (last.author, last.outcome) == (author(), "accepted")
    assert [change.split(":")[0] for change in last.changes] == ["package", "desired_state"]
    wait_until(lambda: view.status().state != "stopped", timeout_s=60, what="it to run again")


def test_a_restart_takes_the_descriptor_as_it_is_now_and_values(
    line: CommandLine, view: DataflowView, flow: Path
) -> None:
    flow.write_text(yaml.safe_dump({**FLOW, "settings": {"limit": 3}}))
    line.ok("restart", "quiet", str(flow), "--set", "round.records_max=5", "--no-check")
    wait_until(lambda: view.config_in_force().value.settings == {"limit": 3}, timeout_s=60, what="the new config")
    assert view.config_in_force().value.round.records_max == 5
    assert shipped_code(view) == CODE


def while_it_checks(monkeypatch: pytest.MonkeyPatch, view: DataflowView, **changes: object) -> None:
    """Another operator edits the config during the check."""

    def checked(*_arguments: object, **_options: object) -> tuple[None, list[ScribenginError]]:
        found = view.config()
        write_edit(view, found.value.model_copy(update=changes), found.version, author="bob@there", at_ms=1)
        return None, []

    monkeypatch.setattr(checking, "check", checked)


@pytest.mark.full
def test_what_another_operator_edits_while_it_checks_stays_and_is_told(
    line: CommandLine, view: DataflowView, flow: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    while_it_checks(monkeypatch, view, settings={"limit": 9})
    flow.write_text(yaml.safe_dump({**FLOW, "round": {"records_max": 5}}))
    done = line.ok("restart", "quiet", str(flow))
    assert "edited meanwhile, and kept: settings.limit: default -> 9" in done.err
    wait_until(lambda: view.config_in_force().value.round.records_max == 5, timeout_s=60, what="the new config")
    assert view.config_in_force().value.settings == {"limit": 9}


@pytest.mark.parametrize(
    ("theirs", "told"),
    [
        ({"stalled_after_s": 9.0}, "stalled_after_s: 60.0 -> 9.0"),
        ({"desired_state": "paused"}, "desired_state: running -> paused"),
    ],
)
def test_what_another_operator_has_edited_otherwise_is_not_overwritten_and_nothing_is_stopped(
    line: CommandLine, view: DataflowView, monkeypatch: pytest.MonkeyPatch, theirs: dict[str, object], told: str
) -> None:
    while_it_checks(monkeypatch, view, **theirs)
    done = line("restart", "quiet", "--set", "stalled_after_s=30")
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert f"version 1 by bob@there: {told}" in done.err
    assert view.config().version == 1
    assert masters(view)


@pytest.mark.full
def test_another_number_of_tasks_that_a_reader_would_see_out_of_order_is_refused_before_anything_is_stopped(
    line: CommandLine, view: DataflowView, flow: Path
) -> None:
    hasty = {**FLOW, "name": "hasty", "sources": {"words": {"kind": "log", "logs": "loud/*", "retention_hold": False}}}
    hasty |= {"sinks": {"loud": {"kind": "log", "log": "louder"}}, "transformation": None, "sql": "SELECT * FROM words"}
    reader = DataflowConfig.parse(hasty, source="the test")
    DataflowView(view.registry, "hasty").submit(reader, [], 1)
    flow.write_text(yaml.safe_dump({**FLOW, "tasks": 2}))
    for asked in (("--set", "tasks=2"), (str(flow),)):
        done = line("restart", "quiet", *asked, "--no-check")
        assert (done.code, len(done.err.splitlines())) == (2, 1), done.err
        assert "'hasty' reads log loud, which 'quiet' writes, and nobody waits for it" in done.err
        assert (view.config().version, view.status().state) == (0, "starting")
        assert masters(view)
    line.ok("restart", "quiet", "--set", "tasks=2", "--no-check", "--force")
    wait_until(lambda: view.config_in_force().value.tasks == 2, timeout_s=60, what="the new config")


def test_one_that_has_ended_is_only_started(line: CommandLine, view: DataflowView) -> None:
    line.ok("stop", "quiet")
    assert line.ok("restart", "quiet", "--no-check").out == "restarted dataflow 'quiet'\n"
    wait_until(lambda: masters(view), timeout_s=60, what="a master")


def test_a_bad_descriptor_is_found_before_anything_is_stopped(
    line: CommandLine, view: DataflowView, flow: Path
) -> None:
    bad: list[tuple[dict[str, object], list[str], str]] = [
        ({"name": "loud"}, [], "describes dataflow 'loud', not 'quiet'"),
        ({"sinks": {"loud": {"kind": "log", "log": "other"}}}, [], "sinks.loud.log cannot be edited"),
        ({"wrokers": 3}, [], "unknown key 'wrokers'"),
        ({}, ["--set", "workers=many"], "workers: "),
    ]
    for changed, options, named in bad:
        flow.write_text(yaml.safe_dump({**FLOW, **changed}))
        done = line("restart", "quiet", str(flow), *options, "--no-check")
        assert (done.code, len(done.err.splitlines())) == (2, 1), done
        assert named in done.err
        assert view.config().version == 0
        assert masters(view)


def test_other_logs_than_it_reads_are_refused_before_anything_is_stopped(line: CommandLine, view: DataflowView) -> None:
    wait_until(view.tasks, timeout_s=60, what="the task that reads words/0")
    done = line("restart", "quiet", "--set", "sources.words.logs=letters/*", "--no-check")
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert "sources.words: the dataflow reads words/0, which would not be meant any more" in done.err
    assert masters(view)
    line.ok("restart", "quiet", "--set", "sources.words.logs=w*/*", "--no-check")


def test_code_that_is_not_where_it_was_is_asked_for(line: CommandLine, view: DataflowView, flow: Path) -> None:
    flow.parent.rename(flow.parent.with_name("moved"))
    done = line("restart", "quiet", "--no-check")
    assert done.code == 2
    assert "scribengin restart quiet FLOW" in done.err
    assert view.config().version == 0
    line.ok("restart", "quiet", str(flow.parent.with_name("moved") / "quiet.yaml"), "--no-check")
    assert str(flow.parent.with_name("moved")) in str(view.origin())


@pytest.mark.spark
def test_code_that_cannot_work_is_found_before_anything_is_stopped(
    line: CommandLine, view: DataflowView, flow: Path, session_of_commands: None
) -> None:
    (flow.parent / "words.py").write_text('def transform(inputs, context):\n    return inputs["wrods"]\n')
    done = line("restart", "quiet")
    assert done.code == 2
    assert "wrods" in done.err
    assert view.config().version == 0
    assert masters(view)
