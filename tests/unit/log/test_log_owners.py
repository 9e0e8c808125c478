"""Writing to a log that a dataflow writes is refused at once, with the dataflow's name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry.view import DataflowView
from scribengin.log import LogNamespace
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin_registry.contract import Registry
from scribengin_tools.cli import main as cli
from scribengin_tools.cli import options


@pytest.fixture
def view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataflowView:
    """A dataflow that writes alarms/0, and logs of which nobody has opened one."""
    session = MemoryEnsemble().connect()

    @contextmanager
    def connected(_hosts: str | None, **_options: object) -> Iterator[Registry]:
        yield session

    monkeypatch.setattr(options, "connected", connected)
    keys = {
        "name": "hot",
        "sources": {"in": {"kind": "log", "logs": "in/*"}},
        "sinks": {"out": {"kind": "log", "log": "alarms"}},
        "sql": "SELECT payload FROM in",
    }
    LogNamespace.bind("/logs", tmp_path / "store", registry=session)
    with LogNamespace.open("/logs", registry=session) as logs:
        for log in ("alarms/0", "in/0", "alarms"):
            logs.create(log)
    view = DataflowView(session, "hot")
    view.submit(DataflowConfig.parse(keys, source="the test"), ["log:/logs/alarms"], 0)
    return view


@pytest.mark.parametrize("line", [["log", "write", "alarms/0", "x"], ["log", "seal", "alarms/0"]])
def test_a_log_of_a_dataflow_is_refused_with_its_name(
    view: DataflowView, line: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(line) == 2
    assert "log 'alarms/0' is written by dataflow 'hot', which is starting" in capsys.readouterr().err


def test_it_is_refused_by_the_uri_of_its_namespace_too(
    view: DataflowView, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("scribengin_registry.opening.connect", lambda _hosts: view.registry)
    namespace = f"distributedlog-file://{view.registry.hosts}/logs"
    assert cli.run(["log", "write", "alarms/0", "x", "--namespace", namespace]) == 2
    assert "is written by dataflow 'hot', which is starting" in capsys.readouterr().err


@pytest.mark.parametrize("log", ["in/0", "alarms"])
def test_other_logs_are_written(view: DataflowView, log: str) -> None:
    assert cli.run(["log", "write", log, "x"]) == 0


def test_it_is_written_once_the_dataflow_has_ended_or_where_it_is_taken_from_it(view: DataflowView) -> None:
    assert cli.run(["log", "write", "alarms/0", "x", "--steal"]) == 0
    view.set_status(view.status().model_copy(update={"state": "stopped"}))
    assert cli.run(["log", "write", "alarms/0", "x"]) == 0
