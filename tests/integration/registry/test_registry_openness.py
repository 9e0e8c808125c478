"""A registry that others may write: `submit` wants a user where it is on other machines, and masters and workers say
once in their logs what is open."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scribengin.base.process import openness
from scribengin_registry.contract import Registry
from scribengin_registry.opening import AUTH_VARIABLE, connect
from tests.integration.cli_runner import CommandLine

FLOW = "name: a\nsources: {s: {kind: log, logs: a}}\nsinks: {o: {kind: log, log: o}}\nsql: SELECT * FROM s\n"
CHAIN = (
    "name: c\ndataflows: {a: {sources: {s: {kind: log, logs: a}}, sinks: {o: {kind: log, log: o}}, sql: SELECT 1}}\n"
)
NOBODYS = "is used without a user: whoever reaches it runs code here"
NO_LOG = "no log in /logs is called 'a'"


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The servers of the tests are on this machine, and count as others here."""
    monkeypatch.setattr(openness, "is_local", lambda _hosts: False)


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("text", [FLOW, CHAIN], ids=["dataflow", "chain"])
def test_a_registry_on_other_machines_wants_a_user(
    line: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    flow = tmp_path / "a.yaml"
    flow.write_text(text)
    refused = line("submit", str(flow), "--no-check")
    assert refused.code == 2
    assert refused.err.count("\n") == 1
    for word in (NOBODYS, AUTH_VARIABLE, "--insecure (SCRIBENGIN_REGISTRY_INSECURE=1)"):
        assert word in refused.err
    insecure = line("submit", str(flow), "--no-check", "--insecure")
    assert NOBODYS in insecure.err, "it is told all the same"
    assert NO_LOG in insecure.err, "and goes on"
    monkeypatch.setenv("SCRIBENGIN_REGISTRY_INSECURE", "1")
    assert NO_LOG in line("submit", str(flow), "--no-check").err
    monkeypatch.setenv("SCRIBENGIN_REGISTRY_INSECURE", "0")
    assert line("submit", str(flow), "--no-check").err == refused.err
    monkeypatch.setenv(AUTH_VARIABLE, "ada:secret")
    with_user = line("submit", str(flow), "--no-check").err
    assert NOBODYS not in with_user
    assert NO_LOG in with_user


def test_a_registry_of_this_machine_needs_none(line: CommandLine, tmp_path: Path) -> None:
    flow = tmp_path / "a.yaml"
    flow.write_text(FLOW)
    done = line("submit", str(flow), "--no-check")
    assert NOBODYS not in done.err
    assert NO_LOG in done.err


@pytest.mark.parametrize("what", [pytest.param("master", marks=pytest.mark.full), "worker"])
def test_a_process_says_once_that_others_may_change_what_it_runs_by(
    registry: Registry, registry_hosts: str, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    registry.create("/scribengin/dataflows", parents=True)
    name = ["--name", "master-1"] if what == "master" else ["--worker", "worker-1"]

    def said() -> str:
        process = [
            sys.executable,
            "-m",
            f"scribengin.{what}",
            "--registry",
            registry_hosts,
            "--dataflow",
            "none",
            *name,
        ]
        return subprocess.run(process, capture_output=True, text=True, check=False).stderr

    assert "anybody may change" not in said(), "nobody relies on rights"
    monkeypatch.setenv(AUTH_VARIABLE, "ada:secret")
    assert said().count("anybody may change /scribengin of this registry") == 1
    with connect(registry_hosts, auth="ada:secret") as ada:
        ada.protect("/")
        assert "anybody may change" not in said()
        for child in ada.children("/"):
            ada.delete(f"/{child}", recursive=True)
