"""What `explain` says of a mistake that a dataflow's files show, without a registry and Spark."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from scribengin.dataflow.config import DataflowConfig
from scribengin.errors import ConfigInvalid, ScribenginError
from scribengin.operations.chain import check as chain_check
from scribengin.operations.submit import explain
from scribengin.spark.transform.spec import StateOperator
from scribengin_tools.cli import main as cli
from scribengin_tools.cli.dataflow import submit
from scribengin_tools.rendering import checking

_FLOW: dict[str, Any] = {
    "sources": {"words": {"kind": "log", "logs": "words/*"}},
    "sinks": {"loud": {"kind": "log", "log": "loud"}},
    "sql": "SELECT payload FROM words",
}


def test_what_a_sink_gets_besides_is_said_beside_it() -> None:
    roles = {
        "sinks": {name: {"kind": "log", "log": name} for name in ("loud", "bad", "late")},
        "sql": {"loud": "SELECT payload FROM words"},
        "errors": {"action": "route", "sink": "bad"},
        "state": {"watermarks": {"words": {"column": "at"}}, "late": {"sink": "late"}},
    }
    config = DataflowConfig.parse({"name": "quiet", **_FLOW, **roles}, source="the test")
    sinks = {name: f"log {name}" for name in config.sinks}
    found = explain.Explanation(dataflow="quiet", sinks=sinks, guarantees=dict.fromkeys(sinks, "exactly once"))
    out = StringIO()
    Console(file=out, width=100).print(checking.shown(found, config))
    told = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    assert {
        "loud log loud exactly once",
        "bad log bad (bad records) exactly once",
        "late log late (late records) exactly once",
    } <= set(told)


def test_an_output_that_comes_again_is_told() -> None:
    flow = {"sources": {"words": {"kind": "log", "logs": "*"}}, "sinks": _FLOW["sinks"], "sql": _FLOW["sql"]}
    config = DataflowConfig.parse({"name": "quiet", **flow}, source="the test")
    out = StringIO()
    found = explain.Explanation(dataflow="quiet", comes_again={"loud": "words"})
    Console(file=out, width=100).print(checking.shown(found, config))
    told = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    assert "comes again what goes to loud, by words" in told


def test_each_operator_that_keeps_state_has_its_key_what_bounds_it_and_what_it_keeps_for_ever() -> None:
    provider, joined = "spark.sql.streaming.stateStore.providerClass", "spark.sql.streaming.join.stateFormatVersion"
    kept = {provider: "org.there.RocksDBStateStoreProvider"}
    state = (
        StateOperator(
            name="join",
            kind="join",
            spark="symmetricHashJoin",
            key=("tail", "day"),
            bound=None,
            pinned={**kept, joined: "2"},
            partitions=4,
        ),
        StateOperator(
            name="limit", kind="limit", spark="globalLimit", key=(), bound="one number", pinned=kept, partitions=None
        ),
    )
    config = DataflowConfig.parse({"name": "quiet", **_FLOW}, source="the test")
    out = StringIO()
    Console(file=out, width=120).print(checking.shown(explain.Explanation(dataflow="quiet", state=state), config))
    told = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    assert {
        "join tail, day 4 nothing: it grows for ever",
        "limit 1, for ever one number",
        "streaming.stateStore.providerClass RocksDBStateStoreProvider join, limit",
        "streaming.join.stateFormatVersion 2 join",
    } <= set(told)


@pytest.fixture(autouse=True)
def _wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong: list[ScribenginError] = [ConfigInvalid("flow.py: line 3 is no Python"), ConfigInvalid("it is too large")]
    monkeypatch.setattr(explain, "problems_of_files", lambda _config: wrong)
    monkeypatch.setattr(chain_check, "problems_of_chain_files", lambda _chain: wrong)
    monkeypatch.setattr(submit, "connected", None)  # nobody is asked


@pytest.mark.parametrize(
    ("kind", "descriptor"),
    [("dataflow", {"name": "quiet", **_FLOW}), ("chain", {"name": "quiet", "dataflows": {"one": _FLOW}})],
)
def test_what_files_show_is_told_in_json_too(
    kind: str, descriptor: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "flow.json"
    file.write_text(json.dumps(descriptor))
    problems = ["flow.py: line 3 is no Python", "it is too large"]
    assert cli.run(["explain", str(file), "--json"]) == 2
    out, err = capsys.readouterr()
    assert json.loads(out) == {kind: "quiet", "problems": problems}
    assert cli.run(["explain", str(file)]) == 2
    assert capsys.readouterr() == ("", err), "without it, on stderr alone"
    for problem in problems:
        assert problem in err


@pytest.mark.parametrize(
    ("text", "kind", "named"),
    [
        ("name: [", "dataflow", "flow.yaml"),
        ("name: quiet\nwrokers: 2\n", "dataflow", "unknown key 'wrokers'"),
        ("name: pair\ndataflows: {one: {sql: 3}}\n", "chain", "dataflows.one: sources: is missing"),
        (None, "dataflow", "there is no such file"),
    ],
)
def test_a_descriptor_that_cannot_be_understood_is_told_in_json_too(
    text: str | None, kind: str, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "flow.yaml"
    if text is not None:
        file.write_text(text)
    assert cli.run(["explain", str(file), "--json"]) == 2
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert told == {kind: None, "problems": [err.removeprefix("scribengin: ").strip()]}
    assert named in told["problems"][0]
    assert cli.run(["explain", str(file)]) == 2
    assert capsys.readouterr() == ("", err)
