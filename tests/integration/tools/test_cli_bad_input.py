"""Bad dataflows: each is one clear message, exit code 2, no traceback of ours, and nothing was created."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.dataflow.config import load_config
from scribengin.dataflow.registry.view import DataflowView
from scribengin.log import LogNamespace
from scribengin_registry.contract import Registry
from tests.integration.cli_runner import CommandLine, Done, expect_registry_away, whole_tree

FLOW: dict[str, Any] = {
    "name": "loud",
    "sources": {"words": {"kind": "log", "logs": "words/*"}},
    "sinks": {"loud": {"kind": "log", "log": "loud"}},
    "sql": "SELECT upper(cast(payload AS string)) AS payload FROM words",
}
CODE = """
from pyspark.sql.functions import count

def transform(inputs, context):
    return inputs["words"]

def counted(inputs, context):
    words = inputs["words"]
    return words.groupBy("payload").agg(count("*").alias("n")).select("payload")
"""


@pytest.fixture
def line(line: CommandLine, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """With a log, and a home of its own."""
    with LogNamespace.open("/logs", registry=registry) as logs:
        logs.create("words/0")
    monkeypatch.setenv("SCRIBENGIN_HOME", str(tmp_path / "home"))
    return line


def written(directory: Path, flow: Any, code: str = CODE) -> str:
    """A descriptor file with its module beside it."""
    package = directory / "flow"
    package.mkdir(exist_ok=True)
    (package / "words.py").write_text(code)
    path = package / "flow.yaml"
    path.write_text(flow if isinstance(flow, str) else yaml.safe_dump(flow))
    return str(path)


@contextmanager
def unchanged(registry: Registry, home: Path) -> Iterator[None]:
    """Nothing comes into being meanwhile: not in the registry, not on disk."""
    before = whole_tree(registry)
    yield
    assert whole_tree(registry) == before
    assert not (home / "home").exists()


def refused(line: CommandLine, flow: str, *options: str, command: str = "submit") -> Done:
    """A command that is refused, with messages and no traceback; what it said of its progress is left out."""
    done = line(command, flow, *options)
    done = replace(done, err="".join(said for said in done.err.splitlines(True) if not said.endswith(" ...\n")))
    assert done.code == 2, done
    assert "Traceback" not in done.err
    assert all(message.startswith("scribengin: ") for message in done.err.splitlines())
    return done


@pytest.mark.parametrize(
    ("flow", "named"),
    [
        ({**FLOW, "wrokers": 2}, "unknown key 'wrokers'"),
        ({**FLOW, "workers": "many"}, "workers: "),
        ({**FLOW, "name": "a b"}, "name: "),
        ({**FLOW, "sources": {"words": {"kind": "kafka"}}}, "sources.words.bootstrap: is missing"),
        ({key: value for key, value in FLOW.items() if key != "sinks"}, "sinks: "),
        ({**FLOW, "transformation": "words:transform"}, "exactly one of transformation"),
        ("name: [a\n", "is no YAML"),
        ("just words\n", "holds no mapping"),
    ],
)
def test_a_bad_descriptor_is_refused_before_anything_else(
    line: CommandLine, registry: Registry, tmp_path: Path, flow: Any, named: str
) -> None:
    path = written(tmp_path, flow)
    with unchanged(registry, tmp_path):
        for command in ("submit", "explain"):
            done = refused(line, path, command=command)
            assert done.err.count("\n") == 1
            assert named in done.err
            assert path in done.err


def test_a_descriptor_that_is_not_there_is_named(line: CommandLine, registry: Registry, tmp_path: Path) -> None:
    with unchanged(registry, tmp_path):
        assert str(tmp_path / "nope.yaml") in refused(line, str(tmp_path / "nope.yaml")).err
        assert "--set workers" in refused(line, written(tmp_path, FLOW), "--set", "workers").err
        assert "nope" in refused(line, written(tmp_path, FLOW), "--set", "nope=1").err


def test_no_registry_and_one_that_is_away_are_named(
    line: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = written(tmp_path, FLOW)
    expect_registry_away(line, "submit", flow)
    monkeypatch.delenv("SCRIBENGIN_REGISTRY")
    assert "no registry was given" in refused(line, flow).err


@pytest.mark.parametrize("command", ["explain", "submit"])
@pytest.mark.parametrize("chained", [False, True])
def test_what_the_files_alone_show_is_told_before_a_registry_is_asked(
    line: CommandLine, tmp_path: Path, command: str, *, chained: bool
) -> None:
    flow = {key: value for key, value in FLOW.items() if key != "sql"} | {"transformation": "words:nope"}
    path = written(tmp_path, flow)
    if chained:
        chain = tmp_path / "both.yaml"
        chain.write_text(yaml.safe_dump({"name": "both", "dataflows": {"first": path}}))
        path = str(chain)
    done = refused(line, path, "--registry", "127.0.0.1:1", command=command)
    assert done.err.count("\n") == 1
    assert ("scribengin: dataflow 'first': module" if chained else "scribengin: module") in done.err
    assert "module 'words' has no function 'nope'" in done.err


@pytest.mark.spark
@pytest.mark.usefixtures("session_of_commands")
class TestWithSpark:
    """What is found only when sources, sinks and the transformation are looked at."""

    def test_everything_that_is_wrong_is_said_at_once(
        self, line: CommandLine, registry: Registry, tmp_path: Path
    ) -> None:
        flow = written(tmp_path, FLOW)
        other = load_config({**FLOW, "name": "other"})
        DataflowView(registry, "other").submit(other, ["log:/logs/loud"], SYSTEM_CLOCK.now_ms())
        DataflowView(registry, "loud").submit(load_config(flow), [], SYSTEM_CLOCK.now_ms())
        with unchanged(registry, tmp_path):
            done = refused(line, flow, "--set", "sources.words.logs=nothing/*")
        exists, taken, missing = done.err.splitlines()
        assert "'loud' exists already" in exists
        assert "dataflow 'other' writes log:/logs/loud already" in taken
        assert "source 'words': no log in /logs" in missing
        assert "'nothing/*'" in missing

    @pytest.mark.parametrize(
        ("function", "named"),
        [
            ("nope:transform", "there is no module 'nope'"),
            ("words:nope", "module 'words' has no function 'nope'"),
            ("words:counted", "HashAggregate"),
        ],
    )
    def test_a_transformation_that_cannot_run_is_refused(
        self, line: CommandLine, registry: Registry, tmp_path: Path, function: str, named: str
    ) -> None:
        flow = {key: value for key, value in FLOW.items() if key != "sql"}
        path = written(tmp_path, {**flow, "transformation": function})
        with unchanged(registry, tmp_path):
            for command in ("submit", "explain"):
                done = refused(line, path, command=command)
                assert done.err.count("\n") == 1
                assert named in done.err

    def test_a_mistake_in_the_sql_of_a_chain_says_whose_it_is(
        self, line: CommandLine, registry: Registry, tmp_path: Path
    ) -> None:
        first = {key: value for key, value in FLOW.items() if key != "name"}
        second = {**first, "sinks": {"out": {"kind": "log", "log": "out"}}, "sql": "SELECT paylaod FROM words"}
        flows = {"first": first, "second": second}
        path = tmp_path / "both.yaml"
        path.write_text(yaml.safe_dump({"name": "both", "dataflows": flows}))
        with unchanged(registry, tmp_path):
            said = line("explain", str(path)).err
        assert "scribengin: dataflow 'second': the SQL" in said
        assert "checking the transformation of 'both-second'; Spark takes some seconds ..." in said

    def test_a_module_that_raises_shows_its_own_traceback_first(
        self, line: CommandLine, registry: Registry, tmp_path: Path
    ) -> None:
        flow = {key: value for key, value in FLOW.items() if key != "sql"}
        path = written(tmp_path, {**flow, "transformation": "words:transform"}, code=f"limit = 1 / 0\n{CODE}")
        with unchanged(registry, tmp_path):
            done = line("submit", path)
        assert done.code == 2
        _progress, first, *frames, last = done.err.splitlines()
        assert first == "Traceback (most recent call last):"
        assert any("words.py" in frame for frame in frames)
        assert last.startswith("scribengin: module 'words' cannot be imported")
        assert not any("scribengin" in frame for frame in frames)

    def test_sql_that_is_wrong_is_refused(self, line: CommandLine, registry: Registry, tmp_path: Path) -> None:
        with unchanged(registry, tmp_path):
            unknown = refused(line, written(tmp_path, {**FLOW, "sql": "SELECT nope AS payload FROM words"}))
            assert "nope" in unknown.err
            refused(line, written(tmp_path, {**FLOW, "sql": "SELEKT payload FROM words"}))

    def test_a_dataflow_that_is_right_is_shown_and_its_problems_are_in_the_json(
        self, line: CommandLine, registry: Registry, tmp_path: Path
    ) -> None:
        flow = written(tmp_path, FLOW)
        with unchanged(registry, tmp_path):
            shown = line.ok("explain", flow)
            assert "no problems" in shown.err
            assert "words:words/0" in shown.out
            assert "payload STRING" in shown.out
            assert line.ok("explain", flow, "--json").json["problems"] == []
            wrong = line("explain", flow, "--json", "--set", "sources.words.logs=nothing")
            assert wrong.code == 2
            assert "nothing" in wrong.json["problems"][0]
